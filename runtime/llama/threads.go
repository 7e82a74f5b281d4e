package llama

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
)

// defaultThreads is one per physical core: two threads of one core share its vector units, and a matrix product gains
// nothing from the second. On machines with few CPUs (a virtual machine with two hardware threads of one core) at
// least two are used where there are two.
//
// Only CPUs this process may run on count (affinity and, through GOMAXPROCS's default, the cgroup's quota).
func defaultThreads() int {
	usable := min(goruntime.NumCPU(), cpuQuota)
	n := physicalCores()
	if n <= 0 || n > usable {
		n = usable
	}
	return max(n, min(2, usable))
}

// cpuQuota is GOMAXPROCS as the runtime chose it at start, before any program changes it: it knows cgroup limits.
var cpuQuota = goruntime.GOMAXPROCS(0)

// linuxCores counts the distinct sets of hardware threads that share a core, 0 when the kernel does not tell.
func linuxCores(root string) int {
	lists, _ := filepath.Glob(filepath.Join(root, "cpu[0-9]*/topology/thread_siblings_list"))
	cores := map[string]bool{}
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			return 0
		}
		cores[strings.TrimSpace(string(b))] = true
	}
	return len(cores)
}
