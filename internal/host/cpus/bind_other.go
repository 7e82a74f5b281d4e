//go:build !linux

package cpus

// Bind does nothing: this system cannot bind threads.
func Bind([]int) error { return nil }
