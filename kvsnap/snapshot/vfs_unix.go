//go:build unix

package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK // a FIFO must not block the reader

// private returns an error when other users could read or change the files in dir: snapshots contain what users typed.
func private(dir string, i fs.FileInfo) error {
	if !i.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if st, ok := i.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to user %d of this daemon", dir, st.Uid, os.Geteuid())
	}
	if m := i.Mode().Perm(); m&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o: other users could read what users typed; run chmod 700 %s", dir, m, dir)
	}
	return nil
}

func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}
