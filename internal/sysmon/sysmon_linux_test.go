package sysmon

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// woke is how often each thread has slept and been woken.
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
	for try := range 5 { // a garbage collection may wake others
		before := woke(t)
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		}
		after := woke(t)
		mine, others := after[tid]-before[tid], 0
		for other, n := range after {
			if other != tid {
				others = max(others, n-before[other])
			}
		}
		if mine >= 5 && mine > others {
			break
		}
		if try == 4 {
			t.Errorf("thread %d woke %d times in 200 ms, another one %d times", tid, mine, others)
		}
	}
	if err := Slack(2 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid))
	if err != nil || string(b) != "2000000\n" {
		t.Errorf("timer slack %q: %v", b, err)
	}
}
