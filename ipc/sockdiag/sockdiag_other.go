//go:build !linux

package sockdiag

import "net/netip"

// Finder does not exist on this system.
type Finder struct{}

// New fails with ErrUnsupported.
func New() (*Finder, error) { return nil, ErrUnsupported }

// Close does nothing.
func (f *Finder) Close() error { return nil }

// UID fails with ErrUnsupported.
func (f *Finder) UID(int, netip.AddrPort, netip.AddrPort) (uint32, error) { return 0, ErrUnsupported }

// SameNamespace is true: there is one network.
func (f *Finder) SameNamespace(int) bool { return true }
