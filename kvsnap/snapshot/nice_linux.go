package snapshot

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// background ties the goroutine to a thread of its own and lowers that thread's priority: the engine's threads spin at
// barriers inside a decode, and every core taken from one of them holds up all. Nice 10 is a tenth of their weight
// when cores are short and no limit when they are not. The thread ends with the goroutine.
func background() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 10) // refused at worst; then it runs as before
}
