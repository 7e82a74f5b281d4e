package core

import (
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Said is the output that one token adds to its request. Think and Answer are whole characters, valid until the next
// call.
type Said struct {
	Think, Answer []byte
	Event         meridian.Event
	Reason        meridian.Reason // with ForceBudget
	InThink       bool            // the token was drawn while the request thought
	Visible       bool            // the token is part of the visible answer
	Released      []byte          // its text of the answer, before stop strings and incomplete characters are held back
	End           EndKind         // NotEnded, Stopped or Length
	StopText      string          // the stop string that ended it
	// Calls are the calls of tools in the answer, valid until the next call; their text is not in Answer. That of a
	// malformed one is.
	Calls    []toolcall.Event
	Repeated bool // a call that repeats an earlier one ended the answer; it is not in Calls
}

// Token takes the token that follows r's row, sampled or forced. piece is its text; eog says that it ends a generation.
// The text is appended to think and answer and returned in Said.
func (c *Core) Token(now Instant, r *Request, tok Token, piece []byte, eog bool, think, answer []byte) Said {
	s := Said{InThink: r.Control.Phase() == meridian.ThinkDecode, Calls: c.callEvents[:0]}
	c.callText = c.callText[:0]
	if r.Tokens, r.lastAt = append(r.Tokens, tok), now; r.firstAt == 0 {
		r.firstAt = now
	}
	c.compare(r)
	m := r.Control.OnToken(tok, piece, eog, int64(now))
	s.Event, s.Reason, s.Visible, s.Released = m.Event, m.Reason, len(m.Answer) > 0, m.Answer
	if m.Event != meridian.None {
		c.phaseChanged(r, &m)
	}
	if m.Other {
		s.Calls = append(s.Calls, toolcall.Event{Kind: toolcall.Malformed, Index: -1, Reason: toolcall.OwnTool})
		c.callEvents = s.Calls
	}
	stopped := false
	s.Think, s.Answer, stopped = c.text(r, &m, &s, think, answer)
	switch {
	case stopped && r.Lines.Ended():
		s.End = Length
	case stopped:
		s.End, s.StopText = Stopped, r.Text.Stopped()
	case eog && m.Event.Has(meridian.Completed): // a message's end within a turn is not the turn's
		s.End = Stopped
	case r.Last:
		s.End = Stopped
	case r.Generated() >= r.MaxTokens:
		s.End = Length
	case r.More:
		c.cfg.Trace.token(now, r, tok, &s, 0)
		return s
	default:
		probe := c.wantProbe(r)
		e := sched.EvToken{Req: r.ID, Thinking: r.Control.Phase() == meridian.ThinkDecode,
			Probe: probe}
		c.keepGuesses(r)
		e.Forced = len(r.Tokens) - 1 - r.has()
		e.Cut = c.shorten(r)
		// A probe or a cut ends the rows of this step, also behind a guess that came true: the next token is then not
		// drawn from the row behind it.
		if probe > 0 || e.Cut > 0 || !c.goesOn(r) {
			e.Again = c.again(r)
			if from := r.has() - e.Again; probe > 0 && from < len(r.Tokens)-1 {
				e.Probe = r.probeFrom(from)
			}
			c.offer(r, &e)
			c.events.Token(e)
		}
		c.cfg.Trace.token(now, r, tok, &s, probe)
		return s
	}
	finish := reason.Stop
	if s.End == Length {
		finish = reason.Length
	}
	c.keepGuesses(r)
	c.events.Finish(sched.EvFinish{Req: r.ID, Reason: finish, Accepted: r.guess.kept})
	c.cfg.Trace.token(now, r, tok, &s, 0)
	c.forget(r)
	return s
}

// NoToken ends r at its row without a token: the row cannot be sampled, or the request only wants its prompt computed.
func (c *Core) NoToken(r *Request, why sched.Reason) {
	c.cfg.Trace.numbers("no_token", int64(why), int64(r.ID))
	c.events.Finish(sched.EvFinish{Req: r.ID, Reason: why})
	c.forget(r)
}

// text splits a token's text into thinking and visible answer.
func (c *Core) text(r *Request, m *meridian.Step, s *Said, think, answer []byte) (_, _ []byte, stopped bool) {
	if len(m.Think) > 0 {
		think = c.thought(r, m.Think, think)
	}
	if len(m.Answer) > 0 {
		answer, stopped = c.answer(r, m.Answer, m.Plain, s, answer)
	}
	if m.Event.Has(meridian.ExitThink) {
		if r.Thinks != nil {
			think = append(think, r.Thought.Pass(r.Thinks.Close())...)
		}
		think = append(think, r.Thought.Flush()...)
	}
	if !stopped && (m.Event.Has(meridian.Completed) || r.Last || r.Generated() >= r.MaxTokens) {
		// Text that was withheld as the beginning of a tag, a stop string or a character will not be continued.
		t, rest := r.Control.Flush()
		think = c.thought(r, t, think)
		if r.Thinks != nil {
			t, calls := r.Thinks.Finish(!m.Event.Has(meridian.Completed))
			think = append(think, r.Thought.Pass(t)...)
			answer, stopped = c.called(r, calls, s, answer)
		}
		think = append(think, r.Thought.Flush()...)
		if stopped { // after the first call
			return think, answer, true
		}
		answer, stopped = c.answer(r, rest, m.Plain, s, answer)
		if !stopped && r.Calls != nil {
			if m.Event.Has(meridian.Completed) || r.Last {
				answer, stopped = c.called(r, r.Calls.Finish(), s, answer)
			} else {
				answer, stopped = c.called(r, r.Calls.Cut(), s, answer)
			}
		}
		if !stopped {
			answer = append(answer, r.Text.Flush()...)
		}
	}
	return think, answer, stopped
}

// thought adds text of a thought, except what may be calls, to its visible part.
func (c *Core) thought(r *Request, text, think []byte) []byte {
	if r.Thinks != nil {
		text = r.Thinks.Push(text)
	}
	return append(think, r.Thought.Pass(text)...)
}

// answer adds text of the answer to its visible part, and the calls in it to s. plain: it holds none.
func (c *Core) answer(r *Request, text []byte, plain bool, s *Said, answer []byte) (_ []byte, stopped bool) {
	switch {
	case r.Calls == nil:
		text, stopped = r.show(text)
		return append(answer, text...), stopped
	case plain:
		return c.called(r, r.Calls.Quote(text), s, answer)
	}
	return c.called(r, r.Calls.Push(text), s, answer)
}

// show returns what may be shown of the answer's next text, and whether the answer ends there.
func (r *Request) show(piece []byte) (text []byte, stopped bool) {
	text, stopped = r.Text.Push(piece)
	if n, end := r.Lines.Push(text, r.lastAt.Sub(r.firstAt)); end {
		return text[:n], true
	}
	return text, stopped
}

// called takes the events of the parser of calls. Stop strings apply to text, not to calls.
func (c *Core) called(r *Request, events []toolcall.Event, s *Said, answer []byte) (_ []byte, stopped bool) {
	if r.Distinct != nil {
		events, s.Repeated = r.Distinct.Pass(events)
	}
	for i := range events {
		e := events[i]
		if e.Kind != toolcall.Text {
			from := len(c.callText) // the parser may be asked again for the same token
			c.callText = append(c.callText, e.Text...)
			e.Text = c.callText[from:len(c.callText):len(c.callText)]
			s.Calls = append(s.Calls, e)
			c.callEvents = s.Calls
		}
		switch e.Kind {
		case toolcall.Text, toolcall.Malformed:
			if e.Kind == toolcall.Malformed && e.Index >= 0 {
				break // its parts were given: they are not repeated as text
			}
			var text []byte
			text, stopped = r.show(e.Text)
			if answer = append(answer, text...); stopped {
				return answer, true
			}
		case toolcall.End:
			if r.OneCall {
				return append(answer, r.Text.Flush()...), true
			}
		}
	}
	if s.Repeated {
		return append(answer, r.Text.Flush()...), true
	}
	return answer, false
}

// phaseChanged records the span of the thought, and decides about its cells when it ends.
func (c *Core) phaseChanged(r *Request, m *meridian.Step) {
	if m.Event.Has(meridian.EnterThink) && r.thinkFrom == 0 {
		r.thinkFrom = len(r.Tokens)
	}
	if m.Event.Has(meridian.ExitThink) {
		r.thinkTo = len(r.Tokens)
		c.tree.EndThought(r.seq)
		c.thoughtEnded(r)
	}
}

// wantProbe returns the number of rows of the probe that r requests beside its next row, 0 = none.
func (c *Core) wantProbe(r *Request) int {
	tokens, due := r.Control.ProbeDue()
	if !due {
		return 0
	}
	r.forkTokens = tokens
	return len(tokens)
}

// probeFrom puts the tokens from index from on in front of the probe, whose first one is the newest token, and returns
// its number of rows: a fork begins where its sequence ends.
func (r *Request) probeFrom(from int) int {
	r.forkBehind = append(append(r.forkBehind[:0], r.Tokens[from:len(r.Tokens)-1]...), r.forkTokens...)
	r.forkTokens = r.forkBehind
	return len(r.forkTokens)
}

// addForks gives each SliceProbe of the batch a scratch sequence that shares the cells before it. The scheduler plans
// at most MaxForks; after a fork that it skips, the next boundary requests one again.
func (c *Core) addForks() {
	c.forks = 0
	for i := range c.plan.Batch {
		if s := &c.plan.Batch[i]; s.Kind == sched.SliceProbe {
			r := c.requests[s.Req]
			c.forks++
			r.fork = c.tree.ScratchSeq(c.forks) // 0 is for snapshots
			c.step.Ops = append(c.step.Ops, Op{Kind: SeqCopy, Src: r.seq, Dst: r.fork, To: s.Start})
		}
	}
}

// Probed takes the entropy, in nats, of a fork's last row; ok is false when there is none.
func (c *Core) Probed(r *Request, entropy float64, ok bool) {
	if ok {
		r.Control.OnProbe(entropy)
	} else {
		r.Control.ProbeFailed()
	}
}
