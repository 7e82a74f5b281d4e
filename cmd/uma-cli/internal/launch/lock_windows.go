package launch

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockedAt is far behind the end of every backup: Windows keeps others from reading the bytes that are locked.
const lockedAt = 1 << 30

// flock takes a file's lock for as long as the file is open, and fails if another process has it.
func flock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	at := &windows.Overlapped{OffsetHigh: lockedAt}
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, at)
}
