package sim

import (
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// vllm forms batches as vLLM does: running requests first, each up to its next chunk or token, then new ones while
// the token budget lasts.
//
// What it optimises: throughput with a bounded number of tokens a step. What it gives up: a long prompt still fills
// every step up to the budget, and the request that was admitted last pays for a full cache.
type vllm struct{}

func (vllm) join(e *Engine, r *request, _ int64) { e.queue.join(r) }
func (vllm) leave(*Engine, *request, int64)      {}
func (vllm) pending() bool                       { return false }
func (vllm) used(e *Engine) int                  { return e.kv.Used() }
func (vllm) overlaps() bool                      { return true }

func (vllm) form(e *Engine, now int64) bool {
	budget := e.cfg.MaxScheduledTokens
	for _, r := range e.running {
		r.newTokens = 0
	}
	preempted := false
	size, limit := e.cfg.BlockTokens, e.cfg.MaxModelLen

	// Phase 1: those that run, in order of admission. The length is read anew each time: the tail may be evicted.
	for i := 0; i < len(e.running) && budget > 0; i++ {
		r := e.running[i]
		n := r.spec.Input
		k := 1
		if r.progress < n {
			k = e.chunk(n-r.progress, r.progress, budget)
		} else if r.spec.Output == 0 || limit > 0 && r.progress+1 > limit-1 {
			continue
		} else if r.seq.Room(size) {
			r.newTokens, budget = 1, budget-1
			r.computed++
			continue
		}
		ok, evicted := e.makeRoom(r, k)
		preempted = preempted || evicted > 0
		if !ok {
			break
		}
		r.newTokens = k
		r.computed += k
		budget -= k
	}
	if checked {
		e.checkPhase1(budget)
	}
	if preempted {
		return true
	}

	// Phase 2: new ones from the head of the queue; the first that does not fit stops it.
	for len(e.running) < e.cfg.MaxRunning && e.queue.n > 0 && budget > 0 {
		r := e.queue.first()
		n := r.spec.Input
		if r.spec.Prefilled && !r.lostKV {
			if !e.place(r, now) {
				break
			}
			budget--
			continue
		}
		cached := e.kv.Lookup(&r.seq.ID, n)
		start := len(cached) * size
		k := e.chunk(n-start, start, budget)
		if !e.kv.Allocate(&r.seq, n, r.prefilling(), start, start+k, cached) {
			break
		}
		e.queue.popFirst()
		e.running = append(e.running, r)
		budget -= k
		r.newTokens, r.computed = k, start+k
		e.admitted(r, now)
	}
	return true
}

// place admits a request whose prompt came computed: it needs room for it and decodes at once.
func (e *Engine) place(r *request, now int64) bool {
	n := r.spec.Input
	cached := e.kv.Lookup(&r.seq.ID, n)
	start := len(cached) * e.cfg.BlockTokens
	if !e.kv.Allocate(&r.seq, n, true, start, n, cached) {
		return false
	}
	if !e.kv.Allocate(&r.seq, n, false, n, n+1, nil) {
		e.kv.Release(&r.seq)
		return false
	}
	e.queue.popFirst()
	e.running = append(e.running, r)
	r.progress, r.computed, r.newTokens = n, n+1, 1
	r.ttft, r.ttftSet, r.hasTTFT = r.spec.FirstToken-r.spec.Origin, true, true
	r.lastEmit = r.spec.FirstToken
	e.admitted(r, now)
	return true
}

// chunk is how many of the left prompt tokens, which begin at from, a step may take.
func (e *Engine) chunk(left, from, budget int) int {
	k := left
	if t := e.cfg.LongPrefill; t > 0 && k > t {
		k = t
	}
	k = min(k, budget)
	if limit := e.cfg.MaxModelLen; limit > 0 {
		k = min(k, max(limit-1-from, 0))
	}
	return k
}

// admitted marks a request that came from the queue into the batch.
func (e *Engine) admitted(r *request, now int64) {
	r.state, r.firstStep, r.admitted = Running, e.steps, true
	r.delay = now - r.spec.Arrival
	e.events.push(now, scheduled, r.slot, r.gen)
}

// makeRoom allocates the next k tokens of a running request, evicting from the batch's tail until they fit. It fails
// when the request had to evict itself.
func (e *Engine) makeRoom(r *request, k int) (ok bool, evicted int) {
	for !e.kv.Allocate(&r.seq, r.spec.Input, r.prefilling(), r.progress, r.progress+k, nil) {
		if len(e.running) == 0 {
			return false, evicted
		}
		v := e.running[len(e.running)-1]
		e.running[len(e.running)-1] = nil
		e.running = e.running[:len(e.running)-1]
		evicted++
		e.preempt(v)
		if v == r {
			return false, evicted
		}
	}
	return true, evicted
}

// preempt puts a request back into the queue with nothing computed. It keeps the hashes of its blocks findable.
func (e *Engine) preempt(v *request) {
	e.m.Preemptions++
	if len(e.running) == 0 {
		e.noteStall(v)
	}
	v.state = Queued
	v.forget()
	e.kv.Preempt(&v.seq, v.spec.Input)
	e.queue.rejoin(v)
}

func (f vllm) load(e *Engine, b *latency.Batch, items bool) {
	b.Resident = f.used(e) * e.cfg.BlockTokens
	for _, r := range e.running {
		if r.newTokens == 0 {
			continue
		}
		b.Requests++
		b.Attended += sched.Attended(r.progress, r.newTokens)
		b.Read += float64(r.progress + r.newTokens)
		prefill := r.prefilling() || r.newTokens > 1
		if prefill {
			b.PrefillTokens += r.newTokens
		} else {
			b.DecodeTokens += r.newTokens
		}
		if r.progress+r.newTokens >= r.spec.Input {
			b.Rows++
		}
		if items {
			b.Items = append(b.Items, latency.Item{Context: r.progress, New: r.newTokens, Prefill: prefill})
		}
	}
}

// compute gives every request of the batch its tokens.
func (vllm) compute(e *Engine, now, _, took int64) {
	gap := took + e.overhead
	advanced := false
	for _, r := range e.running {
		if r.prefilling() {
			r.progress = r.computed
		} else if r.newTokens > 0 {
			r.progress++
			g := gap
			if r.lastEmit != 0 {
				g, r.lastEmit = now+gap-r.lastEmit, 0
			}
			r.itl = append(r.itl, g)
			r.itlSum += g
		}
		if r.progress > r.highWater {
			r.highWater = r.progress
			advanced = true
		}
		if r.progress == r.spec.Input && !r.ttftSet {
			r.ttft = now + gap - r.spec.Arrival
			advanced = advanced || !r.hasTTFT
			r.ttftSet, r.hasTTFT = true, true
		}
	}
	if advanced {
		e.advances++
	}
}

// complete takes the finished requests out of the batch, in its order.
func (vllm) complete(e *Engine, now, end int64) {
	limit := e.cfg.MaxModelLen
	keep := e.running[:0]
	for _, r := range e.running {
		done := r.progress >= r.lastProgress()
		switch {
		case done:
			n, m := r.spec.Input, r.spec.Output
			if m > 0 && r.progress < n+m && !e.kv.Allocate(&r.seq, n, false, r.progress, r.progress+1, nil) {
				e.m.AllocationFailures++
			}
		case limit > 0 && r.progress >= limit-1:
			r.capped = true
			e.m.LengthCapped++
		default:
			if e.sink.Prefilled == nil || r.progress != r.spec.Input || !e.sink.Prefilled(&r.spec, end, r.spec.Arrival+r.ttft) {
				keep = append(keep, r)
				continue
			}
			e.kv.Release(&r.seq)
			r.state, r.left = Moved, end
			e.advances++
			e.events.push(end, requestLeft, r.slot, r.gen)
			e.end(r, workload.Moved, end)
			continue
		}
		e.kv.Release(&r.seq)
		e.completed(r, end)
	}
	clear(e.running[len(keep):])
	e.running = keep
}

// completed ends a request that is out of the batch and owns nothing any more.
func (e *Engine) completed(r *request, end int64) {
	r.state, r.lastStep, r.left = Completed, e.steps, end
	r.e2e = r.ttft + r.itlSum + e.model.Finish()
	if checked {
		e.checkEnd(r)
	}
	e.advances++
	e.events.push(end, requestLeft, r.slot, r.gen)
	e.end(r, workload.Completed, end)
}
