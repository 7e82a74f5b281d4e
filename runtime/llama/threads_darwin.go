package llama

import "golang.org/x/sys/unix"

// physicalCores counts the fast cores: all threads would wait for one on an efficiency core.
func physicalCores() int {
	for _, name := range []string{"hw.perflevel0.physicalcpu", "hw.physicalcpu"} {
		if n, err := unix.SysctlUint32(name); err == nil {
			return int(n)
		}
	}
	return 0
}
