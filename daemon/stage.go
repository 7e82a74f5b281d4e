package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// A request is in one stage at a time. The owner of the stage alone reads and writes the request, but for its atomics,
// Owner and the connection; to hand it over it enters the next stage first.
//
//	stage      owner                                       a cancel there
//	reading    the poller, or an HTTP handler (admit)      is seen by intake
//	waiting    the waitroom                                withdraws it and answers at once
//	preparing  intake (submit)                             is seen by the loop when it takes the answer; for texts to
//	                                                       embed by intake, between two of them
//	compiling  the cache of grammars (package constrain)   withdraws it and answers at once
//	viewing    a goroutine that encodes its images          wakes it, or is seen by it between two parts
//	queued     the mailbox, then the core                  goes to the core with the next step
//	running    the core and the decode loop                likewise; a step mostly of its prompt is aborted
//	ending     the decode loop, until the client has read  finds nothing left to do
//
// Before that, where a front has to load the model first, the connection waits with its request unread
// (front/route.go), and its end forgets both. A request waits again after it was compiling or viewing; a preempted one
// stays running. The texts of an embedding are requests to the core, under the stage of the whole.
//
// A cancel comes from a cancel frame of the request's own connection, from that connection's end, from POST /cancel of
// the same owner (web.go), or from the end of an HTTP request, on any goroutine: Server.Cancel and Closed. A connection
// that does not read (stalled) ends, too. The server itself ends a request when it refuses it on arrival, stops, or
// finds an error in its constraint or its step.
//
// Its targets are slo.Targets, from the slo fields of its wire.Request: prepare.Model.setOptions writes them into its
// sched.Spec, which the core and the scheduler read in place. Package sched/slo says which one holds for a token.
type stage uint32

const (
	stageReading stage = iota
	stageWaiting
	stagePreparing
	stageCompiling
	stageViewing
	stageQueued
	stageRunning
	stageEnding

	cancelledBit = 1 << 8
)

// lifecycle is a request's stage, and whether it was cancelled: one word, so that of a cancel and a hand-over that
// cross one sees the other.
type lifecycle struct {
	word atomic.Uint32
	// cancelledAt is the time of the first cancel, unix ns; 0 = none.
	cancelledAt atomic.Int64
}

func (c *lifecycle) stage() stage    { return stage(c.word.Load() &^ cancelledBit) }
func (c *lifecycle) cancelled() bool { return c.word.Load()&cancelledBit != 0 }

// over reports whether the last event is decided.
func (c *lifecycle) over() bool { return c.stage() == stageEnding }

// enter hands the request over to the owner of the next stage. Owner only. It reports whether the request was cancelled
// before: a later cancel finds it in the next stage.
func (c *lifecycle) enter(next stage) (cancelled bool) {
	for {
		old := c.word.Load()
		if c.word.CompareAndSwap(old, old&cancelledBit|uint32(next)) {
			return old&cancelledBit != 0
		}
	}
}

// cancel marks the request from any goroutine. It returns the stage in which it is, and false if it was cancelled
// before.
func (c *lifecycle) cancel() (at stage, first bool) {
	c.cancelledAt.CompareAndSwap(0, time.Now().UnixNano())
	old := c.word.Or(cancelledBit)
	return stage(old &^ cancelledBit), old&cancelledBit == 0
}

// Cancel ends a request within one step, even during its prefill.
func (s *Server) Cancel(c ipc.Client, id string) {
	if r, ok := s.sessions.Find(c, id); ok {
		s.cancel(r)
	}
}

// Closed cancels the requests of a client that has disconnected.
func (s *Server) Closed(c ipc.Client, cause ipc.Cause) {
	for _, r := range s.sessions.Of(c) {
		s.cancel(r)
	}
	s.Writable(c) // the loop drops the frames that wait for room
	s.log.Debug("session ended", "session", c.ID(), "cause", cause.String())
}

func (s *Server) cancel(r *request) {
	if at, first := r.life.cancel(); first {
		s.cancelIn(r, at)
	}
}

// abortFrom is the number of prompt tokens in a shared batch from which a cancel aborts the decode: aborting discards
// the other requests' work of this step. A decode of one request is always aborted: on a slow machine a few tokens take
// long.
const abortFrom = 64

// cancelIn does what a cancel of r in a stage does at once. If r leaves the stage meanwhile, its next owner sees the
// cancel as it enters, and there is nothing to withdraw.
func (s *Server) cancelIn(r *request, at stage) {
	switch at {
	case stageReading, stagePreparing, stageEnding:
	case stageViewing:
		s.viewing.Cancel(func(j job) bool { return j.r == r })
	case stageWaiting:
		if j, ok := s.room.Withdraw(r.Owner, func(j job) bool { return j.r == r }); ok {
			s.endUnstarted(j)
		}
	case stageCompiling:
		if s.grammars.Withdraw(r.Owner, &r.waiter) {
			s.endUnstarted(r.waiter.Job.(job))
		}
	case stageQueued, stageRunning:
		l := s.loop.Load()
		l.mail.Put(command{kind: cmdCancel, req: r})
		if r.abortable.Load() && l.model.caps.CanAbort && !l.model.caps.Seals {
			l.eng.Abort()
		}
	}
}

// endUnstarted answers a request that was cancelled before it reached the decode loop.
func (s *Server) endUnstarted(j job) {
	j.r.life.enter(stageEnding)
	s.room.Leave(j.r.Owner)
	s.metrics.Finished(string(wire.Cancelled))
	j.r.conn.ReplyEvent(wire.EOSEvent(&wire.EOS{
		ID: j.r.wireID, Reason: wire.Cancelled, Streamed: j.r.stream, Metadata: j.r.metadata,
	}))
	s.sessions.Remove(j.r)
}
