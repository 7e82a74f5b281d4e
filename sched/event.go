package sched

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/sched/guess"
	"github.com/uma-serve/uma-serve/sched/queue"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// apply takes one event. Events of requests that have ended are normal (a cancel and the end of an answer cross) and
// are counted. It panics on what only a broken caller sends.
func (s *Scheduler) apply(in *Events, at Entry) {
	switch n := at.N; at.Kind {
	case KindArrive:
		s.arrive(&in.Arrivals[n])
	case KindStep:
		s.outcome(&in.Steps[n])
	case KindDrain:
		s.draining = true
	case KindLimit:
		s.onLimit(&in.Limits[n])
	case KindThreads:
		s.onThreads(&in.Counts[n])
	case KindCells:
		s.onCells(&in.Rooms[n])
	case KindToken:
		e := &in.Tokens[n]
		if r := s.lookup(e.Req); r != nil {
			s.token(r, e)
		} else {
			s.totals.ignored++
		}
	case KindCancel:
		e := &in.Cancels[n]
		if r := s.live(e.Req); r != nil {
			s.heard(r)
			s.finalise(r, reason.Cancelled, s.givenUp(r, e.Cells))
		}
	case KindFinish:
		e := &in.Finishes[n]
		if r := s.live(e.Req); r != nil {
			s.finished(r, e)
		}
	case KindPause:
		s.pause(s.live(in.Pauses[n].Req))
	case KindResume:
		s.resume(s.live(in.Resumes[n].Req))
	case KindStarted:
		e := &in.Starts[n]
		if r := s.live(e.Req); r != nil {
			s.onStarted(r, e)
		}
	case KindDefer:
		e := &in.Defers[n]
		if r := s.live(e.Req); r != nil {
			s.onDefer(r, e)
		}
	case KindReady:
		e := &in.Readies[n]
		if r := s.live(e.Req); r != nil {
			s.onReady(r, e)
		}
	}
}

// live returns the request of an event; nil, and the event is counted, when it has ended.
func (s *Scheduler) live(id ReqID) *request {
	r := s.requests[id]
	if r == nil {
		s.totals.ignored++
	}
	return r
}

func (s *Scheduler) onLimit(e *EvLimit) {
	if e.Limit < 0 || e.Waited < 0 {
		panic(fmt.Sprintf("sched: EvLimit with Limit %v and Waited %v; both must be ≥ 0", e.Limit, e.Waited))
	}
	s.clock.limit = e.Limit
}

func (s *Scheduler) onCells(e *EvCells) {
	if e.Cells < 0 || e.Cells > s.cfg.Cells || !s.cfg.Prefix {
		panic(fmt.Sprintf("sched: EvCells of %d cells; it needs Config.Prefix and must be 0…%d", e.Cells,
			s.cfg.Cells))
	}
	s.pool.cells = e.Cells
}

// finished takes a request that its last token ended.
func (s *Scheduler) finished(r *request, e *EvFinish) {
	if !e.Reason.Final() {
		panic(fmt.Sprintf("sched: EvFinish of request %d with reason %q, which ends nothing", r.id, e.Reason))
	}
	if e.Accepted < 0 || e.Accepted > r.guess.Guessed {
		panic(fmt.Sprintf("sched: EvFinish of request %d accepts %d guesses; %d were computed", r.id, e.Accepted,
			r.guess.Guessed))
	}
	s.heard(r)
	r.generated += e.Accepted
	s.finalise(r, e.Reason, s.givenUp(r, e.Cells))
}

// pause takes a client that does not read; r is nil if the request has ended.
func (s *Scheduler) pause(r *request) {
	switch {
	case r == nil:
	case r.paused:
		s.totals.ignored++
	default:
		r.paused, r.pausedAt = true, s.now
		s.paused++
		s.queue.Unqueue(&r.entry)
	}
}

// resume takes a client that reads again; r is nil if the request has ended.
func (s *Scheduler) resume(r *request) {
	switch {
	case r == nil:
	case !r.paused:
		s.totals.ignored++
	default:
		r.paused = false
		s.paused--
		r.timing.emitted, r.timing.lastGap = false, 0 // the client caused the wait
		if r.state == Queued {
			s.requeue(r)
		}
	}
}

// arrive lets a request into the queue. rejectExcess decides later, after admit, whether the queue has room for it. A
// request that can never run ends here.
func (s *Scheduler) arrive(e *EvArrive) {
	switch {
	case e.Req == 0 || e.Spec == nil:
		panic(fmt.Sprintf("sched: EvArrive with request id %d and Spec %v", e.Req, e.Spec))
	case s.requests[e.Req] != nil:
		panic(fmt.Sprintf("sched: EvArrive of request %d, which is live", e.Req))
	case e.Class >= NumClasses:
		panic(fmt.Sprintf("sched: EvArrive of request %d with class %d; there are %d", e.Req, e.Class, NumClasses))
	case e.Prompt < 1 || e.MaxTokens < 1:
		panic(fmt.Sprintf("sched: EvArrive of request %d with Prompt %d and MaxTokens %d; both must be ≥ 1", e.Req,
			e.Prompt, e.MaxTokens))
	case e.Fill && e.MaxTokens != 1:
		panic(fmt.Sprintf("sched: EvArrive of request %d with Fill and MaxTokens %d; it must be 1", e.Req, e.MaxTokens))
	case e.Cached < 0 || e.Cached >= e.Prompt || e.Restore < 0:
		panic(fmt.Sprintf("sched: EvArrive of request %d with Cached %d of %d prompt tokens and Restore %v", e.Req,
			e.Cached, e.Prompt, e.Restore))
	}
	room := s.cfg.Room(e.Prompt)
	if e.Fill {
		room++ // its only token needs no cell
	}
	switch {
	case room < 1:
		r := s.rejectArrival(e, reason.PromptTooLong)
		r.Need, r.Have = e.Prompt+1, s.cfg.Cells
		return
	case e.Whole && e.Prompt > s.wholeLimit(e.Spec):
		r := s.rejectArrival(e, reason.PromptTooLong)
		r.Need, r.Have = e.Prompt, s.wholeLimit(e.Spec)
		return
	case s.draining:
		s.rejectArrival(e, reason.Draining)
		return
	}
	if b := s.breaches(e); b.reason != reason.None {
		late := b.predicted - b.target
		if b.predicted == 0 {
			late = b.target // until the promises that it would break are kept
		}
		r := s.rejectArrival(e, b.reason)
		r.RetryAfter = queue.Retry(late)
		r.Target, r.Predicted = b.target, b.predicted
		return
	}
	r := s.newRequest()
	*r = request{
		id: e.Req, spec: e.Spec, state: Queued, phase: Output,
		entry:  queue.Entry{Slot: r.entry.Slot, Rank: s.nextRank(), Deadline: never, Due: s.dueAt(e), Promise: never},
		extent: extent{prompt: e.Prompt, max: min(e.MaxTokens, room), spared: e.Cached, restore: e.Restore},
		place:  place{seq: -1},
		guess:  guess.Request{Able: e.Guesses},
	}
	if e.Thinking {
		r.phase = Think
	}
	r.entry.Lane.Class, r.entry.Lane.Owner = s.policy.lane(e.Class, e.Owner)
	if e.TargetTTFT > 0 {
		r.entry.Deadline = s.now.Add(e.TargetTTFT - e.QueuedFor)
	}
	if e.Strict {
		r.entry.Promise = r.entry.Deadline
	}
	r.setHint(e.Shared)
	r.log.add(s.now, reason.Arrived, r.prompt)
	s.requests[r.id] = r
	s.queue.Add(&r.entry, e.Owner, r.prompt)
}

// wholeLimit returns the length in tokens of the longest prompt that a step can compute at once.
func (s *Scheduler) wholeLimit(e *Spec) int {
	if e.EveryRow {
		return min(s.cfg.MaxBatch, s.cfg.EveryRows)
	}
	return s.cfg.MaxBatch
}

// rejectArrival rejects a request before it gets a record, and returns the plan's Rejection.
func (s *Scheduler) rejectArrival(e *EvArrive, why Reason) *Rejection {
	s.reject(e.Req, why, 0)
	r := request{id: e.Req, spec: e.Spec, entry: queue.Entry{Arrived: s.now}, extent: extent{prompt: e.Prompt}}
	r.log.add(s.now, reason.Arrived, e.Prompt)
	s.totals.ended.note(&r, s.now, why)
	return &s.plan.Reject[len(s.plan.Reject)-1]
}

// outcome takes the outcome of the previous plan's batch.
func (s *Scheduler) outcome(e *EvStep) {
	if !s.out.owedStep {
		panic("sched: EvStep, but the previous plan had no batch, or its outcome came already")
	}
	s.out.owedStep = false
	s.pool.kvTokens = 0
	s.guesses.Draft.Observe(e.Drafting)
	for i, r := range s.out.batch {
		if r != nil && s.plan.Batch[i].Drafted {
			r.guess.Draft = 0
		}
	}
	switch e.Outcome {
	case StepOK:
		s.clock.tick.Add(float64(e.Took), tickWeight)
		s.policy.observe(&s.plan, e.Took)
		if s.guesses.Trial() {
			s.cost.EndStreak()
		}
		s.cost.ObserveAt(int64(s.now), s.batcher.load, e.Took, s.plan.DecodeTokens > 0 && s.plan.PrefillTokens > 0)
		s.observeGap(e.Took + e.Drafting)
		s.guesses.Learn(&s.cost.Model, e.Took, e.Drafting, s.plan.Predicted)
		if n := s.plan.PrefillTokens; n > 0 || s.plan.PrefillHeld {
			s.clock.rate.Observe(n, float64(e.Took)+s.overhead.Value+float64(s.clock.waited))
		}
		for i, r := range s.out.batch {
			sl := &s.plan.Batch[i]
			if r == nil {
				if sl.Kind != SliceProbe && !s.cfg.Prefix {
					s.pool.freed += sl.N // cancelled before the outcome came: it gives up these cells too
				}
				continue
			}
			// Guesses count when EvToken or EvFinish says that they came true (Accepted).
			r.computed += sl.N - sl.Guessed
			r.guess.Guessed, r.guess.Drafted = sl.Guessed, sl.Drafted
			s.queue.Charge(&r.entry, r.computed)
			if sl.Row >= 0 {
				r.place.awaiting = true
				s.out.owedToken++
			}
		}
		// Forget the shortage slowly: the engine may have its cells again, or another step may meet it.
		if s.pool.good++; s.pool.good >= 64 {
			s.pool.good, s.pool.lost = 0, s.pool.lost/2
		}
	// Nothing to undo: only StepOK counts what a batch computes.
	case StepAborted:
	case StepLate:
		s.tooLate(e)
	case StepKVFull:
		// Half of what was tried may fit. If not, the next outcome halves it again, down to one token.
		s.pool.kvTokens = s.plan.Tokens
		s.pool.lost = max(s.pool.lost, s.pool.cells+s.pool.freed-s.plan.Tokens/2)
		s.pool.good = 0
	case StepFailed:
		for _, r := range s.out.batch {
			if r != nil {
				s.finaliseUntold(r, reason.Failed)
			}
		}
	default:
		panic(fmt.Sprintf("sched: EvStep with outcome %d, which is unknown", e.Outcome))
	}
}

// onThreads takes EvThreads.
func (s *Scheduler) onThreads(e *EvThreads) {
	if e.Threads < 1 || e.Threads > MaxThreads {
		panic(fmt.Sprintf("sched: EvThreads with %d threads; they must be 1…%d", e.Threads, MaxThreads))
	}
	if before := s.cost.Switch(int64(s.now), e.Threads, e.Disturbed); before != 0 && before != e.Threads {
		s.guesses.Draft.Cost.ForThreads(before, e.Threads)
	}
}

// tooLate takes a step that was given up.
func (s *Scheduler) tooLate(e *EvStep) {
	if s.plan.Bound == (Bound{}) {
		panic("sched: EvStep with outcome late, and the plan has no Bound")
	}
	s.clock.lateCredit -= lateEvery
	s.cost.MissAt(int64(s.now), s.batcher.load, s.plan.Bound.Limit)
	// The time is lost to the prompts, whose pace forecasts use.
	s.clock.rate.Observe(0, float64(e.Took)+s.overhead.Value+float64(s.clock.waited))
	for i, r := range s.out.batch {
		if r != nil && s.plan.Batch[i].Kind == SlicePrefill {
			r.turns.reason = reason.PrefillLate
			r.log.add(s.now, reason.PrefillLate, 0)
			s.totals.count[reason.PrefillLate]++
		}
	}
}

// token takes a sampled token.
func (s *Scheduler) token(r *request, e *EvToken) {
	if !r.place.awaiting {
		panic(fmt.Sprintf("sched: EvToken of request %d, which has no row in the batch", r.id))
	}
	if e.Probe < 0 {
		panic(fmt.Sprintf("sched: EvToken of request %d with Probe %d", r.id, e.Probe))
	}
	s.checkGuesses(r, e)
	if e.Cut < 0 || e.Cut > r.computed+e.Accepted {
		panic(fmt.Sprintf("sched: EvToken of request %d with Cut %d; it has computed %d tokens", r.id, e.Cut,
			r.computed+e.Accepted))
	}
	if e.Again < 0 || e.Again > 0 && (!s.cfg.Rereads || e.Again > r.computed+e.Accepted) {
		panic(fmt.Sprintf("sched: EvToken of request %d with Again %d; it has computed %d tokens", r.id, e.Again,
			r.computed+e.Accepted))
	}
	if e.Forced < 0 || e.Accepted+e.Forced >= r.max-r.generated {
		panic(fmt.Sprintf("sched: EvToken of request %d with Forced %d; it may generate %d more", r.id, e.Forced,
			r.max-r.generated))
	}
	s.heard(r)
	s.guesses.Token(&r.guess, r.phase == Think, guess.News{
		Right: e.Right, Wrong: e.Wrong, DraftRight: e.DraftRight, DraftWrong: e.DraftWrong,
		Offer: e.Offer, Grade: e.Grade, Draft: e.Draft, Lag: e.Lag,
	})
	r.computed += e.Accepted
	s.queue.Charge(&r.entry, r.computed)
	r.computed -= e.Again
	r.generated += e.Accepted + 1 + e.Forced
	r.entry.Promise = never // kept or broken: the first token is here
	r.turns.probe = e.Probe
	// What is left of its history counts as prompt, so that its limit moves too.
	r.prompt -= e.Cut
	r.max += e.Cut
	r.computed -= e.Cut
	r.shared = min(r.shared, r.computed) // the other holders of what was cut had ended
	if r.generated >= r.max {
		// The caller should have finished it.
		s.finaliseUntold(r, reason.Length)
		return
	}
	switch {
	case !e.Thinking && r.phase == Think:
		r.phase, r.thought, r.timing.closing = Output, true, true
	case !e.Thinking:
		r.timing.closing = false
	case e.Thinking && !r.thought:
		r.phase = Think
	}
	r.state = r.phase
	if r.timing.emitted {
		r.timing.lastGap = int64(s.now - r.timing.lastEmit)
	}
	r.timing.lastEmit, r.timing.emitted = s.now, true
}

// heard records that the caller answered r's row.
func (s *Scheduler) heard(r *request) {
	if r.place.awaiting {
		r.place.awaiting = false
		s.out.owedToken--
	}
}

// reject adds a Rejection to the plan.
func (s *Scheduler) reject(id ReqID, why Reason, after time.Duration) {
	s.plan.Reject = append(s.plan.Reject, Rejection{Req: id, Reason: why, RetryAfter: after})
	s.totals.count[why]++
}
