package sim

import (
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// onStep is one turn: form a batch, compute it, finish what is finished, plan the next turn.
//
// Completions take effect at the step's start although their time is its end; only a step that overlaps this one can
// see the difference (Config.NoOverlap).
func (e *Engine) onStep(now int64) {
	if len(e.running) == 0 && e.queue.n == 0 {
		e.stepDue = false
		return
	}
	e.steps++
	e.kv.SetClock(now)
	before := e.advances
	e.former.form(e, now)
	took, predicted, transfer := e.stepTime()
	if e.cfg.RecordSteps {
		e.record(now, predicted, transfer)
	}
	e.compute(now, took)
	used := e.kv.Used()
	e.m.PeakBlocks = max(e.m.PeakBlocks, used)
	e.m.BlockTime += int64(used) * took
	if e.cfg.KVCPUBlocks > 0 {
		for _, r := range e.running {
			e.kv.MirrorBlocks(&r.seq)
		}
	}
	e.complete(now, now+took)
	e.former.stepped(e, now, took)
	e.busyTill = now + took
	if len(e.running) > 0 || e.queue.n > 0 {
		e.pushStep(now + took)
	} else {
		e.stepDue = false
	}
	if e.advances == before {
		e.noProgress(now)
	}
}

// stepTime asks the model about the requests that got tokens.
func (e *Engine) stepTime() (took, predicted, transfer int64) {
	b := &e.batch
	*b = latency.Batch{Items: b.Items[:0]}
	items := e.model.NeedsItems()
	for _, r := range e.running {
		if r.newTokens == 0 {
			continue
		}
		b.Requests++
		b.KVTokens += int64(r.progress)
		prefill := r.prefilling()
		if prefill {
			b.PrefillTokens += r.newTokens
		} else {
			b.DecodeTokens += r.newTokens
		}
		if items {
			b.Items = append(b.Items, latency.Item{Context: r.progress, New: r.newTokens, Prefill: prefill})
		}
	}
	predicted = e.model.Step(b)
	transfer = e.kv.TakeTransfer()
	return max(1, predicted+transfer), predicted, transfer
}

// compute gives every request of the batch its tokens.
func (e *Engine) compute(now, took int64) {
	gap := took + e.overhead
	advanced := false
	for _, r := range e.running {
		if r.prefilling() {
			r.progress = r.computed
		} else if r.newTokens > 0 {
			r.progress++
			r.itl = append(r.itl, gap)
			r.itlSum += gap
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
func (e *Engine) complete(now, end int64) {
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
			if e.sink.Prefilled == nil || !r.ttftSet || r.progress != r.spec.Input || !e.sink.Prefilled(&r.spec, end) {
				keep = append(keep, r)
				continue
			}
		}
		e.kv.Release(&r.seq)
		r.state, r.lastStep, r.left = Completed, e.steps, end
		r.e2e = r.ttft + r.itlSum + e.model.Finish()
		e.advances++
		e.events.push(end, requestLeft, r.slot, r.gen)
		e.former.leave(e, r, now)
		e.end(r, workload.Completed, end)
	}
	clear(e.running[len(keep):])
	e.running = keep
}

// StepRecord is one step as a report shows it.
type StepRecord struct {
	Step        int         `json:"step"`
	ClockUs     int64       `json:"clock_us"`
	LatencyUs   int64       `json:"latency_model_us"`
	TransferUs  int64       `json:"transfer_us"`
	QueueLen    int         `json:"wait_queue_len_after_formation"`
	Running     int         `json:"running_after_formation"`
	KVUsed      int         `json:"kv_used_blocks_after_formation"`
	BatchOfStep []BatchItem `json:"batch"` // requests with new tokens, in batch order
}

// BatchItem is one request's part of a step.
type BatchItem struct {
	ID       string `json:"id"`
	Progress int    `json:"progress_before"`
	New      int    `json:"new_tokens"`
}

func (e *Engine) record(now, predicted, transfer int64) {
	s := StepRecord{Step: e.steps, ClockUs: now, LatencyUs: predicted, TransferUs: transfer, QueueLen: e.queue.n, Running: len(e.running), KVUsed: e.kv.Used()}
	for _, r := range e.running {
		if r.newTokens > 0 {
			s.BatchOfStep = append(s.BatchOfStep, BatchItem{r.spec.ID(), r.progress, r.newTokens})
		}
	}
	e.stepLog = append(e.stepLog, s)
}
