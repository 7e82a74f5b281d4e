package sim

import (
	"math"
	"math/rand"
	"time"

	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// onStep is one turn: form a batch, compute it, end the requests that are complete, plan the next turn.
//
// Completions take effect at the step's start although their time is its end; only a step that overlaps this one can
// see the difference (Config.NoOverlap).
func (e *Engine) onStep(now int64) {
	if len(e.formation.Running()) == 0 && e.formation.Waiting() == 0 && !e.formation.pending() {
		e.stepDue = false
		e.endTurn(now, now)
		return
	}
	if !e.takeTurn(now) {
		return
	}
	e.steps++
	before := e.advances
	if !e.formation.form(e, now) {
		e.steps--
		e.endTurn(now, max(now, e.busyTill))
		return
	}
	took, predicted, transfer, between := e.stepTime(now)
	if e.cfg.RecordSteps {
		e.record(now, predicted, transfer)
	}
	e.formation.compute(e, now, took-between, took)
	if e.device != nil {
		e.device.turns[e.place].Steps++
		e.endTurn(now, now+took)
	}
	used := e.formation.used()
	e.m.PeakBlocks = max(e.m.PeakBlocks, used)
	e.m.BlockTime += int64(used) * took
	e.formation.complete(e, now, now+took)
	e.busyTill = now + took
	if len(e.formation.Running()) > 0 || e.formation.Waiting() > 0 || e.formation.pending() {
		e.pushStep(now + took)
	} else {
		e.stepDue = false
	}
	if e.advances == before {
		e.noProgress()
	}
}

// stepTime asks the model, or the fake engine, about the batch. took is all that passes until the next step, between
// what of it lies after the engine's part.
func (e *Engine) stepTime(now int64) (took, predicted, transfer, between int64) {
	b := &e.batch
	*b = latency.Batch{Items: b.Items[:0]}
	e.formation.load(e, b, e.model.NeedsItems())
	u, _ := e.formation.(*uma)
	if u != nil && u.eng != nil {
		predicted = int64(u.decode() / time.Microsecond)
	}
	if predicted == 0 {
		predicted = e.model.Step(b)
	}
	predicted = e.noise.apply(predicted)
	if u != nil {
		predicted = u.cpu.stretch(now, predicted)
	}
	transfer = e.formation.transfer()
	if c := e.cfg.BetweenUs; len(c) == 2 {
		between = latency.Ticks(c[0] + float64(c[1]*float64(b.Rows)))
	}
	if u != nil {
		// the engine does nothing meanwhile, and the scheduler does not take it for its time
		between += u.stores.passed()
	}
	return max(1, predicted+transfer) + between, predicted, transfer, between
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
	s := StepRecord{Step: e.steps, ClockUs: now, LatencyUs: predicted, TransferUs: transfer,
		QueueLen: e.formation.Waiting(), Running: len(e.formation.Running()), KVUsed: e.formation.used()}
	for _, r := range e.formation.Running() {
		if r.NewTokens > 0 {
			s.BatchOfStep = append(s.BatchOfStep, BatchItem{r.Spec.ID(), r.Progress, r.NewTokens})
		}
	}
	e.stepLog = append(e.stepLog, s)
}

// noise varies the steps' durations around what the model says, as a machine does: as steps were measured to, or by a
// factor whose mean is 1 and whose logarithm is normal, so that none is negative and some are far longer.
type noise struct {
	rng    *rand.Rand // nil = no noise
	spread latency.Spread
	mu     float64 // of the logarithm, when there is no spread
	sigma  float64
}

func newNoise(cfg *Config) noise {
	if len(cfg.CostSpread) == 0 && cfg.CostNoise <= 0 {
		return noise{}
	}
	s2 := math.Log1p(cfg.CostNoise)
	return noise{rng: workload.Stream(cfg.Seed, "step-noise"), spread: cfg.CostSpread, mu: -s2 / 2,
		sigma: math.Sqrt(s2)}
}

func (n *noise) apply(us int64) int64 {
	if n.rng == nil {
		return us
	}
	if len(n.spread) > 0 {
		return max(1, latency.Ticks(n.spread.At(float64(us), n.rng.Float64())))
	}
	return max(1, latency.Ticks(float64(us)*math.Exp(n.mu+float64(n.sigma*n.rng.NormFloat64()))))
}
