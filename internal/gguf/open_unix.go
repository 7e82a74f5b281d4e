//go:build unix

package gguf

import (
	"os"
	"syscall"
)

// openRegular opens a file without waiting, should it have become a FIFO since it was looked at.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
