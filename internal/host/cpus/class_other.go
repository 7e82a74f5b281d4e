//go:build !darwin

package cpus

// Prefer does nothing: only macOS has classes of threads that a process may choose without privileges.
func Prefer() error { return nil }
