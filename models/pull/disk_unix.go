//go:build unix

package pull

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeSpace returns the number of bytes that a user may still write to the file system of dir.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(max(int64(st.Bavail), 0)) * uint64(st.Bsize), nil
}

// allocated returns the number of bytes of the disk that the file has.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return 0
}

// share lets all that may read the models folder read f, a new file or folder in it, whatever the umask. Root gives f
// to the folder's owner, too: a daemon could not read what root pulls into its folder otherwise. It works on an open
// file, so that the owner of the folder cannot put a link in its place.
func share(f *os.File, folder os.FileInfo) error {
	mode := 0o600 | folder.Mode().Perm()&0o044
	if st, err := f.Stat(); err != nil {
		return err
	} else if st.IsDir() {
		mode = 0o700 | folder.Mode().Perm()
	}
	if st, ok := folder.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(mode)
}

// makeDir makes a folder in the models folder.
func makeDir(path string, folder os.FileInfo) error {
	err := os.Mkdir(path, 0o700)
	if err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return share(f, folder)
}
