package snapshot

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// background ties the goroutine to a thread of its own and lowers that thread's priority: the engine's threads spin at
// barriers inside a decode, and every core taken from one of them holds up all. Nice 19 is a seventieth of their weight
// when cores are short and no limit when they are not. The thread ends with the goroutine.
func background() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) // refused at worst; then it runs as before
}

// advise asks for huge pages: the decode loop writes a part into fresh memory between two ticks, and 6 MiB in pages of
// 4 KiB took 3.0 ms of page faults where huge pages took 0.17 ms (a copy into warm memory: 0.23 ms).
func advise(mem []byte) {
	if len(mem) >= 2<<20 {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // a kernel without them serves small ones
	}
}
