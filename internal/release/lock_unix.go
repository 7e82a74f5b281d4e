//go:build unix

package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Lock keeps a second installer out until unlock is called.
func (p *Place) Lock() (unlock func(), err error) {
	var f *os.File
	if err = os.MkdirAll(p.Root(), 0o755); err == nil {
		f, err = os.OpenFile(filepath.Join(p.Root(), "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("you may not change the installation in %s; run this as its owner, such as with sudo: "+
			"%w", p.Prefix, err)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another installation or upgrade of %s is running: %w", p.Prefix, err)
	}
	return func() { f.Close() }, nil
}
