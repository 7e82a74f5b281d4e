package cpus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree writes files below a new folder.
func tree(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		write(t, root, name, text)
	}
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// machine is the files of a machine: a list of siblings and a further file for each CPU.
func machine(siblings []string, name string, values []string) map[string]string {
	files := map[string]string{}
	for i, s := range siblings {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", i)
		files[dir+"topology/thread_siblings_list"] = s + "\n"
		if values != nil {
			files[dir+name] = values[i] + "\n"
		}
	}
	return files
}

func with(files map[string]string, more ...string) map[string]string {
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

func TestTopology(t *testing.T) {
	smt := []string{"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"}
	alone := []string{"0", "1", "2", "3", "4", "5", "6", "7"}
	hybrid := []string{"0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"} // two P cores, four E cores
	for _, c := range []struct {
		name    string
		files   map[string]string
		allowed []int
		cores   int
		fast    []int
		threads int
	}{
		{"nothing is known", nil, first(3), 0, first(3), 3},
		{"no affinity", nil, nil, 0, nil, 1},
		{"one CPU", machine(alone[:1], "", nil), first(1), 1, first(1), 1},
		{"two cores", machine(alone[:2], "", nil), first(2), 2, first(2), 2},
		{"two hardware threads", machine([]string{"0-1", "0-1"}, "", nil), first(2), 1, first(2), 2},
		{"four cores of two threads", machine(smt, "", nil), first(8), 4, first(8), 4},
		{"bound to two cores of them", machine(smt, "", nil), []int{1, 2}, 2, []int{1, 2}, 2},
		{"bound to both threads of a core", machine(smt, "", nil), []int{1, 5}, 1, []int{1, 5}, 2},
		{"Intel hybrid", with(machine(hybrid, "", nil), "sys/devices/cpu_core/cpus", "0-3\n",
			"sys/devices/cpu_atom/cpus", "4-7\n"), first(8), 6, first(4), 2},
		{"Intel hybrid, bound to E cores", with(machine(hybrid, "", nil), "sys/devices/cpu_core/cpus", "0-3\n",
			"sys/devices/cpu_atom/cpus", "4-7\n"), []int{4, 5, 6}, 3, []int{4, 5, 6}, 3},
		{"ARM, one prime, three big and four little cores", machine(alone, "cpu_capacity",
			[]string{"300", "300", "300", "300", "900", "900", "900", "1024"}), first(8), 8, []int{4, 5, 6, 7}, 4},
		{"AMD, cores of 5.1 and 3.5 GHz", machine(alone[:4], "cpufreq/cpuinfo_max_freq",
			[]string{"5100000", "5100000", "3500000", "3500000"}), first(4), 4, []int{0, 1}, 2},
		{"favoured cores", machine(alone[:4], "cpufreq/cpuinfo_max_freq",
			[]string{"5700000", "5500000", "5400000", "5400000"}), first(4), 4, first(4), 4},
		{"a capacity is missing", machine(alone[:2], "cpu_capacity", []string{"1024", ""}), first(2), 2, first(2), 2},
		{"capacities are no numbers", machine(alone[:2], "cpu_capacity", []string{"-5", "9e9"}), first(2), 2,
			first(2), 2},
		{"a quota of one CPU", with(machine(alone, "", nil), "sys/fs/cgroup/cpu.max", "100000 100000\n"), first(8), 8,
			first(8), 1},
		{"a quota of two and a half", with(machine(alone, "", nil), "sys/fs/cgroup/cpu.max", "250000 100000\n"),
			first(8), 8, first(8), 2},
	} {
		got := readTopology(tree(t, c.files), c.allowed)
		if got.Cores != c.cores || !slices.Equal(got.Fast, c.fast) || got.Threads() != c.threads {
			t.Errorf("%s: %d cores, fast %v, %d threads; want %d, %v, %d", c.name, got.Cores, got.Fast, got.Threads(),
				c.cores, c.fast, c.threads)
		}
		if got.Hybrid() != (len(c.fast) < len(c.allowed)) {
			t.Errorf("%s: hybrid %v", c.name, got.Hybrid())
		}
	}
	here := ReadTopology()
	if here.Threads() < 1 || here.Usable() < 1 || len(here.Allowed) < 1 {
		t.Errorf("this machine: %+v", here)
	}
}

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  float64
	}{
		{"none", nil, 0},
		{"no limit", []string{"sys/fs/cgroup/cpu.max", "max 100000\n"}, 0},
		{"of the root, in a container", []string{"proc/self/cgroup", "0::/../host/path\n",
			"sys/fs/cgroup/cpu.max", "150000 100000\n"}, 1.5},
		{"of a parent", []string{"proc/self/cgroup", "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/cpu.max", "50000 100000\n",
			"sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n"}, 0.5},
		{"of itself", []string{"proc/self/cgroup", "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/cpu.max", "800000 100000\n",
			"sys/fs/cgroup/a.slice/b.service/cpu.max", "300000 100000\n"}, 3},
		{"version 1", []string{"proc/self/cgroup", "9:name=systemd:/\n3:cpu,cpuacct:/docker/x\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "20000\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "10000\n"}, 2},
		{"version 1 without a limit", []string{"proc/self/cgroup", "3:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}, 0},
		{"malformed", []string{"proc/self/cgroup", "::::\n0\n0::\n\xff:cpu:/../../../../etc\n",
			"sys/fs/cgroup/cpu.max", "-4 0\n"}, 0},
		{"a period of 0", []string{"sys/fs/cgroup/cpu.max", "100000 0\n"}, 0},
		{"huge", []string{"sys/fs/cgroup/cpu.max", "99999999999999999999999 100000\n"}, 0},
	} {
		if got := quota(tree(t, with(map[string]string{}, c.files...))); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

const stat = `cpu  100 0 100 9999 0 0 0 0 0 0
cpu0 10 1000 20 5000 7 3 4 5 0 0
cpu1 1 2000 2 5000 7 0 0 0 0 0
cpu2 100000 0 0 0 0 0 0 0 0 0
intr 1 2 3
cpu9 5 5 5 5 5 5 5 5
`

func TestCounters(t *testing.T) {
	files := map[string]string{
		"proc/stat":                        stat,
		"proc/pressure/cpu":                "some avg10=1.00 avg300=0.00 total=1234567\nfull avg10=0 total=9\n",
		"proc/self/cgroup":                 "0::/u\n",
		"sys/fs/cgroup/u/cpu.stat":         "usage_usec 5\nthrottled_usec 4000\n",
		"proc/self/task/7/schedstat":       "1000000 500000 3\n",
		"proc/self/task/8/schedstat":       "2000000 0 3\n",
		"proc/self/task/9999999/schedstat": "junk\n",
	}
	usage := func() (time.Duration, int64) { return 5 * time.Second, 17 }
	root := tree(t, files)
	r := openReader(root, &Topology{Allowed: []int{0, 1}, Quota: 2}, usage, false)
	defer r.Close()
	want := Counters{Busy: 450 * time.Millisecond, Own: 5 * time.Second, Ran: 3 * time.Millisecond,
		Waited: 500 * time.Microsecond, Switches: 17, Stalled: 1234567 * time.Microsecond,
		Throttled: 4 * time.Millisecond}
	if got := r.Read([]int{7, 8, 9999999, 12345}); got != want {
		t.Errorf("read %+v, want %+v", got, want)
	}
	// A thread that ended, and one that is new.
	write(t, root, "proc/self/task/11/schedstat", "1 2 3")
	if got := r.Read([]int{7, 11}); got.Ran != 1000001 || got.Waited != 500002 {
		t.Errorf("of threads 7 and 11: ran %d, waited %d", got.Ran, got.Waited)
	}
	// A process of low priority waits for those of low priority too.
	low := openReader(root, &Topology{Allowed: []int{0, 1}}, usage, true)
	defer low.Close()
	if got := low.Read(nil); got.Busy != 30450*time.Millisecond || got.Throttled != Unknown || got.Ran != Unknown {
		t.Errorf("niced: %+v", got)
	}
	none := openReader(t.TempDir(), &Topology{Allowed: first(4), Quota: 1}, usage, false)
	defer none.Close()
	if got := none.Read([]int{1}); got.Busy != Unknown || got.Stalled != Unknown || got.Throttled != Unknown ||
		got.Ran != Unknown || got.Waited != Unknown {
		t.Errorf("of an empty system: %+v", got)
	}
}

// TestThisSystem reads what the tests run on: counters that are known grow.
func TestThisSystem(t *testing.T) {
	topology := ReadTopology()
	r := OpenReader(&topology)
	defer r.Close()
	a := r.Read([]int{os.Getpid()})
	for x := 1; x < 50_000_000; x++ {
		if x*x == 7 {
			t.Fatal()
		}
	}
	b := r.Read([]int{os.Getpid()})
	if b.Busy < a.Busy || b.Own <= a.Own || b.Ran < a.Ran || b.Stalled < a.Stalled {
		t.Errorf("counters went from %+v to %+v", a, b)
	}
}

// FuzzCounters: no content of the kernel's files makes reading fail or a counter negative.
func FuzzCounters(f *testing.F) {
	f.Add(stat, "some total=1", "throttled_usec 1", "1 2 3", "0-3,5")
	f.Add("cpu0 1 2 3 4 5 6 7 99999999999999999999", "some total=", "throttled_time 9223372036854775807",
		"-1 -2", "9-1")
	f.Add("cpu0 1", "total=5", "", "9223372036854775807 9223372036854775807", "0-99999999999")
	f.Add("cpu\ncpu \ncpux\n", "some total=-5", "throttled_usec", " \n", ",,,-,")
	f.Fuzz(func(t *testing.T, stat, pressure, throttle, sched, list string) {
		root := tree(t, map[string]string{"proc/stat": stat, "proc/pressure/cpu": pressure,
			"sys/fs/cgroup/cpu.stat": throttle, "proc/self/task/1/schedstat": sched, "proc/self/cgroup": list,
			"sys/fs/cgroup/cpu.max": sched})
		r := openReader(root, &Topology{Allowed: first(3), Quota: 1}, usage, true)
		defer r.Close()
		c := r.Read([]int{1})
		for _, d := range []time.Duration{c.Busy, c.Ran, c.Waited, c.Stalled, c.Throttled} {
			if d < Unknown {
				t.Errorf("%+v", c)
			}
		}
		if q := quota(root); !(q >= 0) {
			t.Errorf("quota %v", q)
		}
		cpus := cpuList(list)
		if !slices.IsSorted(cpus) || len(cpus) > maxCPU {
			t.Errorf("%q is the CPUs %v", list, cpus)
		}
		for _, v := range []string{stat, pressure, list} {
			top := readTopology(tree(t, with(machine([]string{v, v}, "cpu_capacity", []string{sched, list}),
				"sys/devices/cpu_core/cpus", list, "sys/devices/cpu_atom/cpus", v)), first(2))
			if n := top.Threads(); n < 1 || n > 2 {
				t.Errorf("%d threads", n)
			}
		}
	})
}

func TestLargeFile(t *testing.T) {
	root := tree(t, map[string]string{"big": strings.Repeat("x", maxFile+5)})
	if got := len(read(filepath.Join(root, "big"))); got != maxFile {
		t.Errorf("read %d bytes, want %d", got, maxFile)
	}
}
