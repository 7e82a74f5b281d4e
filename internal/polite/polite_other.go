//go:build !linux

package polite

// Process does nothing where there is no such class.
func Process() error { return nil }

// Thread does nothing where there is no such class.
func Thread(int) error { return nil }
