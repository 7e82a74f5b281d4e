//go:build unix

package release

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveSocket removes what a daemon that has ended leaves: the lock of its socket, a socket of a daemon that was
// killed, and their folder if it is uma-serve's and empty then. While a daemon holds the lock, all of them stay.
func RemoveSocket(socket string) {
	f, err := os.OpenFile(socket+".lock", os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // there is none, or it is another user's
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	if st, err := os.Lstat(socket); err == nil && st.Mode().Type() == os.ModeSocket {
		_ = os.Remove(socket)
	}
	_ = os.Remove(socket + ".lock")
	if dir := filepath.Dir(socket); strings.HasPrefix(filepath.Base(dir), "uma-serve") {
		_ = os.Remove(dir)
	}
}
