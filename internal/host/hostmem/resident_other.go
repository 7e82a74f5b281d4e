//go:build !linux

package hostmem

import "github.com/uma-serve/uma-serve/internal/host/mach"

// Resident returns this process's resident set in bytes; 0 = unknown.
func Resident() int64 {
	n, err := mach.Resident()
	if err != nil {
		return 0
	}
	return int64(n)
}
