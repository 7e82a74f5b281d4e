//go:build linux

package polite

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProcess(t *testing.T) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if before.Policy != unix.SCHED_NORMAL {
		t.Skipf("the test runs in class %d", before.Policy)
	}
	if err := Process(); err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		a, err := unix.SchedGetAttr(tid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil || a.Policy != unix.SCHED_BATCH || a.Nice != before.Nice {
			t.Errorf("thread %d: class %d, nice %d: %v", tid, a.Policy, a.Nice, err)
		}
	}
}
