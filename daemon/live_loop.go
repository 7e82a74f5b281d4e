package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/sched"
)

// The decode loop's side of live views: a record of each step, and twice a second a copy of what it alone may look at.
// Without an open view it does neither.

// liveShot is what the decode loop tells of itself between two steps. The sampler owns it, except between asking the loop
// and ready; its slices are used again.
type liveShot struct {
	ready   atomic.Bool // the loop has filled it and touches it no more
	at      time.Duration
	total   int
	free    int
	waiting sched.Reason // why the head of the queue waits
	streams []liveStream
	spans   []kvsnap.Span
}

// liveStream is one live request.
type liveStream struct {
	number                                     uint64
	wireID                                     string
	owner                                      uint32
	class                                      sched.Class
	state                                      string
	reason                                     sched.Reason
	arrived, ttft, target                      time.Duration
	prompt, computed, cached, generated, think int
	gaps                                       gapSum
	paused                                     bool
}

// recordStep tells the live views of a step, if there are any.
func (l *loop) recordStep(plan *sched.Plan, took time.Duration, done time.Time) {
	ring := l.live.ring.Load()
	if ring == nil {
		return
	}
	think := min(l.tick.thinkRows, plan.DecodeTokens)
	ring.put(stepRecord{
		end: done.Sub(l.epoch), took: took, prompt: int32(plan.PrefillTokens), think: int32(think),
		answer: int32(plan.DecodeTokens - think), probe: int32(plan.ProbeTokens),
	})
}

// shoot fills s. It allocates only until s has room for as many requests and prefixes as there are.
func (l *loop) shoot(s *liveShot, now time.Time) {
	s.at, s.total, s.free = now.Sub(l.epoch), l.caps.ContextTokens, l.core.Tree().Cells().Free
	s.waiting = sched.ReasonNone
	s.streams = s.streams[:0]
	for _, r := range l.requests {
		if r.finished {
			continue
		}
		state, reason, _ := l.core.Scheduler().Why(r.ID)
		if state == sched.Queued && (s.waiting == sched.ReasonNone || reason != sched.ReasonWaitTurn && r.Class == sched.Interactive) {
			s.waiting = reason
		}
		target := r.TargetITL
		if target == 0 {
			target = l.itlTarget
		}
		s.streams = append(s.streams, liveStream{
			number: uint64(r.ID), wireID: r.wireID, owner: r.Owner, class: r.Class, state: r.stateName(state), reason: reason,
			arrived: r.arrived.Sub(l.epoch), ttft: r.timings().TTFT, target: target, prompt: r.Prompt, computed: r.Computed(),
			cached: r.cached, generated: r.Generated(), think: r.ctl.ThinkTokens(), gaps: r.gaps, paused: r.paused,
		})
		r.gaps = gapSum{}
	}
	s.spans = l.core.Tree().Spans(s.spans[:0])
	s.ready.Store(true)
}

// stateName is what why and live views call the state of a request.
func (r *request) stateName(state sched.State) string {
	if state == sched.Queued && !r.started.IsZero() {
		return "parked"
	}
	return [...]string{"queued", "prefill", "think", "output", "done", "done"}[state]
}
