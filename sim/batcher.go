package sim

import (
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Batcher decides what is in the batches of a server that is not uma-serve: package blis has vLLM's rules. The
// simulator measures. It calls a Batcher from one goroutine.
type Batcher interface {
	// Join adds a request that passed the guards, Remove takes one out wherever it is.
	Join(r *Request)
	Remove(r *Request)
	// Waiting counts the requests that wait; Waiter is the i-th in the order in which they will be tried.
	Waiting() int
	Waiter(i int) *Request
	// Running are the requests of the batch in the order of admission, valid until the next call.
	Running() []*Request

	// Form sets every running request's NewTokens, admits waiting requests and preempts, in a step that begins at now.
	Form(now int64)
	// Stepped is called when the batch has been computed, before Finish.
	Stepped()
	// Finish takes the requests that are done out of the batch, in its order. handOver, which may be nil, is asked
	// about each request whose prompt has just been computed and which is not done; true takes the request away. The
	// result is valid until the next call.
	Finish(handOver func(*Request) bool) []Left

	// Used is the number of KV blocks in use.
	Used() int
	// Transfer is the time of copies that no step has paid for, in microseconds. It forgets that time.
	Transfer() int64
	Stats() (s CacheStats, hitRate, thrashRate float64)
	// Check returns the first broken invariant.
	Check() error
}

// NewBatcher makes a Batcher. It calls admitted when a request leaves the queue for the batch, and preempted when a
// running request loses its cache, after it has left Running and before it forgets its Progress and waits again.
type NewBatcher func(admitted, preempted func(*Request)) Batcher

// Left is a request that left the batch in Finish and owns nothing any more.
type Left struct {
	*Request
	Capped   bool // the longest sequence of the model ended it
	Handed   bool // another server continues it
	Unplaced bool // there was no block for its last token
}

// CacheStats are counters of a Batcher's KV cache since the start.
type CacheStats struct {
	Hits, Misses int64 // device blocks reused, device blocks filled

	HostMisses int64 // failed allocations that the host tier could not help
	Reloads    int64 // blocks brought back
	Offloads   int64 // offload: blocks moved out
	Thrashes   int64 // offload: blocks brought back soon after
	Stores     int64 // mirror: blocks written
	Evictions  int64 // mirror: blocks thrown out
	HostUsed   int64 // blocks on the host now, as BLIS counts them

	Mirror bool // the host tier holds a copy of every full block
}

// batched is the batch formation of a Batcher.
type batched struct{ Batcher }

func newBatched(e *Engine) batched {
	return batched{e.cfg.Batcher(func(b *Request) {
		r := e.live.entry(b)
		if b.Moved() {
			r.ttft, r.ttftSet, r.hasTTFT = b.Spec.FirstToken-b.Spec.Origin, true, true
			r.lastEmit = b.Spec.FirstToken
		}
		e.admitted(r, e.clock)
	}, func(b *Request) {
		r := e.live.entry(b)
		e.m.Preemptions++
		if e.sink.Preempted != nil {
			e.sink.Preempted(&b.Spec, e.clock)
		}
		if len(e.formation.Running()) == 0 {
			e.noteStall(r)
		}
		r.state = Queued
		r.itl, r.itlSum = r.itl[:0], 0
		r.ttftSet = b.Spec.Prefilled // its first token is out, whatever happens to its cache
		if b.Spec.Prefilled {
			r.lastEmit = b.Spec.FirstToken
		}
	})}
}

func (f batched) join(_ *Engine, r *request, _ int64)  { f.Join(&r.Request) }
func (f batched) leave(_ *Engine, r *request, _ int64) { f.Remove(&r.Request) }
func (batched) waits() bool                            { return false }
func (batched) pending() bool                          { return false }
func (batched) overlaps() bool                         { return true }
func (f batched) used() int                            { return f.Used() }
func (f batched) transfer() int64                      { return f.Transfer() }
func (f batched) checkBlocks() error                   { return f.Check() }

func (f batched) totals(t *EngineTotals) { t.KV, t.HitRate, t.ThrashRate = f.Stats() }

func (f batched) form(_ *Engine, now int64) bool {
	f.Form(now)
	return true
}

func (f batched) load(e *Engine, b *latency.Batch, items bool) {
	b.Resident = f.Used() * e.cfg.BlockTokens
	for _, r := range f.Running() {
		if r.NewTokens == 0 {
			continue
		}
		b.Requests++
		b.Attended += sched.Attended(r.Progress, r.NewTokens)
		b.Read += float64(r.Progress + r.NewTokens)
		prefill := r.Prefilling() || r.NewTokens > 1
		if prefill {
			b.PrefillTokens += r.NewTokens
		} else {
			b.DecodeTokens += r.NewTokens
		}
		if r.Progress+r.NewTokens >= r.Spec.Input {
			b.Rows++
		}
		if items {
			b.Items = append(b.Items, latency.Item{Context: r.Progress, New: r.NewTokens, Prefill: prefill})
		}
	}
}

// compute gives every request of the batch its tokens.
func (f batched) compute(e *Engine, now, _, took int64) {
	gap := took + e.overhead
	advanced := false
	for _, b := range f.Running() {
		r := e.live.entry(b)
		decoded, further := b.compute()
		if decoded {
			g := gap
			if r.lastEmit != 0 {
				g, r.lastEmit = now+gap-r.lastEmit, 0
			}
			r.itl = append(r.itl, g)
			r.itlSum += g
		}
		advanced = advanced || further
		if b.Progress == b.Spec.Input && !r.ttftSet {
			r.ttft = now + gap - b.Spec.Arrival
			advanced = advanced || !r.hasTTFT
			r.ttftSet, r.hasTTFT = true, true
		}
	}
	if advanced {
		e.advances++
	}
	f.Stepped()
}

// complete takes the finished requests out of the batch, in its order.
func (f batched) complete(e *Engine, _, end int64) {
	var handOver func(*Request) bool
	if e.sink.Prefilled != nil {
		handOver = func(b *Request) bool {
			return e.sink.Prefilled(&b.Spec, end, b.Spec.Arrival+e.live.entry(b).ttft)
		}
	}
	for _, l := range f.Finish(handOver) {
		r := e.live.entry(l.Request)
		if l.Unplaced {
			e.m.AllocationFailures++
		}
		if l.Handed {
			e.handed(r, end)
			continue
		}
		if r.capped = l.Capped; l.Capped {
			e.m.LengthCapped++
		}
		e.completed(r, end)
	}
}

// handed ends a request here that another server has taken.
func (e *Engine) handed(r *request, end int64) {
	r.state, r.left = Moved, end
	e.advances++
	e.events.push(end, requestLeft, r.Slot, r.gen)
	e.end(r, workload.Moved, end)
}

// completed ends a request that is out of the batch and owns nothing any more.
func (e *Engine) completed(r *request, end int64) {
	r.state, r.lastStep, r.left = Completed, e.steps, end
	r.e2e = r.ttft + r.itlSum + e.model.Finish()
	if checked {
		e.checkEnd(r)
	}
	e.advances++
	e.events.push(end, requestLeft, r.Slot, r.gen)
	e.end(r, workload.Completed, end)
}

// admitted marks a request that came from the queue into the batch.
func (e *Engine) admitted(r *request, now int64) {
	r.state, r.firstStep, r.admitted = Running, e.steps, true
	r.delay = now - r.Spec.Arrival
	e.events.push(now, scheduled, r.Slot, r.gen)
}
