package daemon

import (
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// held is a decode loop that a test has stopped where it takes what others ask of it: what it decides next depends on
// what has reached its mailbox, and not on how fast clients, poller and intake are. All else of the daemon goes on.
type held struct {
	t    *testing.T
	loop *loop // the test's until release
	free func()
}

// hold stops the loop between two steps. The end of the test releases it.
func (r *running) hold() *held {
	r.t.Helper()
	h := &held{t: r.t, loop: r.loop.Load()}
	waitfor.Recv(r.t, "the loop stops", h.stop())
	r.t.Cleanup(func() { h.release() })
	return h
}

// stop orders a stop; stopped is closed where the loop stands.
func (h *held) stop() (stopped <-chan struct{}) {
	h.t.Helper()
	at, free := make(chan struct{}), make(chan struct{})
	if !h.loop.mail.Put(command{kind: cmdTask, task: taskFunc(func(*loop) { close(at); <-free })}) {
		h.t.Fatal("the loop has ended")
	}
	h.free = sync.OnceFunc(func() { close(free) })
	return at
}

// step lets the loop make one step of what it knows, and then take what lies in its mailbox.
func (h *held) step() {
	h.t.Helper()
	free := h.free
	stopped := h.stop()
	free()
	waitfor.Recv(h.t, "the loop stops after a step", stopped)
}

// steps makes steps until ok.
func (h *held) steps(what string, ok func() bool) {
	h.t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		h.step()
	}
	h.t.Fatalf("not within 1000 steps: %s", what)
}

func (h *held) release() { h.free() }

// mailed waits until n commands of a kind lie in the mailbox.
func (h *held) mailed(what string, kind commandKind, n int) {
	h.t.Helper()
	waitfor.True(h.t, what, func() bool {
		got := 0
		h.loop.mail.Each(func(c *command) {
			if c.kind == kind {
				got++
			}
		})
		return got >= n
	})
}

// arrived waits until n requests have come through intake.
func (h *held) arrived(n int) {
	h.t.Helper()
	h.mailed("requests have come through intake", cmdArrive, n)
}
