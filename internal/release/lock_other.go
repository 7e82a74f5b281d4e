//go:build !unix

package release

// Lock does nothing: there is no release for this system.
func (p *Place) Lock() (unlock func(), err error) { return func() {}, nil }
