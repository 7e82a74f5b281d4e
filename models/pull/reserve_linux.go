package pull

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve makes f size bytes long and reserves the disk's blocks for them where the file system can.
func reserve(f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil || size == 0 {
		return err
	}
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "reserve", Path: f.Name(), Err: err}
	}
	return nil
}

// syncData puts the bytes of f on the disk, without what is only of use to find out when.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
