//go:build unix

package gguf

import (
	"os"
	"syscall"
)

// openRegular opens a file without blocking, in case it has become a FIFO since the check.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
