package connstate

import (
	"os"

	"golang.org/x/sys/unix"
)

// newFile is memory without a name in the file system.
func newFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("uma-connections", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "uma-connections"), nil
}

// seal fixes the size: an engine that truncated the file would end the front by SIGBUS.
func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return os.NewSyscallError("seal", err)
}
