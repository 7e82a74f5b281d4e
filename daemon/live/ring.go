package live

import (
	"sync/atomic"
	"time"
)

// Step is a decode step in a live view.
type Step struct {
	End    time.Duration // since the loop's epoch
	Took   time.Duration
	Prompt int32 // rows
	Think  int32
	Answer int32
	Probe  int32
}

// ringSize is the ring's capacity: the steps of liveEvery at 8,000 steps/s.
const ringSize = 4096

// Ring carries step records from the decode loop to the live sampler: one writer, one reader, no lock. When the
// reader is late, new records are dropped and counted; the writer never waits.
type Ring struct {
	head atomic.Uint64 // records put; written by the decode loop
	_    [56]byte      // keeps the two ends on different cache lines
	tail atomic.Uint64 // records taken; written by the sampler
	_    [56]byte

	dropped atomic.Uint64 // written by the decode loop
	records [ringSize]Step
}

// Put adds a record. Decode loop only.
func (r *Ring) Put(s Step) {
	head := r.head.Load()
	if head-r.tail.Load() == ringSize {
		r.dropped.Add(1)
		return
	}
	r.records[head%ringSize] = s
	r.head.Store(head + 1)
}

// take calls each with the records in the ring, oldest first, and removes them. Sampler only.
func (r *Ring) take(each func(*Step)) {
	head, tail := r.head.Load(), r.tail.Load()
	for ; tail != head; tail++ {
		each(&r.records[tail%ringSize])
		r.tail.Store(tail + 1)
	}
}

// Gaps sums up a request's inter-token times since the last live sample. Owned by the decode loop.
type Gaps struct {
	N, Late  int
	Sum, Max time.Duration
}

// Add adds a time. late: it misses the request's ITL target.
func (g *Gaps) Add(took time.Duration, late bool) {
	g.N++
	g.Sum += took
	g.Max = max(g.Max, took)
	if late {
		g.Late++
	}
}
