package sim

import (
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// vllm forms batches with the rules of BLIS: package blis decides, the simulator measures.
type vllm struct{}

// newVLLM connects the engine's server with what the engine measures of its requests.
func newVLLM(e *Engine) vllm {
	e.server.Admitted = func(b *blis.Request) {
		r := e.live.entry(b)
		if b.Moved() {
			r.ttft, r.ttftSet, r.hasTTFT = b.Spec.FirstToken-b.Spec.Origin, true, true
			r.lastEmit = b.Spec.FirstToken
		}
		e.admitted(r, e.clock)
	}
	e.server.Preempted = func(b *blis.Request) {
		r := e.live.entry(b)
		e.m.Preemptions++
		if len(e.server.Running) == 0 {
			e.noteStall(r)
		}
		r.state = Queued
		r.itl, r.itlSum = r.itl[:0], 0
		r.ttftSet = b.Spec.Prefilled // its first token is out, whatever happens to its cache
		if b.Spec.Prefilled {
			r.lastEmit = b.Spec.FirstToken
		}
	}
	return vllm{}
}

func (vllm) join(e *Engine, r *request, _ int64) { e.server.Queue.Join(&r.Request) }
func (vllm) leave(*Engine, *request, int64)      {}
func (vllm) waits() bool                         { return false }
func (vllm) pending() bool                       { return false }
func (vllm) used(e *Engine) int                  { return e.server.KV.Used() }
func (vllm) overlaps() bool                      { return true }

func (vllm) form(e *Engine, _ int64) bool {
	e.server.Form()
	return true
}

func (f vllm) load(e *Engine, b *latency.Batch, items bool) {
	b.Resident = f.used(e) * e.cfg.BlockTokens
	for _, r := range e.server.Running {
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
func (vllm) compute(e *Engine, now, _, took int64) {
	gap := took + e.overhead
	advanced := false
	for _, b := range e.server.Running {
		r := e.live.entry(b)
		decoded, further := b.Compute()
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
}

// complete takes the finished requests out of the batch, in its order.
func (vllm) complete(e *Engine, _, end int64) {
	var handOver func(*blis.Request) bool
	if e.sink.Prefilled != nil {
		handOver = func(b *blis.Request) bool {
			return e.sink.Prefilled(&b.Spec, end, b.Spec.Arrival+e.live.entry(b).ttft)
		}
	}
	for _, l := range e.server.Finish(handOver) {
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
