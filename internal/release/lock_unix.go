//go:build unix

package release

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Lock keeps a second installer out until unlock is called.
func (p *Place) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(p.Root(), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(p.Root(), "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another installation or upgrade of %s is running: %w", p.Prefix, err)
	}
	return func() { f.Close() }, nil
}
