//go:build unix && !linux

package snapshot

// advise does nothing: the system chooses its page sizes.
func advise([]byte) {}
