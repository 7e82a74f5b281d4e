//go:build unix && !linux

package snapshot

// advise has nothing to say: the system chooses its page sizes.
func advise([]byte) {}
