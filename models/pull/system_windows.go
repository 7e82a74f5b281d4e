package pull

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// noFollow is nothing here: to create a link takes a right that users do not have.
const noFollow = 0

// flock takes a file's lock for as long as the file is open. It reports false while another holds it.
func flock(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// freeSpace returns the number of bytes that a user may still write to the volume of dir.
func freeSpace(dir string) (uint64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &os.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return free, nil
}

// allocated is 0: a download needs room for the whole file then.
func allocated(os.FileInfo) int64 { return 0 }

// share leaves the file as it is: it has the access list of its folder.
func share(*os.File, os.FileInfo) error { return nil }

// makeDir makes a folder in the models folder.
func makeDir(path string, _ os.FileInfo) error {
	if err := os.Mkdir(path, 0o700); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
