package polite

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process puts every thread of the process into SCHED_BATCH, at its nice value; threads that come later inherit it. It
// needs no privilege. Threads of another class than the ordinary one stay where somebody has put them.
func Process() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := Thread(tid); err != nil && err != unix.ESRCH { // it has ended
			return fmt.Errorf("set the scheduling class of thread %d: %w", tid, err)
		}
	}
	return nil
}

// Thread does so for one thread, 0 being the caller's.
func Thread(tid int) error {
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL {
		return err
	}
	a.Policy, a.Runtime = unix.SCHED_BATCH, 0 // the kernel's own slice
	return unix.SchedSetAttr(tid, a, 0)
}
