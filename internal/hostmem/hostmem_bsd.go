//go:build darwin || freebsd

package hostmem

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Read asks the kernel for the installed memory. These systems do not report the available memory as one number.
func Read() Memory {
	name := "hw.memsize"
	if runtime.GOOS == "freebsd" {
		name = "hw.physmem"
	}
	total, err := unix.SysctlUint64(name)
	if err != nil {
		return Memory{}
	}
	return Memory{Total: total}
}
