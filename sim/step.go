package sim

import "github.com/uma-serve/uma-serve/sim/latency"

// onStep is one turn: form a batch, compute it, finish what is finished, plan the next turn.
//
// Completions take effect at the step's start although their time is its end; only a step that overlaps this one can
// see the difference (Config.NoOverlap).
func (e *Engine) onStep(now int64) {
	if len(e.running) == 0 && e.queue.n == 0 && !e.former.pending() {
		e.stepDue = false
		return
	}
	e.steps++
	e.kv.SetClock(now)
	before := e.advances
	if !e.former.form(e, now) {
		e.steps--
		return
	}
	took, predicted, transfer := e.stepTime()
	if e.cfg.RecordSteps {
		e.record(now, predicted, transfer)
	}
	e.former.compute(e, now, took)
	used := e.former.used(e)
	e.m.PeakBlocks = max(e.m.PeakBlocks, used)
	e.m.BlockTime += int64(used) * took
	if e.cfg.KVCPUBlocks > 0 {
		for _, r := range e.running {
			e.kv.MirrorBlocks(&r.seq)
		}
	}
	e.former.complete(e, now, now+took)
	e.busyTill = now + took
	if len(e.running) > 0 || e.queue.n > 0 || e.former.pending() {
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
		prefill := r.prefilling() || r.newTokens > 1
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
	s := StepRecord{Step: e.steps, ClockUs: now, LatencyUs: predicted, TransferUs: transfer, QueueLen: e.queue.n, Running: len(e.running), KVUsed: e.former.used(e)}
	for _, r := range e.running {
		if r.newTokens > 0 {
			s.BatchOfStep = append(s.BatchOfStep, BatchItem{r.spec.ID(), r.progress, r.newTokens})
		}
	}
	e.stepLog = append(e.stepLog, s)
}
