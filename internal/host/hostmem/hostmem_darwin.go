package hostmem

import (
	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/host/mach"
)

// Read asks the kernel for the installed memory and for the free and inactive pages.
func Read() Memory {
	return readMach(func(name string) (uint64, error) { return unix.SysctlUint64(name) }, mach.Memory)
}
