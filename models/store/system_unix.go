//go:build unix

package store

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// noFollow makes opening a link fail.
const noFollow = syscall.O_NOFOLLOW

// flock waits for a file's lock, which is held as long as the file is open.
func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// owner returns the user that a file belongs to.
func owner(st fs.FileInfo) uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Uid
	}
	return uint32(os.Getuid())
}

func idOf(_ string, st fs.FileInfo) fileID {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return fileID{uint64(sys.Dev), uint64(sys.Ino)}
	}
	return fileID{}
}
