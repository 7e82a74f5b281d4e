package sysmon

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// Slack sets the timer slack of the monitor: it sleeps that much longer each time.
func Slack(slack time.Duration) error {
	tid, err := thread()
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
}

// thread returns the monitor's thread id. Go does not name the thread; it is the first that the runtime starts
// (runtime.main), so its id is the first after the process id.
func thread() (tid int, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, fmt.Errorf("list threads: %w", err)
	}
	const wrap = 1 << 22 // largest possible pid_max
	behind := func(tid int) int { return (tid - os.Getpid() + wrap) % wrap }
	var tids []int
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil && tid != os.Getpid() {
			tids = append(tids, tid)
		}
	}
	if len(tids) == 0 {
		return 0, fmt.Errorf("the process has one thread")
	}
	return slices.MinFunc(tids, func(a, b int) int { return behind(a) - behind(b) }), nil
}
