//go:build unix

package pull

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeSpace is the number of bytes that a user may still write to the file system of dir.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(max(int64(st.Bavail), 0)) * uint64(st.Bsize), nil
}

// allocated is the number of bytes of the disk that the file has.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return 0
}
