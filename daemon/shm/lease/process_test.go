package lease

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/arbiter"
	"github.com/uma-serve/uma-serve/daemon/shm"
)

// The test program is its own engine process: HELPER SLOT GENERATION STEPS, with the table as descriptor 3 and a page
// of shared memory as descriptor 4.
const helperArg = "lease-helper"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == helperArg {
		if err := helper(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "helper:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// page is the memory that the helpers share beside the table.
type page struct {
	inside     atomic.Int64 // helpers that hold the lease
	violations atomic.Int64
	steps      atomic.Int64
}

// helper takes STEPS leases; with 0 it takes one, says so, and holds it until it is killed.
func helper(args []string) error {
	var n [3]int
	for i, a := range args {
		var err error
		if n[i], err = strconv.Atoi(a); err != nil {
			return err
		}
	}
	t, err := Open(os.NewFile(3, "leases"))
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(4, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	p := (*page)(unsafe.Pointer(&mem[0]))
	l := t.Lease(Seat{Slot: n[0], Gen: uint32(n[1])}, 1)
	l.hold, l.wait = time.Hour, time.Hour // on a busy machine a process may not run for seconds
	steps := n[2]
	for i := 0; i < max(steps, 1); i++ {
		l.Say(arbiter.Claim{Due: t.Now() + arbiter.Instant(time.Duration(n[0]+1)*10*time.Millisecond),
			Target: 100 * time.Millisecond, Step: time.Microsecond})
		if w := l.Acquire(); !w.OK {
			return fmt.Errorf("step %d: no lease: %+v", i, w)
		}
		if p.inside.Add(1) != 1 {
			p.violations.Add(1)
		}
		if steps == 0 {
			fmt.Println("held")
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		p.steps.Add(1)
		p.inside.Add(-1)
		l.Release()
	}
	return nil
}

// process starts a helper.
func process(t *testing.T, f *Table, shared *os.File, steps int) (*exec.Cmd, Seat, *bufio.Reader) {
	t.Helper()
	seat, err := f.Enter("helper")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], helperArg, strconv.Itoa(seat.Slot), strconv.Itoa(int(seat.Gen)),
		strconv.Itoa(steps))
	cmd.ExtraFiles, cmd.Stderr = []*os.File{f.File(), shared}, os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, seat, bufio.NewReader(out)
}

// sharedPage is a page of memory that helpers share.
func sharedPage(t *testing.T) (*os.File, *page) {
	t.Helper()
	f, err := shm.New("uma-test-page", 4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return f, (*page)(unsafe.Pointer(&mem[0]))
}

// TestProcessesTakeTurns: of several processes one at a time has the lease, and all of them come to their steps.
func TestProcessesTakeTurns(t *testing.T) {
	f := front(t)
	file, p := sharedPage(t)
	const processes, steps = 4, 2000
	var running []*exec.Cmd
	for range processes {
		cmd, _, _ := process(t, f, file, steps)
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if p.steps.Load() != processes*steps || p.violations.Load() != 0 {
		t.Errorf("%d steps, %d of them beside another", p.steps.Load(), p.violations.Load())
	}
}

// TestHolderIsKilled: a process that is killed within its step loses the lease as soon as the front says so, to a
// process that waits and to one that comes later.
func TestHolderIsKilled(t *testing.T) {
	for _, waits := range []bool{true, false} {
		f := front(t)
		file, _ := sharedPage(t)
		cmd, seat, out := process(t, f, file, 0)
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		l := enter(t, f, "next")
		l.hold = time.Hour // no time limit helps it
		got := make(chan Wait, 1)
		if waits {
			go func() { got <- l.Acquire() }()
			waiting(t, f, 1)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if v := f.Views(); v[0].Holder != "helper" {
			t.Errorf("waits %v: before Leave: %+v", waits, v)
		}
		f.Leave(seat)
		if !waits {
			got <- l.Acquire()
		}
		if w := <-got; !w.OK {
			t.Errorf("waits %v: %+v", waits, w)
		}
		l.Release()
		if v := f.Views(); v[0].Holder != "" {
			t.Errorf("waits %v: %+v", waits, v)
		}
	}
}

// TestWaitingProcessIsKilled: the lease goes past a process that was killed while it waited, and one that was granted
// to it is taken back.
func TestWaitingProcessIsKilled(t *testing.T) {
	f := front(t)
	file, _ := sharedPage(t)
	l := enter(t, f, "first")
	l.Acquire()
	cmd, seat, _ := process(t, f, file, 0)
	waiting(t, f, 1)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	l.Release() // to the process that has ended
	if v := f.Views(); v[0].Holder != "helper" {
		t.Fatalf("%+v", v)
	}
	f.Leave(seat)
	if w := l.Acquire(); !w.OK {
		t.Errorf("%+v", w)
	}
	l.Release()
}
