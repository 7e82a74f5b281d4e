package cpus

import "golang.org/x/sys/unix"

// Bind has the calling thread run on these CPUs alone. It belongs to a goroutine that is locked to its thread.
func Bind(cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}
