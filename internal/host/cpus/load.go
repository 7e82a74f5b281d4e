package cpus

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Unknown is the value of a counter that the kernel does not tell.
const Unknown = -1

// Counters are sums since some moment in the past, or Unknown.
type Counters struct {
	// Busy is the time that the CPUs of this process spent on anything but idling, summed over them. Time that a
	// hypervisor gave to another machine counts; processes of a lower priority than this one do not, because they do
	// not keep it from running. In steps of 10 ms.
	Busy time.Duration
	// Own is the CPU time of this process.
	Own time.Duration
	// Ran is the time that the compute threads ran, Waited the time that they were ready to run and had no CPU.
	Ran, Waited time.Duration
	// Switches is the number of involuntary context switches of this process's threads.
	Switches int64
	// Stalled is the time in which some task of the machine waited for a CPU (pressure stall information).
	Stalled time.Duration
	// Throttled is the time in which the cgroup's threads were stopped by its quota.
	Throttled time.Duration
}

// Reader reads Counters. It keeps the files open, because the process may lose the right to open them (a sandbox). It
// belongs to one goroutine.
type Reader struct {
	tasks    string // folder of the threads
	stat     *os.File
	pressure *os.File
	throttle *os.File
	counted  [maxCPU]bool // CPUs whose time counts
	niced    bool         // this process has a lower priority than is usual
	usage    func() (own time.Duration, switches int64)

	threads []thread
	buf     []byte
}

// thread is a compute thread.
type thread struct {
	id   int
	file *os.File // schedstat; nil: it cannot be opened
}

// maxThreads bounds the threads that are read: on a large machine some of them tell as much as all.
const maxThreads = 64

// OpenReader opens the counters of the CPUs that the process may use.
func OpenReader(t *Topology) *Reader { return openReader("/", t, usage, niced()) }

func openReader(root string, t *Topology, usage func() (time.Duration, int64), niced bool) *Reader {
	r := &Reader{
		tasks: filepath.Join(root, "proc/self/task"),
		stat:  open(filepath.Join(root, "proc/stat")), pressure: open(filepath.Join(root, "proc/pressure/cpu")),
		usage: usage, niced: niced,
	}
	if t.Quota > 0 {
		r.throttle = openThrottle(root)
	}
	lines := 0
	for _, c := range t.Allowed {
		if c < maxCPU {
			r.counted[c], lines = true, max(lines, c+1)
		}
	}
	r.buf = make([]byte, 4<<10+256*lines) // what follows the lines of the CPUs is not needed
	return r
}

// open returns nil when the file cannot be opened.
func open(path string) *os.File {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	return f
}

// openThrottle opens cpu.stat of the process's cgroup.
func openThrottle(root string) *os.File {
	mount := filepath.Join(root, "sys/fs/cgroup")
	for l := range strings.Lines(string(read(filepath.Join(root, "proc/self/cgroup")))) {
		fields := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(fields) != 3 || fields[1] != "" && !hasController(fields[1], "cpu") {
			continue
		}
		dir := filepath.Join(mount, fields[1])
		for _, d := range []string{filepath.Join(dir, filepath.Clean("/"+fields[2])), dir} {
			if f := open(filepath.Join(d, "cpu.stat")); f != nil {
				return f
			}
		}
	}
	return open(filepath.Join(mount, "cpu.stat"))
}

// Close closes the files.
func (r *Reader) Close() {
	for _, f := range []*os.File{r.stat, r.pressure, r.throttle} {
		if f != nil {
			f.Close()
		}
	}
	r.setThreads(nil)
}

// Read reads all counters. threads are the kernel's ids of the compute threads.
func (r *Reader) Read(threads []int) Counters {
	r.setThreads(threads[:min(len(threads), maxThreads)])
	c := Counters{Busy: r.busy(), Stalled: r.stalled(), Throttled: r.throttled()}
	c.Own, c.Switches = r.usage()
	c.Ran, c.Waited = r.waited()
	return c
}

// content returns what a file of the kernel says now, cut to the buffer; nil when it cannot be read. It is valid until
// the next call.
func (r *Reader) content(f *os.File) []byte {
	if f == nil {
		return nil
	}
	n, err := f.ReadAt(r.buf, 0)
	if n == 0 && err != nil {
		return nil
	}
	return r.buf[:n]
}

// tick is the unit of /proc/stat (USER_HZ, 100 on every architecture that we build for).
const tick = 10 * time.Millisecond

// busy sums user, system, irq, softirq and steal of the process's CPUs. Time of guests is in user. The time of niced
// processes has a separate column; it counts where this process is niced too.
func (r *Reader) busy() time.Duration {
	var sum time.Duration
	any := false
	rest := r.content(r.stat)
	for len(rest) > 0 {
		l, more, _ := bytes.Cut(rest, []byte{'\n'})
		rest = more
		if !bytes.HasPrefix(l, []byte("cpu")) {
			if any {
				break
			}
			continue
		}
		f := bytes.Fields(l)
		cpu, ok := number(string(f[0][len("cpu"):]))
		if !ok || cpu >= maxCPU || !r.counted[cpu] || len(f) < 9 {
			continue
		}
		for i, column := range f[1:9] {
			n, ok := number(string(column))
			if !ok || n > 1<<50 {
				return Unknown
			}
			switch i {
			case 1:
				if !r.niced {
					continue
				}
			case 3, 4: // idle, iowait
				continue
			}
			sum += time.Duration(n) * tick
		}
		any = true
	}
	if !any || sum < 0 {
		return Unknown
	}
	return sum
}

// stalled reads "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS".
func (r *Reader) stalled() time.Duration {
	l, _, _ := bytes.Cut(r.content(r.pressure), []byte{'\n'})
	if !bytes.HasPrefix(l, []byte("some ")) {
		return Unknown
	}
	return keyed(l, "total=", time.Microsecond)
}

// throttled reads throttled_usec of cgroup v2, or throttled_time, in nanoseconds, of v1.
func (r *Reader) throttled() time.Duration {
	b := r.content(r.throttle)
	if d := keyed(b, "throttled_usec ", time.Microsecond); d != Unknown {
		return d
	}
	return keyed(b, "throttled_time ", time.Nanosecond)
}

// keyed returns the number behind a key.
func keyed(b []byte, key string, unit time.Duration) time.Duration {
	_, rest, ok := bytes.Cut(b, []byte(key))
	if !ok {
		return Unknown
	}
	end := bytes.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(rest)
	}
	n, ok := number(string(rest[:end]))
	if !ok || n > int64(1<<62/unit) {
		return Unknown
	}
	return time.Duration(n) * unit
}

// setThreads opens the files of threads that are new, and closes those of threads that ended.
func (r *Reader) setThreads(ids []int) {
	same := len(ids) == len(r.threads)
	for i := 0; same && i < len(ids); i++ {
		same = r.threads[i].id == ids[i]
	}
	if same {
		return
	}
	for _, t := range r.threads {
		if t.file != nil {
			t.file.Close()
		}
	}
	r.threads = r.threads[:0]
	for _, id := range ids {
		r.threads = append(r.threads, thread{id, open(filepath.Join(r.tasks, strconv.Itoa(id), "schedstat"))})
	}
}

// waited sums "RAN WAITED SLICES", in nanoseconds, of the compute threads.
func (r *Reader) waited() (ran, waited time.Duration) {
	any := false
	for _, t := range r.threads {
		f := bytes.Fields(r.content(t.file))
		if len(f) < 2 {
			continue
		}
		a, ok := number(string(f[0]))
		b, ok2 := number(string(f[1]))
		if !ok || !ok2 || a > 1<<60 || b > 1<<60 {
			continue
		}
		ran, waited, any = ran+time.Duration(a), waited+time.Duration(b), true
	}
	if !any || ran < 0 || waited < 0 {
		return Unknown, Unknown
	}
	return ran, waited
}
