package sched

import (
	"fmt"
	"math"
	"time"
)

// The cost model keeps a state for each number of compute threads (EvThreads). A number that was never used begins with
// the coefficients of the one before, scaled by how products and memory scale, and less certain.
const (
	// A step of fewer threads takes (more / fewer) to this power as long: between 1, where arithmetic is the limit, and
	// less, where memory is. Measured from two threads to one: 1.6 … 1.95.
	threadsPower = 0.85
	// threadsDoubt is the standard deviation of the scaled coefficients, relative to them.
	threadsDoubt = 0.25
	// calmKept is the time for which the state from before a run of slow steps is kept, in ns. A disturbance is
	// noticed, and EvThreads sent, within some tenths of a second.
	calmKept = Instant(1e9)
	// MaxThreads is the most compute threads that the scheduler is told of.
	MaxThreads = 1 << 16
)

// threadCosts are the cost models of the numbers of threads that are not in use.
type threadCosts struct {
	now   int // threads in use; 0 = not known
	first int // those of Config: Scheduler.Cost is of them
	kept  map[int]*costModel

	// calm is the model from before the newest run of steps that took longer than predicted, until calmUntil.
	calm      costModel
	calmUntil Instant
}

// onThreads takes EvThreads.
func (s *Scheduler) onThreads(e *EvThreads) {
	t := &s.threads
	if e.Threads < 1 || e.Threads > MaxThreads {
		panic(fmt.Sprintf("sched: EvThreads with %d threads; they must be 1…%d", e.Threads, MaxThreads))
	}
	// Steps beside other processes were not the machine's own speed: with them the model of this number of threads
	// would be several times too slow when it is used again.
	if e.Disturbed && s.now < t.calmUntil {
		s.cost = t.calm
		s.cost.lastError = 0
	}
	t.calmUntil = 0
	if e.Threads == t.now {
		return
	}
	if t.now == 0 {
		t.now, t.first = e.Threads, e.Threads
		return
	}
	left := s.cost
	left.streak, left.lastError = 0, 0
	if next := t.kept[e.Threads]; next != nil {
		s.cost = *next
		// The record changes its key, so that a switch between two numbers allocates nothing.
		*next = left
		t.kept[t.now] = next
		delete(t.kept, e.Threads)
	} else {
		if t.kept == nil {
			t.kept = map[int]*costModel{}
		}
		t.kept[t.now] = &left
		s.cost.forThreads(t.now, e.Threads)
	}
	s.drafts.cost.forThreads(t.now, e.Threads)
	t.now = e.Threads
}

// observeCost lets the cost model learn from a step. It keeps the state from before a run of slow steps: EvThreads may
// say later that other processes caused them, and then they must not count.
func (s *Scheduler) observeCost(e *EvStep) {
	t := &s.threads
	if s.now >= t.calmUntil && s.cost.streak <= 0 {
		t.calm = s.cost
	}
	slow := s.cost.observe(s.batcher.load, e.Took, s.plan.DecodeTokens > 0 && s.plan.PrefillTokens > 0)
	if slow && s.now >= t.calmUntil {
		t.calmUntil = s.now + calmKept
	}
}

// missedCost lets the cost model learn from a step that was given up because it would have taken longer than limit.
func (s *Scheduler) missedCost(limit time.Duration) {
	t := &s.threads
	if s.cost.observeMiss(s.batcher.load, limit) && s.now >= t.calmUntil {
		t.calmUntil = s.now + calmKept
	}
}

// settledCost returns the model of the number of threads that was in use first.
func (s *Scheduler) settledCost() *costModel {
	if m := s.threads.kept[s.threads.first]; m != nil {
		return m
	}
	return &s.cost
}

// forThreads makes the model of one number of threads that of another.
func (m *costModel) forThreads(from, to int) {
	m.streak, m.lastError = 0, 0
	f := math.Pow(float64(from)/float64(to), threadsPower)
	m.scale(f)
	m.alone.ms = min(m.alone.ms*f, 1e9)
	for i := range m.theta {
		d := threadsDoubt * m.theta[i]
		m.cov[i][i] += mul(d, d)
	}
	m.bound()
}
