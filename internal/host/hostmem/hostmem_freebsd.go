package hostmem

import "golang.org/x/sys/unix"

// Read asks the kernel for the installed memory. FreeBSD does not report the available memory as one number.
func Read() Memory {
	total, err := unix.SysctlUint64("hw.physmem")
	if err != nil {
		return Memory{}
	}
	return Memory{Total: total}
}
