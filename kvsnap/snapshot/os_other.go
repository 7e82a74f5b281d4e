//go:build !linux && !darwin

package snapshot

// background does nothing: this system has no priority per thread.
func background() {}
