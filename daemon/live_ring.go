package daemon

import (
	"sync/atomic"
	"time"
)

// stepRecord is a decode step in a live view.
type stepRecord struct {
	end    time.Duration // since the loop's epoch
	took   time.Duration
	prompt int32 // rows
	think  int32
	answer int32
	probe  int32
}

// stepRingSize is the ring's capacity: the steps of liveEvery at 8,000 steps/s.
const stepRingSize = 4096

// stepRing carries step records from the decode loop to the live sampler: one writer, one reader, no lock. When the
// reader is late, new records are dropped and counted; the writer never waits.
type stepRing struct {
	head atomic.Uint64 // records put; written by the decode loop
	_    [56]byte      // keeps the two ends on different cache lines
	tail atomic.Uint64 // records taken; written by the sampler
	_    [56]byte

	dropped atomic.Uint64 // written by the decode loop
	records [stepRingSize]stepRecord
}

// put adds a record. Decode loop only.
func (r *stepRing) put(s stepRecord) {
	head := r.head.Load()
	if head-r.tail.Load() == stepRingSize {
		r.dropped.Add(1)
		return
	}
	r.records[head%stepRingSize] = s
	r.head.Store(head + 1)
}

// take calls each with the records in the ring, oldest first, and removes them. Sampler only.
func (r *stepRing) take(each func(*stepRecord)) {
	head, tail := r.head.Load(), r.tail.Load()
	for ; tail != head; tail++ {
		each(&r.records[tail%stepRingSize])
		r.tail.Store(tail + 1)
	}
}

// gapSum sums up a request's inter-token times since the last live sample. Owned by the decode loop.
type gapSum struct {
	n, late  int
	sum, max time.Duration
}

func (g *gapSum) add(took time.Duration, late bool) {
	g.n++
	g.sum += took
	g.max = max(g.max, took)
	if late {
		g.late++
	}
}
