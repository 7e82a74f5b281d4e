//go:build !darwin

package mach

// Memory returns the machine's virtual memory.
func Memory() (VM, error) { return VM{}, ErrSystem }

// Resident returns the resident set of this process in bytes.
func Resident() (uint64, error) { return 0, ErrSystem }

// SetClass sets the class of the calling thread, which belongs to a goroutine that is locked to it.
func SetClass(Class) error { return ErrSystem }
