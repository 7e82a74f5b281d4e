package snapshot

import (
	"runtime"

	"github.com/uma-serve/uma-serve/internal/host/mach"
)

// Background locks the goroutine to a thread of the class utility: it gets what the engine's threads leave, on Apple
// silicon mostly cores of the slower kind. The thread ends with the goroutine.
func Background() {
	runtime.LockOSThread()
	_ = mach.SetClass(mach.Utility) // on failure the class remains
}
