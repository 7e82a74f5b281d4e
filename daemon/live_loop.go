package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/sched"
)

// The decode loop's side of live views: a record of each step, and twice a second a snapshot of the loop's state.
// Without an open view it does neither.

// liveSnapshot is a copy of the decode loop's state between two steps. The sampler owns it, except from its request
// until ready; its slices are reused.
type liveSnapshot struct {
	ready   atomic.Bool // the loop has filled it
	at      time.Duration
	total   int
	free    int
	waiting sched.Reason // of the head of the queue
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

// recordStep adds a step to the ring, if a view is open.
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

// fillSnapshot fills s. It allocates only when s has fewer entries than there are requests and prefixes.
func (l *loop) fillSnapshot(s *liveSnapshot, now time.Time) {
	s.at, s.total, s.free = now.Sub(l.epoch), l.cells, l.core.Tree().Cells().Free
	s.waiting = sched.ReasonNone
	s.streams = s.streams[:0]
	for _, r := range l.requests {
		if r.finished || r.embed != nil { // its texts are there
			continue
		}
		state, reason, _ := l.core.Scheduler().Why(r.ID)
		if state == sched.Queued &&
			(s.waiting == sched.ReasonNone || reason != sched.ReasonWaitTurn && r.Class == sched.Interactive) {
			s.waiting = reason
		}
		target := r.TargetITL
		if target == 0 {
			target = l.itlTarget
		}
		s.streams = append(s.streams, liveStream{
			number: uint64(r.ID), wireID: r.wireID, owner: r.Owner, class: r.Class, state: r.stateName(state),
			reason:  reason,
			arrived: r.arrived.Sub(l.epoch), ttft: r.timings().TTFT, target: target, prompt: r.Prompt,
			computed: r.Computed(),
			cached:   r.cached, generated: r.Generated(), think: r.Phases.ThinkTokens(), gaps: r.gaps, paused: r.paused,
		})
		r.gaps = gapSum{}
	}
	s.spans = l.core.Tree().Spans(s.spans[:0])
	s.ready.Store(true)
}

// stateName is a request's state in why and live views.
func (r *request) stateName(state sched.State) string {
	if state == sched.Queued && !r.started.IsZero() {
		return "parked"
	}
	return [...]string{"queued", "prefill", "think", "output", "done", "done"}[state]
}
