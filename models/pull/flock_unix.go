//go:build unix

package pull

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow makes opening a link fail.
const noFollow = unix.O_NOFOLLOW

// flock takes a file's lock for as long as the file is open. It reports false while another holds it.
func flock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
