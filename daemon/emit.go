package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// What the decode loop says to clients. Every frame goes through send, which never blocks: what a connection has
// no room for waits in its request, and the request is paused until the client has read.

// emit sends what a token adds to r's output.
func (l *loop) emit(r *request, c *sampler.Choice, said *core.Said) {
	thought, answer := said.Think, said.Answer
	if r.chat || !r.stream {
		r.thinking = append(r.thinking, thought...)
		r.answer = append(r.answer, answer...)
	}
	switch {
	case r.lines:
		if len(answer) > 0 {
			l.send(r, answer)
		}
	case !r.stream:
	case len(thought) > 0:
		l.sendToken(r, c, wire.Thinking, thought)
		if len(answer) > 0 {
			l.sendToken(r, c, wire.Output, answer)
		}
	case len(answer) > 0 || r.logprobs || said.Event&^meridian.ForceBudget == meridian.None:
		phase := wire.Output
		if len(answer) == 0 && (said.InThink || said.Event.Has(meridian.EnterThink)) {
			phase = wire.Thinking
		}
		l.sendToken(r, c, phase, answer) // a tag shows nothing: only a client that asked for log-probabilities hears of it
	}
	l.emitCalls(r, said.Calls)
}

func (l *loop) sendToken(r *request, c *sampler.Choice, phase wire.Phase, text []byte) {
	ev := wire.Token{ID: r.wireID, Text: text, TokenID: c.Token, Phase: phase}
	if r.logprobs {
		ev.HasLogprob, ev.Logprob = true, c.Logprob
		l.top = l.top[:0]
		for _, t := range c.Top {
			l.top = append(l.top, wire.TokenLogprob{Token: t.Token, Text: l.vocab.Piece(t.Token), Logprob: t.Logprob})
		}
		ev.Top = l.top
	}
	l.frame = wire.AppendToken(l.frame[:0], &ev)
	l.send(r, l.frame)
}

// endRequest finalises r with an eos.
func (l *loop) endRequest(r *request, reason wire.Reason, stopText string, now time.Time) {
	if reason == wire.Stop && len(r.calls) > 0 {
		reason = wire.Calls
	}
	l.m.Finished(string(reason))
	l.m.RequestDone(r.Prompt, r.Generated(), r.timings().Decode, now.Sub(r.arrived))
	if reason == wire.Cancelled {
		l.m.CancelDone(now.Sub(time.Unix(0, r.cancelledAt.Load())))
	}
	thought := l.thoughtDone(r, now)
	if r.lines {
		l.frame = append(l.frame[:0], '\n')
	} else {
		l.frame = wire.AppendEOS(l.frame[:0], &wire.EOS{
			ID: r.wireID, Reason: reason, StopText: stopText, Text: r.answer, Think: r.thinking, ToolCalls: r.calls, Streamed: r.stream,
			Usage: r.usage(), Thought: thought, Timings: r.timings(), Metadata: r.metadata,
		})
	}
	l.remember(r, string(reason), now)
	l.log.Debug("done", "request", r.wireID, "session", r.conn.ID(), "reason", reason, "tokens", r.Generated())
	l.close(r, l.frame)
}

// failRequest finalises r with an error event.
func (l *loop) failRequest(r *request, e wire.Error) {
	l.m.Rejected(string(e.Code))
	e.ID = r.wireID
	if r.lines {
		l.frame = wire.AppendErrorLine(l.frame[:0], &e)
	} else {
		l.frame = wire.AppendError(l.frame[:0], &e)
	}
	l.remember(r, string(e.Code), time.Now())
	l.log.Debug("failed", "request", r.wireID, "session", r.conn.ID(), "code", e.Code, "message", e.Message)
	l.close(r, l.frame)
}

// close sends r's last frame and forgets it, unless the frame has to wait for the client.
func (l *loop) close(r *request, last []byte) {
	l.send(r, last)
	r.finished = true
	l.state.requests.Add(-1)
	if len(r.pending) == 0 {
		l.forget(r)
	}
}

func (l *loop) forget(r *request) {
	delete(l.requests, r.ID)
	l.tracked.Reap(uint64(r.ID))
	l.finalised(r)
}

// send hands a frame to r's connection, or keeps it and pauses r when there is no room.
func (l *loop) send(r *request, frame []byte) {
	if len(r.pending) == 0 {
		switch r.conn.Send(frame) {
		case ipc.Sent:
			l.touch(r.conn)
			return
		case ipc.Closed:
			return // its requests are being cancelled
		}
		r.pausedAt = time.Now()
		l.stalled++
		if !r.paused && !r.finished {
			r.paused = true
			l.handle(core.Input{Kind: core.Pause, Req: r.ID}, r.pausedAt)
		}
	}
	r.pending = append(r.pending, frame...)
}

// touch remembers that c has something to flush at the end of the step.
func (l *loop) touch(c *ipc.Conn) {
	if n := len(l.flush); n > 0 && l.flush[n-1] == c {
		return
	}
	l.flush = append(l.flush, c)
}

func (l *loop) flushAll() {
	for i, c := range l.flush {
		c.Flush()
		l.flush[i] = nil
	}
	l.flush = l.flush[:0]
}

// resume sends what waited for room on c and lets its requests go on.
func (l *loop) resume(c *ipc.Conn) {
	for _, r := range l.requests {
		if r.conn != c || len(r.pending) == 0 {
			continue
		}
		switch c.Send(r.pending) {
		case ipc.Full:
			continue
		case ipc.Sent:
			l.touch(c)
		}
		r.pending = nil
		l.stalled--
		if r.finished {
			l.forget(r)
		} else if r.paused {
			r.paused = false
			l.handle(core.Input{Kind: core.Resume, Req: r.ID}, time.Now())
		}
	}
}

// sweepStalled ends the requests of clients that have read nothing for --stall-timeout.
func (l *loop) sweepStalled(now time.Time) {
	l.sweepTracked(now)
	if l.stalled == 0 || l.cfg.StallTimeout == 0 || now.Sub(l.lastSweep) < time.Second {
		return
	}
	l.lastSweep = now
	for _, r := range l.requests {
		if len(r.pending) > 0 && now.Sub(r.pausedAt) > l.cfg.StallTimeout {
			l.log.Warn("client reads nothing, closing it", "session", r.conn.ID(), "request", r.wireID, "after", l.cfg.StallTimeout)
			r.conn.Close() // its requests are cancelled through ipc.Handler.Closed
		}
	}
}

// progressEvery is how often a request hears how far its prompt is, or its place in the queue. One that did not ask for it
// does not before the first such time has passed, or a step is about to begin that takes as long; one that asked hears of
// each step, from before the first to after the last.
const progressEvery = 200 * time.Millisecond

// reportProgress tells how far r's prompt is.
func (l *loop) reportProgress(r *request, now time.Time) {
	if !r.noisy && now.Sub(r.lastProgress) < progressEvery || len(r.pending) > 0 {
		return
	}
	r.lastProgress = now
	p := wire.Progress{ID: r.wireID, Processed: r.Computed(), Total: r.Prompt, Cached: r.cached, Elapsed: now.Sub(r.arrived)}
	if r.Computed() == 0 {
		p.Position = l.core.Scheduler().Position(r.ID)
	}
	l.frame = wire.AppendProgress(l.frame[:0], &p)
	l.send(r, l.frame)
}

// reportQueued tells those that wait their place in the queue.
func (l *loop) reportQueued(now time.Time) {
	if st := l.core.Scheduler().Stats(); st.QueuedInteractive+st.QueuedBackground == 0 || now.Sub(l.lastQueued) < progressEvery {
		return
	}
	l.lastQueued = now
	for _, r := range l.requests {
		if r.progress && !r.finished && r.Computed() == 0 && now.Sub(r.arrived) > progressEvery {
			l.reportProgress(r, now)
		}
	}
}

// abandon ends whatever still lives when the loop stops.
func (l *loop) abandon(now time.Time) {
	for _, c := range l.mail.close() {
		if c.kind == cmdArrive {
			l.arrive(c.req, now)
		}
	}
	for _, r := range l.requests {
		if !r.finished {
			l.endRequest(r, wire.Shutdown, "", now)
		}
		if len(r.pending) > 0 {
			l.forget(r) // its client reads nothing and nobody will send any more
		}
	}
	l.flushAll()
	// Conversations that were being answered are worth keeping too, as far as they were computed.
	l.carryOut(l.core.Shutdown(l.instant(now)).Ops)
	stopBy := time.Now().Add(l.cfg.ShutdownTimeout)
	if ns := l.stopBy.Load(); ns != 0 {
		stopBy = time.Unix(0, ns)
	}
	l.stores.close(stopBy)
	l.saved.save(l.core.Scheduler().Cost, now, true)
	for s := range l.caps.MaxSequences {
		l.eng.SeqRemove(runtime.Seq(s), 0, -1)
	}
	l.publish()
}
