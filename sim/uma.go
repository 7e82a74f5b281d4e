package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// uma forms batches with the production code, driven by the virtual clock: package core decides everything, the simulator
// is the shell around it. It hands in what happened, lets copies and decodes take the time that the latency model gives, and
// answers each row with a token. With Config.Engine "fake" the batches and every copy and removal of cells really go to a
// runtime/fake engine.
//
// An inter-token latency is what a client sees: from one token to the next, pauses and preemptions included.
type uma struct {
	c      *core.Core
	stores *stores      // nil: cells that are evicted are computed again
	eng    *fake.Engine // nil: only the time of a batch is asked for
	think  *thinkModel

	step   *core.Step
	result core.Result
	byID   map[core.ID]*served // until they have ended
	ended  []*served           // that still have a sequence
	spare  []*served

	runs      latency.Runs
	probeRows int // the most rows a fork has: it must fit into a batch beside its decode
	checked   int

	cells  int
	size   int // tokens of a block
	prompt int64
	cached int64 // of prompt tokens: those that need not be computed
	done   []*request
	ids    []core.Token
}

// served joins a request of the core with the simulator's.
type served struct {
	core.Request
	r *request // nil once it has ended
	t thought
}

// maxFakeCells bounds the pool of a fake engine, which keeps every cell.
const maxFakeCells = 1 << 22

func newUma(cfg *Config, model latency.Model, planned func(sched.Instant, []sched.Event, *sched.Plan)) (*uma, error) {
	s := SchedConfig(cfg)
	u := &uma{probeRows: max(0, s.MaxBatch-1), byID: map[core.ID]*served{}, cells: s.Cells, size: cfg.BlockTokens}
	c := core.Config{
		Sched: s, Sequences: core.Sequences(s.MaxRunning, !cfg.NoPrefixCache), CellBytes: 1, BlockCells: cfg.BlockTokens, NoPrefixCache: cfg.NoPrefixCache,
		CanRemoveRange: true, CanShift: true, ThinkEvict: cfg.ThinkEvict, ContextShift: cfg.ContextShift, Planned: planned,
		Tokens: func(r *core.Request) {
			q := r.Data.(*served)
			r.Tokens = slices.Grow(r.Tokens, r.Prompt+min(q.r.spec.Output, r.MaxTokens)) // the slice's room decides nothing
			r.Tokens = q.r.seq.ID.AppendTokens(r.Tokens, 0, r.Prompt)
		},
	}
	if u.stores = newStores(cfg); u.stores != nil {
		c.Stores, c.PartTokens, c.Durable = u.stores, cfg.KVPartTokens, cfg.KVDiskBlocks > 0 || cfg.KVFabric
		c.CopyPerToken = time.Duration(cfg.KVTierUs[core.Host-1] * float64(time.Microsecond))
	}
	var err error
	if u.c, err = core.New(c); err != nil {
		return nil, fmt.Errorf("batch formation uma: %w", err)
	}
	if u.think, err = newThinkModel(cfg.ThinkBudget); err != nil {
		return nil, err
	}
	if cfg.Engine == "fake" {
		if s.Cells > maxFakeCells {
			return nil, fmt.Errorf("batch formation uma: the fake engine keeps every cell and takes up to %d; the cache has %d", maxFakeCells, s.Cells)
		}
		f := fake.Config{Seed: uint64(cfg.Seed)}
		f.ContextTokens, f.Batch, f.Sequences = s.Cells, s.MaxBatch, c.Sequences
		if m, ok := model.(*latency.Calibrated); ok && m.Curve == nil {
			f.Cost = fake.Cost{BaseMs: m.Cost.A, PrefillMs: m.Cost.B, DecodeMs: m.Cost.C, KVMs: m.Cost.D}
		}
		u.eng = fake.New(f)
	}
	return u, nil
}

// SchedConfig is the scheduler configuration of a daemon with this configuration.
func SchedConfig(cfg *Config) sched.Config {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	var c sched.Config
	if cfg.Base != nil {
		c = *cfg.Base
	}
	c.Policy, c.MaxRunning, c.MaxBatch, c.MaxQueue = cfg.Policy, min(cfg.MaxRunning, core.MaxRunning(core.MaxSequences)), cfg.MaxScheduledTokens, cfg.MaxQueue
	c.Cells = int(min(int64(cfg.KVBlocks)*int64(cfg.BlockTokens), 1<<30))
	for _, f := range []struct {
		v  *time.Duration
		ms float64
	}{{&c.TickBudget, cfg.TickBudgetMs}, {&c.ITLTarget, cfg.ITLTargetMs}, {&c.ThinkFloor, cfg.ThinkFloorMs}} {
		if f.ms > 0 {
			*f.v = ms(f.ms)
		}
	}
	switch {
	case cfg.GuardMs > 0:
		c.Guard = ms(cfg.GuardMs)
	case cfg.GuardMs < 0:
		c.Guard = 0
	case cfg.Base == nil:
		c.Guard = sched.DefaultGuard
	}
	if cfg.MaxBackground > 0 {
		c.Limits[sched.Background].MaxRunning = cfg.MaxBackground
	}
	if c.Policy == "" {
		c.Policy = sched.Policies()[0]
	}
	if c.Policy == "stock" || c.Policy == "meridian_static" {
		c.Limits[sched.Background] = sched.ClassLimits{} // they know no classes
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = 1 << 24
	}
	if cfg.CostState != nil {
		c.Cost = *cfg.CostState
	}
	return core.SchedConfig(c)
}

func (u *uma) overlaps() bool { return false }

// pending: the last completions are still to be told, or a request waits for a restore.
func (u *uma) pending() bool { return u.c.Pending() }

func (u *uma) used(*Engine) int {
	c := u.c.Tree().Cells()
	return (c.Own + c.Shared + c.Pinned + u.size - 1) / u.size
}

// hitRate is the share of prompt tokens that did not have to be computed.
func (u *uma) hitRate() float64 { return ratio(u.cached, u.prompt) }

func (u *uma) join(e *Engine, r *request, now int64) {
	e.queue.join(r)
	q := &served{}
	if n := len(u.spare); n > 0 {
		q = u.spare[n-1]
		u.spare = u.spare[:n-1]
	}
	prompt := max(1, r.spec.Input)
	r.limit = u.cells - prompt
	if r.spec.Budget > 0 {
		r.limit = min(r.limit, r.spec.Budget)
	}
	*q = served{r: r, Request: core.Request{
		ID: core.ID(r.spec.Index) + 1, Owner: owner(r.spec.Tenant), Arrived: instant(r.spec.Arrival), Prompt: prompt, MaxTokens: max(1, r.limit),
		TargetTTFT: time.Duration(r.spec.TargetTTFT) * time.Microsecond, TargetITL: time.Duration(r.spec.TargetTBT) * time.Microsecond,
		Resident: r.spec.Resident, Tokens: q.Tokens[:0],
	}}
	q.Data = q
	if c := r.spec.Class; c == "batch" || c == "background" {
		q.Class = sched.Background
	}
	q.t = thought{model: u.think, spec: &r.spec, most: u.probeRows}
	q.t.start()
	q.Control = &q.t
	u.byID[q.ID] = q
	u.c.Handle(instant(now), core.Input{Kind: core.Arrive, Request: &q.Request})
}

// owner stands for the peer uid that the daemon's fairness and its prefix tree's namespaces are keyed by.
func owner(tenant string) uint32 {
	if uid, ok := workload.UID(tenant); ok {
		return uid
	}
	h := uint32(2166136261)
	for i := range len(tenant) {
		h = (h ^ uint32(tenant[i])) * 16777619
	}
	return h
}

func (u *uma) leave(_ *Engine, r *request, now int64) {
	q := u.byID[core.ID(r.spec.Index)+1]
	u.forget(q)
	u.c.Handle(instant(now), core.Input{Kind: core.Cancel, Req: q.ID})
}

// forget ends what u knows of a request. Core has it until its sequence is released.
func (u *uma) forget(q *served) {
	delete(u.byID, q.ID)
	u.runs.End(uint64(q.ID))
	q.r = nil
	u.ended = append(u.ended, q)
}

// reuse takes back the structs of requests that core has let go of.
func (u *uma) reuse() {
	rest := u.ended[:0]
	for _, q := range u.ended {
		if q.Ended() && q.Seq() == core.NoSeq {
			u.spare = append(u.spare, q)
		} else {
			rest = append(rest, q)
		}
	}
	clear(u.ended[len(rest):])
	u.ended = rest
}

// instant is a tick on the core's axis.
func instant(us int64) core.Instant { return core.Instant(min(us, math.MaxInt64/1000) * 1000) }

func (u *uma) form(e *Engine, now int64) bool {
	at := instant(now)
	for _, r := range e.running {
		r.newTokens = 0
	}
	u.reuse()
	for {
		u.stores.arrive(u.c, now)
		u.step = u.c.Next(at)
		copied := u.carryOut(e, now)
		if len(u.step.Plan.Batch) > 0 {
			u.admit(e, now)
			return true
		}
		u.c.Done(at, &u.result)
		if u.step.Idle || copied > 0 {
			u.sleep(e, now, copied)
			return false
		}
	}
}

// sleep plans the next turn of a server that has nothing to compute, after copies that took so many microseconds.
func (u *uma) sleep(e *Engine, now, copied int64) {
	e.stepDue = false
	next, ok := u.stores.next(u.c)
	if w := u.step.WakeAt; w > 0 {
		wake := (int64(w) + 999) / 1000
		if !ok || wake < next {
			next, ok = wake, true
		}
	}
	if !u.step.Idle {
		next, ok = now, true
	}
	if ok {
		e.pushStep(max(next, now+max(copied, 1)))
	}
	e.busyTill = max(e.busyTill, now+copied)
	u.stores.passed()
}

// admit moves the requests of the batch from the simulator's queue to its running ones.
func (u *uma) admit(e *Engine, now int64) {
	for i := range u.step.Plan.Batch {
		sl := &u.step.Plan.Batch[i]
		if sl.Kind == sched.SliceProbe {
			continue
		}
		r := u.byID[sl.Req].r
		r.newTokens, r.progress, r.computed = sl.N, sl.Start, sl.Start+sl.N
		if r.state != Running {
			e.queue.remove(r)
			e.running = append(e.running, r)
			e.admitted(r, now)
		}
	}
}

// carryOut does what comes before the batch, and returns the microseconds that the copies take.
func (u *uma) carryOut(e *Engine, now int64) (copied int64) {
	res := &u.result
	*res = core.Result{Copies: res.Copies[:0]}
	failed := false
	for i := range u.step.Ops {
		op := &u.step.Ops[i]
		switch op.Kind {
		case core.SeqCopy, core.SeqRemove, core.SeqShift:
			u.sequence(op)
		case core.Compute:
			u.fill(op.Dst, op.Tokens, op.From, op.To)
		case core.Fetch:
			u.stores.fetch(op, now)
		case core.SkipPart:
			u.stores.skip(op)
		case core.CloseFetch:
			u.stores.close(op)
		case core.CopyIn:
			e.advances++
			d := u.stores.copyIn(op, now)
			u.fill(op.Dst, op.Tokens, op.From, min(d.To, op.Limit))
			res.Copies = append(res.Copies, d)
			res.CopyTokens += d.To - op.From
		case core.CopyOut:
			if failed = op.Follows && failed || !u.stores.put(op.NS, op.Tokens, op.From); failed {
				res.CopyFailed = true
				continue
			}
			u.stores.spend(op.To - op.From)
			res.CopyTokens += op.To - op.From
		}
	}
	copied = u.stores.debtUs()
	res.CopyTook = time.Duration(copied) * time.Microsecond
	u.told(e, now)
	if checked {
		u.check()
	}
	return copied
}

// told counts and ends what the step says of requests.
func (u *uma) told(e *Engine, now int64) {
	for i := range u.step.Notes {
		n := &u.step.Notes[i]
		switch n.Kind {
		case core.Started:
			if n.First {
				u.prompt += int64(n.Request.Prompt)
				u.cached += int64(min(n.N, n.Request.Prompt))
			}
		case core.Preempted:
			e.m.Preemptions++
			u.runs.End(uint64(n.Request.ID))
			r := n.Request.Data.(*served).r
			if r == nil || r.state != Running {
				continue // it had a sequence and had computed nothing yet: it still waits here
			}
			r.state, r.progress, r.computed = Queued, 0, 0
			e.running = slices.DeleteFunc(e.running, func(x *request) bool { return x == r })
			if len(e.running) == 0 {
				e.noteStall(r)
			}
			e.queue.rejoin(r)
		}
	}
	for i := range u.step.Ends {
		end := &u.step.Ends[i]
		q := u.byID[end.Request.ID]
		if q == nil {
			continue // it left: the simulator knows
		}
		state := Dropped // alone in the pool and still without room
		if end.Kind == core.Rejected && end.Reason != sched.ReasonPromptTooLong {
			state = Rejected
		}
		u.lost(e, q, now, state)
	}
	for _, r := range u.step.Histories {
		u.c.Handle(instant(now), core.Input{Kind: core.History, Req: r.ID})
	}
}

// lost ends a request that the scheduler does not serve.
func (u *uma) lost(e *Engine, q *served, now int64, state State) {
	r := q.r
	u.forget(q)
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

// load is what the plan's batch computes, as the daemon's cost model counts it.
func (u *uma) load(_ *Engine, b *latency.Batch, items bool) {
	b.Requests, b.PrefillTokens, b.DecodeTokens = len(u.step.Plan.Batch), u.step.Plan.PrefillTokens, u.step.Plan.DecodeTokens+u.step.Plan.ProbeTokens
	continues := u.runs.Step(workload.Only(&u.step.Plan))
	b.Resident = u.cells - u.c.Tree().Cells().Free + u.step.Plan.Tokens
	for i := range u.step.Plan.Batch {
		sl := &u.step.Plan.Batch[i]
		b.Attended += sched.Attended(sl.Start, sl.N)
		b.Read += float64(sl.Start + sl.N)
		b.Runs += u.runs.Of(uint64(sl.Req), continues)
		if sl.Row >= 0 {
			b.Rows++
		}
		if items {
			b.Items = append(b.Items, latency.Item{Context: sl.Start, New: sl.N, Prefill: sl.Kind == sched.SlicePrefill})
		}
	}
}

// compute carries the batch out and answers each of its rows with a token.
func (u *uma) compute(e *Engine, now, decoded, took int64) {
	u.result.Took = time.Duration(decoded) * time.Microsecond
	at := instant(now + took)
	u.c.Done(at, &u.result)
	seen := now + took + e.overhead
	u.done = u.done[:0]
	for i := range u.step.Plan.Batch {
		sl := &u.step.Plan.Batch[i]
		q := u.byID[sl.Req]
		if sl.Kind == sched.SliceProbe {
			if q != nil {
				u.c.Probed(&q.Request, 0, true)
			}
			continue
		}
		r := q.r
		r.progress = r.computed
		if r.progress > r.highWater {
			r.highWater = r.progress
			e.advances++
		}
		if sl.Row >= 0 {
			u.token(e, q, now, seen, took)
		}
	}
}

// token answers a row of q.
func (u *uma) token(e *Engine, q *served, now, seen, took int64) {
	r := q.r
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
	at := instant(now + took)
	u.ids = r.seq.ID.AppendTokens(u.ids[:0], q.Prompt+r.tokens-1, q.Prompt+r.tokens)
	eog := q.t.draw(int64(at)) && r.tokens >= max(1, r.spec.Output)
	said := u.c.Token(at, &q.Request, u.ids[0], nil, eog, nil, nil)
	switch {
	case said.End == core.NotEnded:
		if k := r.stalls; k < len(r.spec.Stalls) && r.tokens >= r.spec.Stalls[k].After {
			r.stalls++
			u.c.Handle(at, core.Input{Kind: core.Pause, Req: q.ID})
			e.events.push(now+took+max(1, r.spec.Stalls[k].Us), resumed, r.slot, r.gen)
		}
		return
	case said.End == core.Length && r.tokens < max(1, r.spec.Output):
		r.capped = true
		e.m.LengthCapped++
	}
	u.forget(q)
	u.done = append(u.done, r)
}

// resume lets a request go on whose client reads again.
func (u *uma) resume(r *request, now int64) {
	u.c.Handle(instant(now), core.Input{Kind: core.Resume, Req: core.ID(r.spec.Index) + 1})
}

func (u *uma) complete(e *Engine, _, end int64) {
	for _, r := range u.done {
		e.running = slices.DeleteFunc(e.running, func(x *request) bool { return x == r })
		e.completed(r, end)
	}
}
