package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched"
)

// uma forms batches with the production scheduler: the very sched.Scheduler that the daemon runs, driven by the
// virtual clock. The scheduler owns queueing, admission, preemption and the ledger of KV cells; the simulator plays
// the daemon's part: it tells what happened, decodes what the plan says in the time the latency model gives, and
// answers each row with a token.
//
// A time between tokens is what a client sees: from one token to the next, pauses and preemptions included.
//
// What is not here: prefix sharing and parking, which the daemon's memory manager decides before the scheduler sees a
// request. Prompts are computed whole.
type uma struct {
	s       *sched.Scheduler
	planned func(sched.Instant, []sched.Event, *sched.Plan)
	in      []sched.Event // for the next Step
	byID    map[sched.ReqID]*request
	plan    sched.Plan
	cells   int
	size    int // tokens of a block
	done    []*request
}

func newUma(cfg *Config, planned func(sched.Instant, []sched.Event, *sched.Plan)) (*uma, error) {
	c := SchedConfig(cfg)
	s, err := sched.New(c)
	if err != nil {
		return nil, fmt.Errorf("batch formation uma: %w", err)
	}
	return &uma{s: s, planned: planned, byID: map[sched.ReqID]*request{}, cells: c.Cells, size: cfg.BlockTokens}, nil
}

// SchedConfig is the scheduler configuration of a daemon with this configuration.
func SchedConfig(cfg *Config) sched.Config {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	c := sched.Config{
		Policy: cfg.Policy, MaxRunning: min(cfg.MaxRunning, 4096), MaxBatch: cfg.MaxScheduledTokens, MaxQueue: cfg.MaxQueue,
		Cells: int(min(int64(cfg.KVBlocks)*int64(cfg.BlockTokens), 1<<30)), TickBudget: ms(cfg.TickBudgetMs), Guard: ms(max(0, cfg.GuardMs)),
	}
	if c.Policy == "" {
		c.Policy = sched.Policies()[0]
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = 1 << 24
	}
	if cfg.GuardMs == 0 {
		c.Guard = sched.DefaultGuard
	}
	return c
}

func (u *uma) overlaps() bool   { return false }
func (u *uma) pending() bool    { return len(u.in) > 0 } // the last completions are still to be told
func (u *uma) used(*Engine) int { return (u.s.Stats().LiveCells + u.size - 1) / u.size }

func (u *uma) join(e *Engine, r *request, _ int64) {
	e.queue.join(r)
	id := sched.ReqID(r.spec.Index) + 1
	u.byID[id] = r
	prompt := max(1, r.spec.Input)
	r.limit = u.cells - prompt
	if r.spec.Budget > 0 {
		r.limit = min(r.limit, r.spec.Budget)
	}
	ev := sched.Event{Kind: sched.EvArrive, Req: id, Prompt: prompt, MaxTokens: max(1, r.limit), Thinking: r.spec.Think > 0, Owner: owner(r.spec.Tenant)}
	if c := r.spec.Class; c == "batch" || c == "background" {
		ev.Class = sched.Background
	}
	u.in = append(u.in, ev)
}

// owner stands for the peer uid that the daemon's fairness is keyed by.
func owner(tenant string) uint32 {
	h := uint32(2166136261)
	for i := range len(tenant) {
		h = (h ^ uint32(tenant[i])) * 16777619
	}
	return h
}

func (u *uma) leave(_ *Engine, r *request, _ int64) {
	id := sched.ReqID(r.spec.Index) + 1
	delete(u.byID, id)
	u.in = append(u.in, sched.Event{Kind: sched.EvCancel, Req: id})
}

func (u *uma) form(e *Engine, now int64) bool {
	at := sched.Instant(math.MaxInt64)
	if now < math.MaxInt64/1000 {
		at = sched.Instant(now * 1000)
	}
	u.plan = u.s.Step(at, u.in)
	if u.planned != nil {
		u.planned(at, u.in, &u.plan)
	}
	u.in = u.in[:0]
	for _, r := range e.running {
		r.newTokens = 0
	}
	for _, rel := range u.plan.Release {
		if r := u.byID[rel.Req]; r != nil && !rel.Final {
			e.m.Preemptions++
			if r.state != Running {
				continue // it had a sequence and had computed nothing yet: it still waits here
			}
			r.state, r.progress, r.computed = Queued, 0, 0
			e.running = slices.DeleteFunc(e.running, func(x *request) bool { return x == r })
			if len(e.running) == 0 {
				e.noteStall(r)
			}
			e.queue.rejoin(r)
		} else if r != nil { // alone in the pool and still without room
			u.lost(e, r, now, Dropped)
		}
	}
	for _, rej := range u.plan.Reject {
		if r := u.byID[rej.Req]; r != nil {
			state := Rejected
			if rej.Reason == sched.ReasonPromptTooLong {
				state = Dropped
			}
			u.lost(e, r, now, state)
		}
	}
	for _, sl := range u.plan.Batch {
		r := u.byID[sl.Req]
		r.newTokens, r.computed = sl.N, sl.Start+sl.N
		if r.state != Running {
			e.queue.remove(r)
			e.running = append(e.running, r)
			e.admitted(r, now)
		}
	}
	if len(u.plan.Batch) > 0 {
		return true
	}
	e.stepDue = false
	if u.plan.WakeAt > 0 {
		e.pushStep(max(now+1, (int64(u.plan.WakeAt)+999)/1000))
	}
	return false
}

// lost ends a request that the scheduler does not serve.
func (u *uma) lost(e *Engine, r *request, now int64, state State) {
	delete(u.byID, sched.ReqID(r.spec.Index)+1)
	if r.state == Running {
		e.running = slices.DeleteFunc(e.running, func(x *request) bool { return x == r })
	} else {
		e.queue.remove(r)
	}
	r.state = state
	if state == Rejected {
		e.m.Rejected++
	} else {
		e.m.Dropped++
	}
	e.refused(r, now)
}

func (u *uma) compute(e *Engine, now, took int64) {
	u.in = append(u.in, sched.Event{Kind: sched.EvStep, Took: time.Duration(took) * time.Microsecond})
	seen := now + took + e.overhead
	u.done = u.done[:0]
	for i := range u.plan.Batch {
		sl := &u.plan.Batch[i]
		r := u.byID[sl.Req]
		r.progress = r.computed
		if r.progress > r.highWater {
			r.highWater = r.progress
			e.advances++
		}
		if sl.Row < 0 {
			continue
		}
		r.tokens++
		if r.tokens == 1 {
			r.ttft = seen - r.spec.Arrival
			r.ttftSet, r.hasTTFT = true, true
		} else {
			gap := seen - r.lastEmit
			r.itl = append(r.itl, gap)
			r.itlSum += gap
		}
		r.lastEmit = seen
		ev := sched.Event{Kind: sched.EvToken, Req: sl.Req, Thinking: r.tokens < r.spec.Think}
		switch {
		case r.tokens >= max(1, r.spec.Output):
			ev = sched.Event{Kind: sched.EvFinish, Req: sl.Req, Finish: sched.ReasonStop}
		case r.tokens >= r.limit:
			ev = sched.Event{Kind: sched.EvFinish, Req: sl.Req, Finish: sched.ReasonLength}
			r.capped = true
			e.m.LengthCapped++
		}
		if ev.Kind == sched.EvFinish {
			delete(u.byID, sl.Req)
			u.done = append(u.done, r)
		}
		u.in = append(u.in, ev)
	}
}

func (u *uma) complete(e *Engine, _, end int64) {
	for _, r := range u.done {
		e.running = slices.DeleteFunc(e.running, func(x *request) bool { return x == r })
		e.completed(r, end)
	}
}
