package daemon

import (
	"errors"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/telemetry"
)

// step decodes a plan's batch, reports the outcome to the core and samples the rows.
func (l *loop) step(plan *sched.Plan, now time.Time) {
	l.model.draft.Guess(l.core)
	l.core.FillBatch(l.eng.Batch())
	l.m.AdapterPasses.Add(uint64(l.model.mixes.Passes(l.eng.Batch())))
	l.noteTurn(plan, now)
	beside := l.beside()
	if !beside {
		l.settle()
	}
	lone := l.beginSlices(plan, now)
	if !beside {
		l.flushAll()
	}
	l.model.draft.WantStates(l.core)
	outcome, took, done := l.decode(plan, lone, beside)
	if outcome == sched.StepOK {
		l.keepStates(plan)
	}
	l.result.Outcome, l.result.Took = outcome, took
	l.core.Done(l.instant(done), &l.result)
	l.toldLate(done)
	l.endSlices(plan, outcome, done)
	l.reportQueued(done)
	if l.overlap.sub == nil {
		l.flushAll()
	}
	if outcome == sched.StepOK {
		l.endTurn(done)
	} else {
		l.endTurn(done.Add(-took))
	}
	// After the write: the client wakes and reads during the bookkeeping and not during the next decode.
	l.account(plan, outcome, took, done)
	if l.overlap.sub == nil {
		l.reportStep()
	}
	if outcome == sched.StepLate {
		took = max(took, plan.Bound.Limit) // it would have taken longer
	}
	l.cpu.Stepped(plan.Predicted, took, done)
}

// reportStep reports the newest step to metrics, live views and KV events, if that has not been done.
func (l *loop) reportStep() {
	if !l.reused.reportOf.due {
		return
	}
	done := l.reused.reportOf.done
	l.reused.reportOf.due = false
	l.reused.tick.Publish(l.m, l.reused.reportOf.step)
	l.scanEvents(done, false)
	if done.Sub(l.chores.published) >= publishEvery {
		l.chores.published = done
		l.publish()
	}
}

// beginSlices prepares the requests of a batch for its decode. It returns the request whose prompt is the whole batch,
// or nil.
func (l *loop) beginSlices(plan *sched.Plan, now time.Time) (lone *request) {
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		if c := r.client(); r.at.Started.IsZero() {
			r.at.Started = now
			r.life.Enter(stage.Running)
			if c == r || c.at.Started.IsZero() {
				c.at.Started = now
				c.life.Enter(stage.Running)
				l.m.QueueTime.Observe(now.Sub(c.arrived))
			}
		}
		if s.Kind != sched.SlicePrefill {
			continue
		}
		if len(plan.Batch) == 1 {
			lone = r
		}
		r.client().abortable.Store(lone != nil || s.N >= abortFrom)
		if r.progress && r.lastProgress.IsZero() && (r.noisy || plan.Predicted > progressEvery) {
			l.reportProgress(r, now) // before a long step
		}
	}
	return lone
}

// decode runs the engine on the batch. took is the duration of the decode, done its end.
func (l *loop) decode(plan *sched.Plan, lone *request, beside bool) (outcome sched.Outcome, took time.Duration,
	done time.Time) {
	var begin time.Time
	var err error
	if lone != nil {
		l.eng.Batch().Cancelled = lone.client().life.Cancelled // a cancel before Decode has begun aborts nothing
	}
	if beside {
		begin, done, err = l.submit()
	} else {
		l.masks.Begin()
		l.aside.Unlock()
		l.giveWay(plan)
		begin = time.Now()
		err = l.eng.Decode()
		done = time.Now()
		l.aside.Lock()
		l.masks.End()
	}
	l.state.lastStep.Store(done.UnixNano())
	switch {
	case err == nil:
		outcome = sched.StepOK
		l.journal.passes.Count(plan)
	case errors.Is(err, runtime.ErrKVFull):
		outcome = sched.StepKVFull
	case errors.Is(err, runtime.ErrLate) && plan.Bound != (sched.Bound{}):
		outcome = sched.StepLate
		l.m.LateSteps.Inc()
	case errors.Is(err, runtime.ErrAborted):
		outcome = sched.StepAborted
	default:
		outcome = sched.StepFailed
		l.m.DecodeErrors.Inc()
		l.log.Error("decode failed", "error", err, "tokens", plan.Tokens)
	}
	return outcome, done.Sub(begin), done
}

// endSlices samples the rows of a decoded batch and reports progress.
func (l *loop) endSlices(plan *sched.Plan, outcome sched.Outcome, done time.Time) {
	first := 0 // batch index of the slice's first token
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		at := first
		first += s.N
		switch {
		case s.Kind == sched.SliceProbe:
			continue // handled with the slice before it
		case s.Kind == sched.SlicePrefill:
			r.client().abortable.Store(false)
			if outcome == sched.StepOK {
				r.trace.Add(telemetry.Span{Name: "prefill.chunk", From: done.Add(-l.result.Took), To: done,
					Tokens: s.N})
			}
		}
		switch {
		case outcome != sched.StepOK:
			continue
		case r.input != nil:
			l.embedRows(r, s, at, done)
			continue
		}
		if i+1 < len(plan.Batch) && plan.Batch[i+1].Kind == sched.SliceProbe {
			l.probed(r, plan.Batch[i+1].Row)
		}
		if r.echo > 0 && s.Kind == sched.SlicePrefill && r.echoed < r.Prompt {
			l.echoPrompt(r, s, at)
		}
		switch {
		case s.Row >= 0:
			if r.noisy && s.Kind == sched.SlicePrefill {
				l.reportProgress(r, done)
			}
			for next, row := 1, s.Row; next > 0; row = s.Row + next {
				l.sample(r, row, done)
				next = r.NextRow()
			}
		case s.Kind == sched.SliceDecode: // forced tokens; the rest of them is in the next step
		case r.noisy || r.progress && done.Sub(r.arrived) >= progressEvery:
			l.reportProgress(r, done)
		}
	}
}

// sample draws r's next token from its logits row and processes it.
func (l *loop) sample(r *request, row int, now time.Time) {
	if r.life.Cancelled() {
		// The cancel command may still be in the mailbox, and the core needs an input for this row.
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
		return
	}
	if r.Fill {
		r.at.First, r.at.Last = now, now
		l.core.NoToken(&r.Request, reason.Length)
		l.endLater(r, wire.Length, "", now)
		return
	}
	at := l.instant(now)
	choice, err := l.draw(r, row, int64(at))
	if errors.Is(err, sampler.ErrNoCandidate) && l.hasCandidate(row) {
		l.core.NoToken(&r.Request, reason.Failed)
		l.failRequest(r, wire.Error{Code: wire.BadRequest, Message: r.constraint.NothingLeft(r.Generated())})
		return
	}
	if err != nil {
		l.log.Error("sampling failed", "request", r.wireID, "error", err)
		l.core.NoToken(&r.Request, reason.Failed)
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: "the model's output cannot be sampled: " +
			err.Error()})
		return
	}
	// A token that was not drawn obeys no constraint, and ends no answer.
	if tok, ok := l.core.Synthetic(&r.Request); ok && r.constraint == nil && !l.model.vocab.IsEOG(tok) {
		choice = sampler.Choice{Token: tok}
	}
	for l.acceptToken(r, &choice, now) {
		choice = sampler.Choice{Token: r.constraint.Forced()}
	}
}

// acceptToken processes a sampled or forced token of r: constraint, phase, text, calls, end. It reports whether a
// forced token follows, which needs no row.
func (l *loop) acceptToken(r *request, choice *sampler.Choice, now time.Time) (more bool) {
	tok := choice.Token
	opened, ok := l.constrain(r, tok)
	if !ok {
		return false
	}
	r.Chain.Accept(tok)
	inThink := r.Phases.Phase() == meridian.ThinkDecode
	l.observeToken(r, inThink, now)
	eog := l.model.vocab.IsEOG(tok) || !inThink && slices.Contains(r.StopTokens, tok)
	piece := l.piece(r, tok, inThink && !r.Phases.InHeader())
	said := l.core.Token(l.instant(now), &r.Request, tok, piece, eog, l.reused.thought[:0], l.reused.answer[:0])
	if r.Calls != nil {
		r.Phases.Verbatim(r.Calls.Busy())
	}
	if opened && said.End == core.NotEnded {
		r.Phases.Opened()
	}
	bad := r.follow(tok, &said)
	l.reused.thought, l.reused.answer = said.Think, said.Answer
	r.at.PhaseChanged(l.m, &r.Request, r.Phases, &said, r.arrived, now)
	l.emitLater(r, choice, &said, now)
	switch said.End {
	case core.Stopped:
		if said.StopText == r.SpelledEnd {
			said.StopText = ""
		}
		l.endLater(r, wire.Stop, said.StopText, now)
	case core.Length:
		l.endLater(r, wire.Length, "", now)
	default:
		l.logMissingSignals(r)
		if bad == nil {
			return r.More
		}
		r.failure = bad // its token was sent: the request ends in the next step
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
	}
	return false
}

// hasCandidate reports whether a row has a finite logit. If it has and no token can be sampled, the request excludes
// all tokens.
func (l *loop) hasCandidate(row int) bool {
	best, _ := sampler.Argmax(l.eng.Logits(row))
	return best >= 0
}
