//go:build unix

package release

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoveSocket: a daemon's files stay while it runs, and other files always.
func TestRemoveSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uma-serve-1")
	socket := filepath.Join(dir, "s")
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	RemoveSocket(socket) // nothing is there
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(socket + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false) // as if it were killed
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	RemoveSocket(socket)
	if !there(socket) || !there(socket+".lock") {
		t.Error("the files of a daemon that runs are removed")
	}
	ln.Close()
	lock.Close()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	RemoveSocket(socket)
	if there(socket) || there(socket+".lock") || !there(other) {
		t.Error("the daemon's files are left, or another one is removed")
	}
	if err := os.Rename(other, socket+".lock"); err != nil {
		t.Fatal(err)
	}
	RemoveSocket(socket)
	if there(dir) {
		t.Error("the empty folder is left")
	}
}
