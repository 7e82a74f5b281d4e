package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// The decode loop's output. Every event goes through send, which never blocks: when a client has no room for it, the
// event waits in its request, and the request is paused until the client has read.

// emit sends the text and the calls that a token adds to r's output.
func (l *loop) emit(r *request, c *sampler.Choice, said *core.Said) {
	thought, answer := said.Think, said.Answer
	if r.chat || !r.stream {
		r.said.Thinking = append(r.said.Thinking, thought...)
		r.said.Text = append(r.said.Text, answer...)
	}
	switch {
	case r.lines:
		if len(answer) > 0 {
			l.sendTokenEvent(r, &wire.Token{Text: answer})
		}
	case !r.stream:
	case len(thought) > 0:
		if len(answer) > 0 { // one token, two events: the second one has its id and log-probability
			l.sendTokenEvent(r, &wire.Token{Text: thought, TokenID: runtime.NoToken, Phase: wire.Thinking})
			l.sendToken(r, c, wire.Output, answer)
		} else {
			l.sendToken(r, c, wire.Thinking, thought)
		}
	case len(answer) > 0 || r.logprobs || r.every || said.Event&^meridian.ForceBudget == meridian.None:
		phase := wire.Output
		if len(answer) == 0 && (said.InThink || said.Event.Has(meridian.EnterThink)) {
			phase = wire.Thinking
		}
		l.sendToken(r, c, phase, answer) // a thinking tag has no text: send it only where each token is wanted
	}
	l.emitCalls(r, said.Calls)
	if said.Repeated {
		l.noteRepeated(r)
	}
}

func (l *loop) sendToken(r *request, c *sampler.Choice, phase wire.Phase, text []byte) {
	ev := wire.Token{Text: text, TokenID: c.Token, Phase: phase}
	if r.logprobs {
		ev.HasLogprob, ev.Logprob, ev.Top = true, c.Logprob, l.withTexts(c.Top)
	}
	l.sendTokenEvent(r, &ev)
}

// withTexts returns probable tokens as an event has them, valid until the next call.
func (l *loop) withTexts(of []sampler.TokenLogprob) []wire.TokenLogprob {
	top := l.reused.top[:0]
	for _, t := range of {
		top = append(top, wire.TokenLogprob{Token: t.Token, Text: l.model.vocab.Piece(t.Token), Logprob: t.Logprob})
	}
	l.reused.top = top
	return top
}

// sendTokenEvent sends t as r's.
func (l *loop) sendTokenEvent(r *request, t *wire.Token) {
	l.reused.event.Kind, l.reused.event.ID, l.reused.event.Token = wire.EventToken, r.wireID, *t
	l.reused.event.Token.ID = r.wireID
	l.send(r, &l.reused.event)
}

// endRequest finalises r with an eos.
func (l *loop) endRequest(r *request, reason wire.Reason, stopText string, now time.Time) {
	l.settleFor(r)
	switch {
	case reason == wire.Stop && r.said.Cut:
		reason = wire.Length // the model ended within a call: the answer is not complete
	case reason == wire.Stop && len(r.said.Calls) > 0:
		reason = wire.Calls
	}
	l.m.Finished(string(reason))
	if r.embed == nil {
		l.m.RequestDone(r.Prompt, r.Generated(), r.at.Timings(r.arrived).Decode, now.Sub(r.arrived))
	}
	if reason == wire.Cancelled {
		l.m.CancelDone(now.Sub(r.life.CancelledAt()))
	}
	thought := l.thinkSummary(r, now)
	end := wire.EOSEvent(&wire.EOS{
		ID: r.wireID, Reason: reason, StopText: stopText, Text: r.said.Text, Think: r.said.Thinking,
		ToolCalls: r.said.Calls, Streamed: r.stream,
		Usage: r.usage(), Thought: thought, Timings: r.at.Timings(r.arrived), Metadata: r.metadata,
	})
	l.remember(r, string(reason), now)
	l.trace(r, string(reason), "", now)
	l.logRequest(r, "done", "reason", reason, "tokens", r.Generated())
	l.close(r, end)
}

// failRequest finalises r with an error event.
func (l *loop) failRequest(r *request, e wire.Error) {
	l.settleFor(r)
	l.m.Rejected(string(e.Code))
	now := time.Now()
	if r.Phases != nil {
		l.thinkSummary(r, now)
	}
	e.ID = r.wireID
	l.remember(r, string(e.Code), now)
	l.trace(r, string(e.Code), e.Message, now)
	l.logRequest(r, "failed", "code", e.Code, "message", e.Message)
	l.close(r, wire.ErrorEvent(&e))
}

// close sends r's last event and forgets r, unless the event must wait for the client.
func (l *loop) close(r *request, last *wire.Event) {
	l.send(r, last)
	r.constraint.Close()
	r.life.Enter(stage.Ending)
	l.state.requests.Add(-1)
	if r.pending.Len() == 0 {
		l.forget(r)
	}
}

func (l *loop) forget(r *request) {
	if r.input != nil {
		l.forgetInput(r)
		return
	}
	delete(l.requests, r.ID)
	l.model.draft.Drop(&r.states)
	l.journal.tracked.Reap(uint64(r.ID))
	l.finalised(r)
}

// send passes an event to r's client, or keeps it and pauses r when the client has no room for it.
func (l *loop) send(r *request, ev *wire.Event) {
	l.settleFor(r)
	if r.pending.Len() == 0 {
		switch r.conn.SendEvent(ev) {
		case ipc.Sent:
			l.markFlush(r.conn)
			return
		case ipc.Closed:
			return // its requests are being cancelled
		}
		r.pausedAt = time.Now()
		l.stalled++
		if r.input != nil {
			r.input.of.embed.blocked++
		}
		if !r.paused && !r.life.Over() {
			r.paused = true
			l.tell(core.Input{Kind: core.Pause, Req: r.ID}, r.pausedAt)
		}
	}
	r.pending.Add(ev)
}

// markFlush marks c to be flushed at the end of the step.
func (l *loop) markFlush(c ipc.Client) {
	if n := len(l.reused.flush); n > 0 && l.reused.flush[n-1] == c {
		return
	}
	l.reused.flush = append(l.reused.flush, c)
}

func (l *loop) flushAll() {
	for i, c := range l.reused.flush {
		c.Flush()
		l.reused.flush[i] = nil
	}
	l.reused.flush = l.reused.flush[:0]
}

// resume sends the events that waited for room on c and resumes its requests.
func (l *loop) resume(c ipc.Client) {
	for _, r := range l.requests {
		if r.conn != c || r.pending.Len() == 0 || !l.sendPending(r) {
			continue
		}
		l.stalled--
		if r.input != nil {
			r.input.of.embed.blocked--
		}
		if r.life.Over() {
			l.forget(r)
		} else if r.paused {
			r.paused = false
			l.handle(core.Input{Kind: core.Resume, Req: r.ID}, time.Now())
		}
	}
}

// sendPending sends the events of r that waited for room. It reports whether none is left.
func (l *loop) sendPending(r *request) bool {
	for ev := r.pending.First(); ev != nil; ev = r.pending.First() {
		switch r.conn.SendEvent(ev) {
		case ipc.Full:
			return false
		case ipc.Sent:
			l.markFlush(r.conn)
		}
		r.pending.Next()
	}
	r.pending = wire.Events{}
	return true
}

// sweepStalled closes the connections of clients that have read nothing for Config.StallTimeout.
func (l *loop) sweepStalled(now time.Time) {
	l.sweepTracked(now)
	if l.stalled == 0 || l.cfg.StallTimeout == 0 || now.Sub(l.chores.lastSweep) < time.Second {
		return
	}
	l.chores.lastSweep = now
	for _, r := range l.requests {
		if r.pending.Len() > 0 && now.Sub(r.pausedAt) > l.cfg.StallTimeout {
			l.log.Warn("the client reads nothing: closing its connection", "session", r.conn.ID(), "request", r.wireID,
				"after", l.cfg.StallTimeout)
			r.conn.Close() // ipc.Handler.Closed cancels its requests
		}
	}
}

// progressEvery is the interval of progress events (prompt tokens computed, or the place in the queue). A request that
// did not ask for progress gets the first event after one interval, or before a step that takes as long; one that asked
// gets an event each step, from before the first to after the last.
const progressEvery = 200 * time.Millisecond

// reportProgress sends how many of r's prompt tokens are computed.
func (l *loop) reportProgress(r *request, now time.Time) {
	if !r.noisy && now.Sub(r.lastProgress) < progressEvery || r.pending.Len() > 0 {
		return
	}
	r.lastProgress = now
	p := wire.Progress{ID: r.wireID, Processed: r.Computed(), Total: r.Prompt, Cached: r.cached,
		Elapsed: now.Sub(r.arrived)}
	if r.Computed() == 0 {
		p.Position = l.core.Scheduler().Position(r.ID)
	}
	l.reused.event.Kind, l.reused.event.ID, l.reused.event.Progress = wire.EventProgress, r.wireID, p
	l.send(r, &l.reused.event)
}

// reportQueued sends waiting requests their place in the queue.
func (l *loop) reportQueued(now time.Time) {
	if st := l.core.Scheduler().Stats(); st.QueuedInteractive+st.QueuedBackground == 0 ||
		now.Sub(l.chores.lastQueued) < progressEvery {
		return
	}
	l.chores.lastQueued = now
	for _, r := range l.requests {
		if r.progress && !r.life.Over() && r.Computed() == 0 && now.Sub(r.arrived) > progressEvery {
			l.reportProgress(r, now)
		}
	}
}

// shutdown ends the live requests when the loop stops, and stores their cells.
func (l *loop) shutdown(now time.Time) {
	for _, c := range l.mail.Close() {
		switch c.kind {
		case cmdArrive:
			l.arrive(c.req, now)
		case cmdAwaited:
			c.task.run(l, now)
		}
	}
	l.abandonInputs()
	for _, r := range l.requests {
		if !r.life.Over() {
			l.endRequest(r, wire.Shutdown, "", now)
		}
		if r.pending.Len() > 0 {
			l.forget(r) // its client does not read, and the loop sends no more
		}
	}
	l.flushAll()
	// Unfinished conversations are stored too, as far as they were computed.
	l.carryOut(l.core.Shutdown(l.instant(now)).Ops)
	stopBy := time.Now().Add(l.cfg.ShutdownTimeout)
	if ns := l.end.stopBy.Load(); ns != 0 {
		stopBy = time.Unix(0, ns)
	}
	l.stores.Close(stopBy)
	opening.CloseTelemetry(l.journal.tel, stopBy, l.log)
	l.saved.Save(l.core.Scheduler().Cost, now, true)
	for s := range l.model.caps.MaxSequences {
		l.eng.SeqRemove(runtime.Seq(s), 0, -1)
	}
	l.publish()
}
