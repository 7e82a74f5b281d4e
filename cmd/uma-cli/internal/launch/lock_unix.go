//go:build unix

package launch

import (
	"os"
	"syscall"
)

// flock takes a file's lock for as long as the file is open, and fails if another process has it.
func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
