// Package stage says where a request is, and who owns it there.
//
// A request is in one stage at a time. The owner of the stage alone reads and writes the request, but for its atomics,
// Owner and the connection. To hand the request over, the owner enters the next stage first.
//
//	stage      owner                                    entered in (daemon/)             next, or Ending
//	Reading    the poller, or an HTTP handler           Server.admit (handler.go)        Waiting
//	Waiting    admission.Waitroom                       admit; compiled, view: again     Preparing
//	Preparing  the intake goroutine                     Server.submit (intake.go)        Compiling, Viewing, Queued
//	Compiling  constrain.Cache                          grammarsOf (constrained.go)      Preparing, Waiting
//	Viewing    the goroutine that encodes its images    Server.view (view.go)            Waiting
//	Queued     the mailbox; then the loop and the core  submit                           Running
//	Running    the decode loop and the core             loop.beginSlices (loop_step.go)
//	Ending     before Queued: who refuses or withdraws  refuse (handler.go)
//	           it; after: the loop, until the client    endUnstarted (cancel.go)
//	           has read its last event                  loop.close (emit.go)
//
// A preempted or paused request stays Running: its sched.State says more. Before Reading, where a front has to load the
// model first, the connection waits with its request unread (front/route.go). The texts of a request for embeddings are
// requests to the core; the request that the client sent has the stage of the whole. daemon/cancel.go says who may
// cancel a request, and what that does in each stage.
package stage

import (
	"sync/atomic"
	"time"
)

// Stage is a place on a request's way.
type Stage uint32

const (
	Reading Stage = iota
	Waiting
	Preparing
	Compiling
	Viewing
	Queued
	Running
	Ending

	cancelledBit = 1 << 8
)

// Life is a request's stage, and whether it was cancelled: one word, so that of a cancel and a hand-over that cross one
// sees the other.
type Life struct {
	word atomic.Uint32
	// cancelledAt is the time of the first cancel, unix ns; 0 = none.
	cancelledAt atomic.Int64
}

// Stage returns the stage.
func (c *Life) Stage() Stage { return Stage(c.word.Load() &^ cancelledBit) }

// Cancelled reports whether the request was cancelled.
func (c *Life) Cancelled() bool { return c.word.Load()&cancelledBit != 0 }

// CancelledAt returns the time of the first cancel. The request was cancelled.
func (c *Life) CancelledAt() time.Time { return time.Unix(0, c.cancelledAt.Load()) }

// Over reports whether the last event is decided.
func (c *Life) Over() bool { return c.Stage() == Ending }

// Enter hands the request over to the owner of the next stage. Owner only. It reports whether the request was cancelled
// before: a later cancel finds it in the next stage.
func (c *Life) Enter(next Stage) (cancelled bool) {
	for {
		old := c.word.Load()
		if c.word.CompareAndSwap(old, old&cancelledBit|uint32(next)) {
			return old&cancelledBit != 0
		}
	}
}

// Cancel marks the request from any goroutine. It returns the stage in which the request is, and whether this is the
// first cancel.
func (c *Life) Cancel() (at Stage, first bool) {
	c.cancelledAt.CompareAndSwap(0, time.Now().UnixNano())
	old := c.word.Or(cancelledBit)
	return Stage(old &^ cancelledBit), old&cancelledBit == 0
}
