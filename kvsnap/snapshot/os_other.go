//go:build !linux

package snapshot

// background does nothing: only Linux has a priority per thread.
func background() {}
