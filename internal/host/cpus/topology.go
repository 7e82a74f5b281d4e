// Package cpus reads what the kernel says about processors: which ones this process may use, how fast they are, how
// much of them other processes take, and the energy they use. It decides nothing about running steps (package
// sched/threads does); topology.go has the number of threads at the start, and their cores.
//
// Files that are missing, unreadable or malformed count as not known. At most maxFile bytes of a file are read.
package cpus

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	maxFile = 1 << 20 // /proc/stat of a machine with thousands of CPUs
	maxCPU  = 1 << 13 // above the kernel's own limit, NR_CPUS
)

// Topology is the processors that this process may use.
type Topology struct {
	// Allowed are the numbers of the CPUs in the affinity mask of the process, ascending. A core with two hardware
	// threads is two CPUs.
	Allowed []int
	// Cores counts the physical cores of Allowed; 0 = not known.
	Cores int
	// Fast are the CPUs of Allowed whose core is of the fastest kind. It is Allowed where all are alike, or the kinds
	// are not known.
	Fast      []int
	FastCores int // physical cores of Fast; 0 = not known
	// Quota is the CPU time per time that cgroups grant, the least of those that the process is in; 0 = no limit.
	Quota float64
}

// ReadTopology reads the topology of this machine.
func ReadTopology() Topology {
	t := readTopology("/", allowed())
	if n := fastCores(); n > 0 {
		t.FastCores = n
	}
	return t
}

// readTopology reads the files below root. allowed are the CPUs of the affinity mask; none = not known.
func readTopology(root string, allowed []int) Topology {
	t := Topology{Allowed: allowed, Fast: allowed, Quota: quota(root)}
	system := filepath.Join(root, "sys/devices/system/cpu")
	siblings := make(map[int]string, len(allowed))
	for _, c := range allowed {
		s := line(cpuFile(system, c, "topology/thread_siblings_list"))
		if s == "" {
			return t
		}
		siblings[c] = s
	}
	t.Fast = fast(root, system, allowed)
	t.Cores, t.FastCores = cores(allowed, siblings), cores(t.Fast, siblings)
	return t
}

// cores counts the cores of CPUs by their lists of siblings.
func cores(cpus []int, siblings map[int]string) int {
	distinct := map[string]bool{}
	for _, c := range cpus {
		distinct[siblings[c]] = true
	}
	return len(distinct)
}

// alike is the least capacity of a fast core, relative to the fastest: cores of one kind differ by some percent (turbo
// of single cores, two kinds of big cores of an ARM processor), those of another kind by a third and more.
const alike = 0.7

// fast returns the CPUs of allowed that are of the fastest kind: by Intel's list of performance cores, by the
// capacities of ARM's device trees, or by the maximum frequencies.
func fast(root, system string, allowed []int) []int {
	if line(filepath.Join(root, "sys/devices/cpu_atom/cpus")) != "" {
		big := cpuList(line(filepath.Join(root, "sys/devices/cpu_core/cpus")))
		if out := intersect(allowed, big); len(out) > 0 {
			return out
		}
		return allowed // only efficiency cores
	}
	for _, name := range []string{"cpu_capacity", "cpufreq/cpuinfo_max_freq"} {
		speed, most := make([]int64, len(allowed)), int64(0)
		known := true
		for i, c := range allowed {
			n, ok := number(line(cpuFile(system, c, name)))
			if !ok || n == 0 {
				known = false
				break
			}
			speed[i], most = n, max(most, n)
		}
		if !known {
			continue
		}
		var out []int
		for i, c := range allowed {
			if float64(speed[i]) >= alike*float64(most) {
				out = append(out, c)
			}
		}
		return out
	}
	return allowed
}

// Hybrid reports whether the process may use cores of several kinds.
func (t *Topology) Hybrid() bool { return len(t.Fast) < len(t.Allowed) }

// Threads returns the number of compute threads that suits the processors: one for each fast core, because two threads
// of one core share its vector units, and all threads would wait for one on a slow core. On machines with few CPUs (a
// virtual machine with two hardware threads of one core) at least two where there are two. Quotas are rounded down:
// above its quota, a cgroup stands still for the rest of a period of 100 ms.
func (t *Topology) Threads() int {
	usable := t.Usable()
	n := t.FastCores
	if n <= 0 || n > usable {
		n = usable
	}
	return max(n, min(2, usable), 1)
}

// Usable returns the number of CPUs that can be used at the same time: those allowed, within the quota. At least 1.
func (t *Topology) Usable() int {
	n := max(1, len(t.Allowed))
	if t.Quota > 0 {
		n = min(n, max(1, int(math.Floor(t.Quota+1e-6))))
	}
	return n
}

func cpuFile(system string, cpu int, name string) string {
	return filepath.Join(system, "cpu"+strconv.Itoa(cpu), name)
}

// line returns the first line of a file, "" when it cannot be read.
func line(path string) string {
	b := read(path)
	s, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(s)
}

// read returns at most maxFile bytes of a file, nil when it cannot be read.
func read(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil
	}
	return b
}

// number parses a count: digits, not negative.
func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n, err == nil && n >= 0
}

// cpuList parses a list of CPUs such as "0-3,8". What is malformed or beyond maxCPU is left out.
func cpuList(s string) []int {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, ok := number(from)
		b := a
		if isRange {
			var last bool
			b, last = number(to)
			ok = ok && last
		}
		if !ok || a > b || b >= maxCPU {
			continue
		}
		for c := a; c <= b; c++ {
			out = append(out, int(c))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// first returns 0 … n-1.
func first(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// intersect returns the elements of a that b has. Both are sorted.
func intersect(a, b []int) []int {
	var out []int
	for _, c := range a {
		if _, ok := slices.BinarySearch(b, c); ok {
			out = append(out, c)
		}
	}
	return out
}
