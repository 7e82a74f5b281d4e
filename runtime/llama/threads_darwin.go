package llama

import "golang.org/x/sys/unix"

// physicalCores counts the fast cores: a thread on an efficiency core makes all others wait for it.
func physicalCores() int {
	for _, name := range []string{"hw.perflevel0.physicalcpu", "hw.physicalcpu"} {
		if n, err := unix.SysctlUint32(name); err == nil {
			return int(n)
		}
	}
	return 0
}
