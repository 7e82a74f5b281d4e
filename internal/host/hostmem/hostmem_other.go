//go:build !linux && !darwin && !freebsd

package hostmem

// Read returns zeros: this system is not supported.
func Read() Memory { return Memory{} }
