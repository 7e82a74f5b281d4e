package sched

import (
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/forecast"
	"github.com/uma-serve/uma-serve/sched/queue"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Targets of requests (Spec.TargetTTFT, TargetTTOT, TargetITL) and the promise that a strict request asks for: it is
// admitted only if the forecast says that all of its targets will be met, and that no promise given before is broken.
//
// A target of the first token is a deadline. The queue of a flow is in the order of deadlines, and between flows that
// are level the earliest one is served first (earliest deadline first, Liu and Layland 1973). A request without a
// target counts as one with a target of queue.UndatedTarget, so that it is not overtaken for ever.

// dueAt returns the deadline of an arrival's first token, by which it is queued. Without a target it does not depend on
// EvArrive.QueuedFor, so that these requests stay in the order in which they came. A request with a target that is not
// strict goes behind the promises that are due within queue.UndatedTarget.
func (s *Scheduler) dueAt(e *EvArrive) Instant {
	undated := s.now.Add(queue.UndatedTarget)
	if e.TargetTTFT <= 0 || !s.clock.byTarget {
		return undated
	}
	due := s.now.Add(e.TargetTTFT - e.QueuedFor)
	if e.Strict || s.queue.Dated() == 0 {
		return due
	}
	for _, r := range s.requests {
		if p := r.entry.Promise; r.spec.Class == e.Class && p <= undated {
			due = max(due, p)
		}
	}
	return due
}

// rankByTarget returns the rank of a request that starts: behind all others, or with a target before the running ones
// of its class that are due later, so that these give up their cells first, but never before one that is due no later.
// Ranks do not change by it.
func (s *Scheduler) rankByTarget(r *request) uint64 {
	rank := s.nextRank()
	if r.entry.Deadline == never || !s.clock.byTarget {
		return rank
	}
	// The last of those that are due no later and have begun, also those that have made way: one without a target may
	// rank before it by its age.
	behind := uint64(0)
	for _, o := range s.requests {
		if o != r && o.place.ran && o.entry.Class == r.entry.Class && o.entry.Due <= r.entry.Due {
			behind = max(behind, o.entry.Rank)
		}
	}
	for _, o := range s.running {
		e := &o.entry
		if o != r && o.place.ran && e.Class == r.entry.Class && e.Due > r.entry.Due && e.Rank > behind {
			rank = min(rank, e.Rank-1)
		}
	}
	return rank
}

// breach says why a strict request cannot be admitted; the zero value: it can.
type breach struct {
	reason    Reason
	target    time.Duration
	predicted time.Duration // the prediction for the target; 0 = it would break another request's promise
}

// breaches tests the targets of a strict arrival.
func (s *Scheduler) breaches(e *EvArrive) breach {
	if !e.Strict {
		return breach{}
	}
	for _, t := range []struct {
		reason Reason
		target time.Duration
	}{{reason.MissesITL, e.TargetITL}, {reason.MissesTTOT, e.TargetTTOT}} {
		if t.target == 0 {
			continue
		}
		if step := s.answerStep(e, t.target); step > t.target {
			return breach{t.reason, t.target, step}
		}
	}
	// A promise that is broken without e too is no reason to reject e.
	if target := s.tightestPromise(); s.answerStep(e, target) > target && s.answerStep(nil, target) <= target {
		return breach{reason.MissesITL, target, 0}
	}
	if e.TargetTTFT <= 0 {
		return breach{}
	}
	in, breaks := s.firstToken(e)
	if in > e.TargetTTFT {
		return breach{reason.TTFT, e.TargetTTFT, in}
	}
	if breaks {
		return breach{reason.TTFT, e.TargetTTFT, 0}
	}
	return breach{}
}

// tightestPromise returns the least ITL target that a strict request has been promised.
func (s *Scheduler) tightestPromise() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, r := range s.requests {
		if r.spec.Strict && r.spec.TargetITL > 0 {
			least = min(least, r.spec.TargetITL)
		}
	}
	return least
}

// answerStep returns the duration that a step of the running answers, and of e's if e is not nil, stays below in 95 of
// 100 cases; 0 = nothing was learned. Of the background answers that yield to a target, it has as many as give each its
// token within Config.ThinkFloor, the longest ones.
func (s *Scheduler) answerStep(e *EvArrive, target time.Duration) time.Duration {
	if s.cost.Steps() < learnedSteps {
		return 0
	}
	l := cost.Load{More: passes(s.running)}
	if e != nil && e.Mix != 0 {
		l.More++ // as if it were the first with its mix
	}
	yielding, longest := 0, 0
	for _, r := range s.running {
		switch {
		case r.paused:
		case s.yieldsRow(r):
			yielding++
			longest = max(longest, r.history())
		default:
			l.AddRows(r.history(), 1)
		}
	}
	share := float64(min(target, s.cfg.ThinkFloor)) / float64(s.cfg.ThinkFloor)
	for range int(math.Ceil(share * float64(yielding))) {
		l.AddRows(longest, 1)
	}
	if e != nil {
		l.AddRows(e.Prompt, 1)
	}
	return time.Duration(s.cost.Upper(l)*1e6 + s.overhead.Value)
}

// firstToken predicts when e would give its first token, counted from its arrival, and whether a promise given before
// would then be broken. 0 = nothing was measured.
func (s *Scheduler) firstToken(e *EvArrive) (in time.Duration, breaks bool) {
	class, _ := s.policy.lane(e.Class, e.Owner)
	jobs := s.clock.jobs[:0]
	// Prompts of lower classes go behind e, so they delay nothing.
	for _, r := range s.running {
		if r.entry.Class <= class && !r.decoding() && !r.paused {
			jobs = append(jobs, forecast.Job{Running: true, Started: true, Due: int64(s.queue.StillDue(&r.entry)),
				Rank: r.entry.Rank, ID: uint64(r.id), Left: r.left(), Promise: int64(r.entry.Promise)})
		}
	}
	for _, r := range s.requests {
		if r.entry.Class <= class && r.state == Queued && !r.paused {
			jobs = append(jobs, forecast.Job{Started: r.entry.Started, Due: int64(s.queue.StillDue(&r.entry)),
				Rank: r.entry.Rank, ID: uint64(r.id), Left: r.toCompute(), Restore: int64(r.restore),
				Promise: int64(r.entry.Promise)})
		}
	}
	jobs = append(jobs, forecast.Job{Arrival: true, Due: int64(s.dueAt(e)), Rank: ^uint64(0), ID: uint64(e.Req),
		Left: e.Prompt - min(max(e.Shared, e.Cached), e.Prompt-1), Restore: int64(e.Restore), Promise: forecast.None})
	s.clock.jobs = jobs
	engine := forecast.Engine{Now: int64(s.now), Running: len(s.running), Free: s.cfg.MaxRunning - len(s.running),
		Cells: s.room(), Gap: s.turnoverGap(), Pace: s.promptPace(), ByDue: s.clock.byTarget}
	if n := len(s.running); n > 0 {
		engine.Mean = s.owned() / n
		for _, r := range s.running {
			engine.Cells -= r.footprint(0) - r.own()
		}
	}
	ns, breaks := forecast.FirstToken(jobs, engine)
	return time.Duration(forecast.Margin*ns) + e.QueuedFor, breaks
}

// turnoverGap returns the mean time between two ends of requests while others wait, in ns. Before any was measured the
// running requests are assumed to reach their token limits.
func (s *Scheduler) turnoverGap() float64 {
	if s.clock.turnover.Known || len(s.running) == 0 {
		return s.clock.turnover.Value
	}
	l := cost.Load{More: passes(s.running)}
	left := 0
	for _, r := range s.running {
		left += r.max - r.generated
		l.AddRows(r.history(), 1)
	}
	n := len(s.running)
	return s.cost.Predict(l) * 1e6 * float64(left) / float64(n*n)
}

// promptPace returns the time of a prompt token in ns: at the pace of recent steps, or by the cost model if nothing
// runs.
func (s *Scheduler) promptPace() float64 {
	if s.clock.rate.Known() && (len(s.running) > 0 || s.cost.Prompts() == 0) {
		return s.clock.rate.Take(1)
	}
	if s.cost.Prompts() == 0 {
		return 0
	}
	const n = 256
	var l cost.Load
	l.AddPrompt(0, n)
	return s.cost.Predict(l) * 1e6 / n
}

// ComputeTime predicts how long computing n tokens of a prompt takes, from position start on: alone by the cost model,
// beside running requests at the pace of recent steps if that is slower. 0 = too little was measured.
func (s *Scheduler) ComputeTime(start, n int) time.Duration {
	if n < 1 || s.cost.Prompts() < learnedSteps {
		return 0
	}
	var l cost.Load
	l.AddPrompt(start, n)
	// Each further step reads what lies before its chunk.
	l.More = float64((n - 1) / s.cfg.MaxBatch)
	l.Read += mul(l.More, float64(start)+mul(float64(s.cfg.MaxBatch), 0.5*(l.More+1)))
	ns := mul(s.cost.Predict(l), 1e6)
	if len(s.running) > 0 {
		ns = max(ns, mul(s.promptPace(), float64(n)))
	}
	return max(1, time.Duration(ns))
}

// toCompute returns the number of tokens of its history that r is expected to compute before its next token, at least
// 1. Tokens that running requests or a store probably have are left out.
func (r *request) toCompute() int { return max(1, r.left()-max(r.hint, r.spared)) }

// endangered reports whether background requests wait (Config.BackgroundEvery bounds it): an interactive request with a
// TTFT target waits for a sequence, or will miss its target at the pace of recent steps.
func (s *Scheduler) endangered() bool {
	interactive := func(r *request) bool { return r.entry.Class == Interactive && !r.paused }
	if s.queue.Dated() == 0 || !s.clock.byTarget || !slices.ContainsFunc(s.running, interactive) {
		return false // nothing else would be computed
	}
	pace := s.promptPace()
	for _, r := range s.requests {
		if r.entry.Deadline == never || r.generated > 0 || !interactive(r) || r.entry.Deadline < s.now {
			continue
		}
		if float64(s.now)+forecast.Margin*float64(r.toCompute())*pace > float64(r.entry.Deadline) || r.state == Queued {
			return true
		}
	}
	return false
}

// turnedOver records that a request has ended: the next one that waits has its sequence and cells.
func (s *Scheduler) turnedOver() {
	if s.queue.Len() == 0 {
		s.clock.turnover.Break()
		return
	}
	s.clock.turnover.Add(int64(s.now), turnoverWeight)
}

// firstTokenIn estimates the time to the first token of a prompt with left tokens to compute: at the pace of recent
// steps, or by the cost model if nothing else runs. 0 = nothing was measured.
func (s *Scheduler) firstTokenIn(left int) time.Duration {
	if len(s.running) == 0 && s.cost.Prompts() > 0 {
		var l cost.Load
		l.AddPrompt(0, left)
		return time.Duration(s.cost.Predict(l) * 1e6)
	}
	if !s.clock.rate.Known() {
		return 0
	}
	return time.Duration(s.clock.rate.Take(left))
}

// atRisk counts the requests before their first token that have missed their TTFT target, or will at the pace of recent
// steps. For a waiting request only its own prompt counts.
func (s *Scheduler) atRisk() int {
	n := 0
	if s.queue.Dated() == 0 {
		return 0
	}
	for _, r := range s.requests {
		if r.entry.Deadline == never || r.generated > 0 {
			continue
		}
		if s.now.Add(s.firstTokenIn(r.left())) > r.entry.Deadline {
			n++
		}
	}
	return n
}
