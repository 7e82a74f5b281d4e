package daemonproc

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestAllProcessesCount: what a daemon takes of the machine is that of the process that was started and of those that
// it has started; Kill ends them all.
func TestAllProcessesCount(t *testing.T) {
	p := &Proc{Cmd: exec.Command("sh", "-c", "sleep 1000 & sleep 1000 & wait"), done: make(chan struct{})}
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.Cmd.Wait(); close(p.done) }()
	t.Cleanup(func() { p.Kill() })
	var pids []int
	waitfor.True(t, "it has started two", func() bool {
		var err error
		if pids, err = p.Processes(); err != nil {
			t.Skip(err) // a kernel that does not list children
		}
		return len(pids) == 3
	})
	if pids[0] != p.Cmd.Process.Pid || slices.Contains(pids[1:], pids[0]) {
		t.Errorf("%v, not %d first", pids, p.Cmd.Process.Pid)
	}
	own, err := RSSOf(pids[0])
	if err != nil || own == 0 {
		t.Fatalf("%d, %v", own, err)
	}
	waitfor.True(t, "the others have memory", func() bool {
		rss, err := p.RSS()
		if err != nil {
			t.Fatal(err)
		}
		return rss > own
	})
	rss, err := p.RSS()
	if n, err := DescriptorsOf(pids[0]); err != nil || n < 3 {
		t.Errorf("%d descriptors, %v", n, err)
	}
	if pss, perr := p.PSS(); err != nil || perr != nil || pss <= 0 || pss > rss {
		t.Errorf("RSS %d, PSS %d, %v, %v", rss, pss, err, perr)
	}
	if _, err := p.CPU(); err != nil {
		t.Error(err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		waitfor.True(t, "it has ended", func() bool {
			state, err := stateOf(pid)
			return err != nil || state == "Z"
		})
	}
	if _, err := p.Processes(); !ended(err) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

// stateOf is the letter that ps shows for a process; an error: there is none.
func stateOf(pid int) (string, error) {
	if err := syscall.Kill(pid, 0); err != nil {
		return "", err
	}
	f, err := statOf(pid)
	if err != nil {
		return "", err
	}
	return f[0], nil
}
