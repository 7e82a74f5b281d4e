package sched

import (
	"fmt"
	"math"
	"time"
)

// apply takes one event in. Events for requests that have ended are normal (a cancel crosses an answer's end on
// the way) and are counted; what only a broken caller can send panics.
func (s *Scheduler) apply(e *Event) {
	switch e.Kind {
	case EvArrive:
		s.arrive(e)
		return
	case EvStep:
		s.outcome(e)
		return
	case EvDrain:
		s.draining = true
		return
	case EvPool:
		if e.Cells < 0 || e.Cells > s.cfg.Cells || !s.cfg.Prefix {
			panic(fmt.Sprintf("sched: EvPool of %d cells; it needs Config.Prefix and must be 0…%d", e.Cells, s.cfg.Cells))
		}
		s.pool = e.Cells
		return
	case EvToken:
		if r := s.lookup(e.Req); r != nil {
			s.token(r, e)
			return
		}
		s.ignored++
		return
	}
	r := s.requests[e.Req]
	if r == nil {
		s.ignored++
		return
	}
	switch e.Kind {
	case EvCancel:
		s.heard(r)
		s.finalise(r, ReasonCancelled)
	case EvFinish:
		if !e.Finish.Final() {
			panic(fmt.Sprintf("sched: EvFinish of request %d with reason %q, which ends nothing", r.id, e.Finish))
		}
		s.heard(r)
		s.finalise(r, e.Finish)
	case EvPause:
		if r.paused {
			s.ignored++
			return
		}
		r.paused, r.pausedAt = true, s.now
		s.paused++
		s.unqueue(r)
	case EvResume:
		if !r.paused {
			s.ignored++
			return
		}
		r.paused = false
		s.paused--
		r.emitted, r.lastGap = false, 0 // the wait was the client's doing
		if r.state == Queued {
			s.requeue(r)
		}
	case EvStarted:
		s.goOn(r, e)
	case EvHold:
		s.hold(r, e)
	case EvReady:
		s.ready(r, e)
	default:
		panic(fmt.Sprintf("sched: event kind %d of request %d is unknown", e.Kind, e.Req))
	}
}

// arrive lets a request into the queue. Whether there is room for it is known after others were let in
// (refuse); what can never run ends here.
func (s *Scheduler) arrive(e *Event) {
	switch {
	case e.Req == 0:
		panic("sched: EvArrive with request id 0")
	case s.requests[e.Req] != nil:
		panic(fmt.Sprintf("sched: EvArrive of request %d, which is live", e.Req))
	case e.Class >= NumClasses:
		panic(fmt.Sprintf("sched: EvArrive of request %d with class %d; there are %d", e.Req, e.Class, NumClasses))
	case e.Prompt < 1 || e.MaxTokens < 1:
		panic(fmt.Sprintf("sched: EvArrive of request %d with Prompt %d and MaxTokens %d; both must be ≥ 1", e.Req, e.Prompt, e.MaxTokens))
	}
	switch room := s.cfg.Room(e.Prompt); {
	case room < 1:
		s.turnAway(e, ReasonPromptTooLong)
		r := &s.plan.Reject[len(s.plan.Reject)-1]
		r.Need, r.Have = e.Prompt+1, s.cfg.Cells
		return
	case s.draining:
		s.turnAway(e, ReasonDraining)
		return
	}
	if late, yes := s.hopeless(e); yes {
		s.turnAway(e, ReasonTTFT)
		s.plan.Reject[len(s.plan.Reject)-1].RetryAfter = min(max(late.Round(10*time.Millisecond), minRetry), maxRetry)
		return
	}
	r := s.newRequest()
	*r = request{
		id: e.Req, class: e.Class, owner: e.Owner, arrivedAt: s.now, rank: s.nextRank(), state: Queued, phase: Output, seq: -1,
		prompt: e.Prompt, max: min(e.MaxTokens, s.cfg.Room(e.Prompt)), tbt: int64(e.TargetTBT), deadline: never,
	}
	if e.Thinking {
		r.phase = Think
	}
	if e.TargetTTFT > 0 {
		r.deadline = s.now.Add(e.TargetTTFT)
		s.dated++
	}
	r.setHint(e)
	r.log.add(s.now, ReasonArrived, r.prompt)
	class, owner := s.policy.lane(e.Class, e.Owner)
	r.flow = s.openFlow(flowKey{class, owner})
	r.user, r.bornAt = s.openUser(e.Owner), s.step
	s.requests[r.id] = r
	s.await(r)
	s.enqueue(r)
}

// turnAway rejects a request that gets no record.
func (s *Scheduler) turnAway(e *Event, why Reason) {
	s.reject(e.Req, why, 0)
	r := request{id: e.Req, class: e.Class, owner: e.Owner, arrivedAt: s.now, prompt: e.Prompt}
	r.log.add(s.now, ReasonArrived, e.Prompt)
	s.ended.note(&r, s.now, why)
}

// outcome settles the batch of the plan before.
func (s *Scheduler) outcome(e *Event) {
	if !s.owedStep {
		panic("sched: EvStep, but the plan before had no batch, or its outcome came already")
	}
	s.owedStep = false
	s.kvTokens = 0
	switch e.Outcome {
	case StepOK:
		s.tick.add(float64(e.Took), 0.2)
		s.policy.observe(&s.plan, e.Took)
		s.cost.observe(s.builder.load, e.Took, s.plan.DecodeTokens > 0 && s.plan.PrefillTokens > 0)
		s.observeGap(e.Took)
		if n := s.plan.PrefillTokens; n > 0 {
			s.rate.observe(n, float64(e.Took)+s.overhead.value)
		}
		for i, r := range s.batch {
			if r == nil {
				continue // a fork, or cancelled before the outcome was told
			}
			sl := &s.plan.Batch[i]
			r.computed += sl.N
			s.live += sl.N
			s.charge(r)
			if sl.Row >= 0 {
				r.awaiting = true
				s.owedToken++
			}
		}
		if s.good++; s.good >= 64 {
			s.good, s.lost = 0, s.lost/2
		}
	case StepAborted:
	case StepKVFull:
		// Half of what was tried may fit. Where it does not, the next outcome halves again, down to one token.
		s.kvTokens = s.plan.Tokens
		s.lost = max(s.lost, s.cfg.Cells-s.pool-s.live-s.plan.Tokens/2)
		s.good = 0
	case StepFailed:
		for _, r := range s.batch {
			if r != nil {
				s.finalise(r, ReasonFailed)
			}
		}
	default:
		panic(fmt.Sprintf("sched: EvStep with outcome %d, which is unknown", e.Outcome))
	}
}

// token feeds a sampled token back.
func (s *Scheduler) token(r *request, e *Event) {
	if !r.awaiting {
		panic(fmt.Sprintf("sched: EvToken of request %d, which has no row in the batch", r.id))
	}
	if e.Probe < 0 {
		panic(fmt.Sprintf("sched: EvToken of request %d with Probe %d", r.id, e.Probe))
	}
	if e.Cut < 0 || e.Cut > r.own() {
		panic(fmt.Sprintf("sched: EvToken of request %d with Cut %d; it owns %d cells", r.id, e.Cut, r.own()))
	}
	if e.Forced < 0 || e.Forced >= r.max-r.generated {
		panic(fmt.Sprintf("sched: EvToken of request %d with Forced %d; it may generate %d more", r.id, e.Forced, r.max-r.generated))
	}
	s.heard(r)
	r.generated += 1 + e.Forced
	r.probe = e.Probe
	// What is left of its history counts as prompt, so that its limit moves along.
	r.prompt -= e.Cut
	r.max += e.Cut
	r.computed -= e.Cut
	s.live -= e.Cut
	if r.generated >= r.max {
		// The caller should have finished it: there is no room to go on.
		s.finalise(r, ReasonLength)
		return
	}
	switch {
	case !e.Thinking && r.phase == Think:
		r.phase, r.thought = Output, true
	case e.Thinking && !r.thought:
		r.phase = Think
	}
	r.state = r.phase
	if r.emitted {
		r.lastGap = int64(s.now - r.lastEmit)
	}
	r.lastEmit, r.emitted = s.now, true
	if r.state == Output {
		r.readAt = max(r.readAt, s.now).Add(time.Duration(float64(time.Second) / s.cfg.ReadingRate))
	}
}

// heard notes that the caller answered r's row.
func (s *Scheduler) heard(r *request) {
	if r.awaiting {
		r.awaiting = false
		s.owedToken--
	}
}

// reject finalises a request that never started.
func (s *Scheduler) reject(id ReqID, why Reason, after time.Duration) {
	s.plan.Reject = append(s.plan.Reject, Rejection{Req: id, Reason: why, RetryAfter: after})
	s.count[why]++
}

// Retry-after hints stay within these.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = time.Minute
)

// retryAfter guesses when a place in the queue will be free for the newest rejected request: one opens with
// each request that ends, and those rejected before it will come back too.
func (s *Scheduler) retryAfter() time.Duration {
	if !s.finishes.gap.any {
		return time.Second
	}
	gap := math.Max(s.finishes.gap.value, float64(s.now-s.finishes.last))
	d := time.Duration(math.Min(gap*float64(s.rejected), float64(maxRetry)))
	return max(d.Round(10*time.Millisecond), minRetry)
}
