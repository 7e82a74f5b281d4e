//go:build !linux

package hugefile

import "errors"

// Read does nothing: only Linux is known to keep files in huge pages.
func Read(string, uint64, Options) (Pages, error) { return Pages{}, errors.ErrUnsupported }
