package cpus

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// allowed counts the CPUs: macOS does not number them.
func allowed() []int { return first(runtime.NumCPU()) }

// fastCores counts the cores of the fast kind.
func fastCores() int {
	for _, name := range []string{"hw.perflevel0.physicalcpu", "hw.physicalcpu"} {
		if n, err := unix.SysctlUint32(name); err == nil {
			return int(n)
		}
	}
	return 0
}
