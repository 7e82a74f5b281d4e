package sysmon

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// woke returns the number of times that each thread has slept and been woken.
func woke(t *testing.T) map[int]int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]int{}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
		if m := regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s+(\d+)$`).FindSubmatch(b); err == nil && m != nil {
			out[tid], _ = strconv.Atoi(string(m[1]))
		}
	}
	return out
}

// While a goroutine computes and nothing else happens, the runtime's monitor is the one thread that keeps waking.
func TestTheMonitorIsFound(t *testing.T) {
	tid, err := thread()
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection wakes other threads
	// The one that wakes while this goroutine computes leads clearly at last, however little of the processors this
	// process gets. Waits in between wake other threads: they are not counted.
	wakes := map[int]int{}
	most, second, leader := 0, 0, 0
	waitfor.True(t, "a thread keeps waking", func() bool {
		before := woke(t)
		for range 50_000_000 { // what the monitor looks after
		}
		most, second = 0, 0
		for id, n := range woke(t) {
			wakes[id] += n - before[id]
			switch n := wakes[id]; {
			case n > most:
				most, second, leader = n, most, id
			case n > second:
				second = n
			}
		}
		return most >= 100 && most > 4*second
	})
	if leader != tid {
		t.Errorf("thread %d woke %d times, thread %d is taken for the monitor", leader, most, tid)
	}
	if err := Slack(2 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid))
	if err != nil || string(b) != "2000000\n" {
		t.Errorf("timer slack %q: %v", b, err)
	}
}
