//go:build !windows

// Package fifo makes named pipes for tests.
package fifo

import (
	"syscall"
	"testing"
)

// Make makes a named pipe that the user alone may open. Where there are none in the file system, the test is skipped.
func Make(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
