//go:build unix

package cpus

import (
	"time"

	"golang.org/x/sys/unix"
)

// usage returns the CPU time of this process and its involuntary context switches.
func usage() (own time.Duration, switches int64) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return Unknown, Unknown
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(u.Nivcsw)
}

// niced reports whether the process has a lower priority than is usual.
func niced() bool {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return err == nil && priority(n) > 0
}
