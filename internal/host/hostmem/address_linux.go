package hostmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AddressSpace returns the limit of this process's address space (RLIMIT_AS) and the part in use, in bytes. limited is
// false when there is no limit.
func AddressSpace() (limit, used uint64, limited bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &l); err != nil || l.Cur == unix.RLIM_INFINITY {
		return 0, 0, false
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, false
	}
	var pages uint64
	if n, _ := fmt.Sscan(string(text), &pages); n != 1 {
		return 0, 0, false
	}
	return l.Cur, pages * uint64(os.Getpagesize()), true
}
