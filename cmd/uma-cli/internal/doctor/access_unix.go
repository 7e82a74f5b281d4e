//go:build unix

package doctor

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// canUse is an error unless this user may read and write the file.
func canUse(path string) error { return unix.Access(path, unix.R_OK|unix.W_OK) }

// canFill is an error unless this user may make files in the folder.
func canFill(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return 0
}
