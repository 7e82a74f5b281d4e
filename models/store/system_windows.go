package store

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// noFollow is nothing here: to create a link takes a right that users do not have.
const noFollow = 0

// flock waits for a file's lock, which is held as long as the file is open.
func flock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &windows.Overlapped{})
}

// owner is one for all files: the access lists of Windows decide alone.
func owner(fs.FileInfo) uint32 { return 0 }

// idOf opens the folder, because its entry in a list has no identity. One that cannot be opened cannot be listed
// either.
func idOf(path string, _ fs.FileInfo) fileID {
	f, err := os.Open(path)
	if err != nil {
		return fileID{}
	}
	defer f.Close()
	var info windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info) != nil {
		return fileID{}
	}
	return fileID{uint64(info.VolumeSerialNumber), uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow)}
}
