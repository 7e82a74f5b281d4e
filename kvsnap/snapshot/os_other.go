//go:build !linux && !darwin

package snapshot

// Background does nothing: this system has no priority per thread.
func Background() {}
