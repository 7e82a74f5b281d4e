package cpus

import "github.com/uma-serve/uma-serve/internal/host/mach"

// Prefer asks the system to run the calling thread before threads that no person waits for, and on the fast kind of
// core: macOS's class user interactive. It belongs to a goroutine that is locked to its thread.
func Prefer() error { return mach.SetClass(mach.Interactive) }
