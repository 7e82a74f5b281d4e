//go:build !unix

package release

// Lock does nothing: there is no release for this system.
func (p *Place) Lock() (unlock func(), err error) { return func() {}, nil }

// RemoveSocket does nothing, for the same reason.
func RemoveSocket(string) {}
