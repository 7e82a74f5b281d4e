package daemon

import (
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Who may cancel a request, and through what. Each way ends in Server.cancel, on any goroutine:
//
//	its connection     a cancel frame; the end of an HTTP request, DELETE /v1/stream          Cancel
//	its connection     its end: the client has gone, --stall-timeout has passed without it    Closed
//	                   reading (sweepStalled), or it was displaced (ipc)
//	its owner          on any connection: POST /cancel, cancel of a response or of a chat     CancelNamed
//
// No other user may, not even the server's own. An answer that is kept for its client (daemon/api/resume) is not
// cancelled by the connection's end.
//
// What the server ends by itself is no cancel and has another reason: a refusal (refuse), the shutdown (loop.shutdown),
// a failed step or constraint (failRequest). The loop tells the core core.Cancel for those, too.

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

// CancelNamed ends the requests of owner with this id (named). It reports whether there were any.
func (s web) CancelNamed(owner uint32, id string) bool {
	mine := s.named(owner, id)
	for _, r := range mine {
		s.cancel(r)
	}
	return len(mine) > 0
}

func (s *Server) cancel(r *request) {
	if at, first := r.life.Cancel(); first {
		s.cancelIn(r, at)
	}
}

// abortFrom is the number of prompt tokens in a shared batch from which a cancel aborts the decode: aborting discards
// the other requests' work of this step. A decode of one request is always aborted: on a slow machine a few tokens take
// long.
const abortFrom = 64

// cancelIn does what a cancel of r in a stage does at once. If r leaves the stage meanwhile, its next owner sees the
// cancel as it enters, and there is nothing to withdraw.
func (s *Server) cancelIn(r *request, at stage.Stage) {
	switch at {
	case stage.Reading: // submit sees the cancel
	case stage.Waiting:
		if j, ok := s.room.Withdraw(r.Owner, func(j job) bool { return j.r == r }); ok {
			s.endUnstarted(j)
		}
	case stage.Preparing: // arrive sees it; for texts to embed submit, between two of them
	case stage.Compiling:
		if s.grammars.Withdraw(r.Owner, &r.waiter) {
			s.endUnstarted(r.waiter.Job.(job))
		}
	case stage.Viewing: // the goroutine sees it between two parts of an image; if it waits for its turn, it is woken
		s.viewing.Cancel(func(j job) bool { return j.r == r })
	case stage.Queued, stage.Running:
		l := s.loop.Load()
		l.mail.Put(command{kind: cmdCancel, req: r})
		if r.abortable.Load() && l.model.caps.CanAbort && !l.model.caps.Seals {
			l.eng.Abort()
		}
	case stage.Ending: // its last event is decided
	}
}

// endUnstarted answers a request that was cancelled before it reached the decode loop.
func (s *Server) endUnstarted(j job) {
	j.r.life.Enter(stage.Ending)
	s.room.Leave(j.r.Owner)
	s.metrics.Finished(string(wire.Cancelled))
	j.r.conn.ReplyEvent(wire.EOSEvent(&wire.EOS{
		ID: j.r.wireID, Reason: wire.Cancelled, Streamed: j.r.stream, Metadata: j.r.metadata,
	}))
	s.sessions.Remove(j.r)
}
