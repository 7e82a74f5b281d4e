package cpus

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// allowed returns the CPUs of the affinity mask of the process's first thread: those of other threads may be narrower.
func allowed() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(unix.Getpid(), &set); err != nil {
		return first(runtime.NumCPU()) // more CPUs than the set has room for
	}
	var out []int
	for c := range 64 * len(set) {
		if set.IsSet(c) {
			out = append(out, c)
		}
	}
	return out
}

func fastCores() int { return 0 } // by files
