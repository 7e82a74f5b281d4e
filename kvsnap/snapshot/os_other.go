//go:build !linux

package snapshot

// background would lower this goroutine's priority; only Linux has one per thread.
func background() {}
