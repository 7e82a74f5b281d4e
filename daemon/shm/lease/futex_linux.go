package lease

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// linux/futex.h. Not the private operations: the word is in memory that processes share.
const (
	futexOpWait = 0
	futexOpWake = 1
)

// futexWait sleeps until the word has changed from old and the engine was woken, or d has passed.
func futexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(max(d, time.Microsecond)))
	// Whatever the reason of its return, the caller looks at the table again.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// futexWake wakes the process that sleeps on the word.
func futexWake(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1, 0, 0, 0)
}
