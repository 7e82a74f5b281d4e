package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// uma forms batches with the production code, driven by the virtual clock: sched.Scheduler decides, kvsnap.Tree shares
// prompts, meridian.Blocks counts cells by tier. The simulator plays the daemon's decode loop: it tells the scheduler what
// happened, carries out its plan, decodes the batch in the time that the latency model gives, and answers each row with a
// token. With Config.Engine "fake" the batch and every copy and removal of cells really go to a runtime/fake engine.
//
// A time between tokens is what a client sees: from one token to the next, pauses and preemptions included.
//
// What a recording says was there, and nobody in it had computed (workload.Request.Resident), is there at once.
type uma struct {
	s       *sched.Scheduler
	tree    *kvsnap.Tree
	blocks  *meridian.Blocks
	tiers   *tiers       // nil: what is evicted is computed again
	checked int          // calls of check
	eng     *fake.Engine // nil: nothing but the time of a batch is asked for
	planned func(sched.Instant, []sched.Event, *sched.Plan)

	in      []sched.Event // for the next Step
	plan    sched.Plan
	byID    map[sched.ReqID]*served // until they have ended
	slots   []*served               // by the scheduler's sequence number
	spare   []*served
	own     int // Invariant: Σ served.own over slots: what the scheduler counts as its requests' cells
	pool    int // what EvPool said last
	lastRes uint64
	now     int64 // of the turn, microseconds

	runs      latency.Runs
	probeRows int // the most a fork has: it must fit into a batch beside its decode

	cells  int
	size   int // tokens of a block
	prompt int64
	cached int64 // of prompt tokens: those that need not be computed
	done   []*request
}

// served is what the daemon knows of a request, from its arrival until its sequence is released, which is a step after
// its end.
type served struct {
	id        sched.ReqID
	r         *request // nil once it has ended
	ns        uint32
	class     sched.Class
	prompt    int
	tokens    []kvsnap.Token // its history; empty until it first starts
	slot      int32          // of the scheduler's sequences, -1 = none
	seq       kvsnap.Seq
	computed  int // tokens of its history in seq
	own       int // of them: counted by the scheduler as its own
	thinking  bool
	restoring *restoring // what it waits for, nil = nothing
	noRestore bool       // the tiers were asked since it last started
	held      bool       // waits for another request's prompt
	joined    bool       // has done so
	counted   bool       // in prompt and cached
}

// The daemon's division of the engine's sequence ids.
const (
	sequences   = 256
	scratchSeqs = 5
	maxServed   = sequences - scratchSeqs
	evictCells  = 64 // the least that an eviction frees
	firstRes    = uint64(1) << 63
)

// maxFakeCells bounds the pool of a fake engine, which keeps every cell.
const maxFakeCells = 1 << 22

func newUma(cfg *Config, model latency.Model, planned func(sched.Instant, []sched.Event, *sched.Plan)) (*uma, error) {
	c := SchedConfig(cfg)
	u := &uma{probeRows: max(0, c.MaxBatch-1), planned: planned, byID: map[sched.ReqID]*served{}, slots: make([]*served, c.MaxRunning), cells: c.Cells, size: cfg.BlockTokens}
	tree := kvsnap.Config{Cells: c.Cells, CellBytes: 1, Sequences: sequences, Scratch: scratchSeqs}
	if cfg.NoPrefixCache {
		tree.Sequences, tree.KeepMin = c.MaxRunning+scratchSeqs, 1<<30 // nothing is long enough to be kept
	}
	var err error
	if u.s, err = sched.New(c); err != nil {
		return nil, fmt.Errorf("batch formation uma: %w", err)
	}
	if u.tree, err = kvsnap.New(tree); err != nil {
		return nil, fmt.Errorf("batch formation uma: %w", err)
	}
	if u.blocks, err = meridian.NewBlocks(meridian.BlocksConfig{Cells: c.Cells, BlockCells: cfg.BlockTokens, CellBytes: 1}); err != nil {
		return nil, fmt.Errorf("batch formation uma: %w", err)
	}
	if !cfg.NoPrefixCache {
		u.tiers = newTiers(u, cfg)
	}
	if cfg.Engine == "fake" {
		if c.Cells > maxFakeCells {
			return nil, fmt.Errorf("batch formation uma: the fake engine keeps every cell and takes up to %d; the cache has %d", maxFakeCells, c.Cells)
		}
		f := fake.Config{Seed: uint64(cfg.Seed)}
		f.ContextTokens, f.Batch, f.Sequences = c.Cells, c.MaxBatch, tree.Sequences
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
	c.Prefix, c.Forks = true, scratchSeqs-1
	c.Policy, c.MaxRunning, c.MaxBatch, c.MaxQueue = cfg.Policy, min(cfg.MaxRunning, maxServed), cfg.MaxScheduledTokens, cfg.MaxQueue
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
	return c
}

func (u *uma) overlaps() bool { return false }

// pending: the last completions are still to be told, or somebody waits for a restore.
func (u *uma) pending() bool { return len(u.in) > 0 || u.tiers != nil && len(u.tiers.restores) > 0 }
func (u *uma) used(*Engine) int {
	c := u.tree.Cells()
	return (c.Own + c.Shared + c.Pinned + u.size - 1) / u.size
}

// hitRate is the share of prompt tokens that did not have to be computed.
func (u *uma) hitRate() float64 { return ratio(u.cached, u.prompt) }

func (u *uma) join(e *Engine, r *request, _ int64) {
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
	*q = served{id: sched.ReqID(r.spec.Index) + 1, r: r, ns: owner(r.spec.Tenant), prompt: prompt, slot: -1, seq: kvsnap.NoSeq, tokens: q.tokens[:0],
		thinking: r.spec.Think > 0}
	if c := r.spec.Class; c == "batch" || c == "background" {
		q.class = sched.Background
	}
	u.byID[q.id] = q
	u.in = append(u.in, sched.Event{Kind: sched.EvArrive, Req: q.id, Prompt: prompt, MaxTokens: max(1, r.limit), Thinking: q.thinking, Owner: q.ns, Class: q.class,
		TargetTTFT: time.Duration(r.spec.TargetTTFT) * time.Microsecond, TargetTBT: time.Duration(r.spec.TargetTBT) * time.Microsecond})
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

func (u *uma) leave(_ *Engine, r *request, _ int64) {
	id := sched.ReqID(r.spec.Index) + 1
	u.forget(u.byID[id])
	u.in = append(u.in, sched.Event{Kind: sched.EvCancel, Req: id})
}

// forget ends what u knows of a request. The scheduler is told by the caller; if it has a sequence, that is released in
// the next step.
func (u *uma) forget(q *served) {
	delete(u.byID, q.id)
	q.r = nil
	if q.held {
		q.held = false
		u.tree.Cancel(uint64(q.id))
	}
	u.tiers.forget(q)
	if q.slot < 0 {
		u.spare = append(u.spare, q)
	}
}

// instant is a tick on the scheduler's axis.
func instant(us int64) sched.Instant { return sched.Instant(min(us, math.MaxInt64/1000) * 1000) }

func (u *uma) form(e *Engine, now int64) bool {
	at := instant(now)
	u.now = now
	for _, r := range e.running {
		r.newTokens = 0
	}
	u.tiers.work(e, now, len(u.plan.Batch) == 0)
	for i := range u.in {
		if ev := &u.in[i]; ev.Kind == sched.EvArrive {
			if q := u.byID[ev.Req]; q != nil { // else its client has left already
				ev.Ago = at.Sub(instant(q.r.spec.Arrival))
			}
		}
	}
	for again := true; again; again = u.plan.Again {
		u.poolEvent()
		u.plan = u.s.Step(at, u.in)
		if u.planned != nil {
			u.planned(at, u.in, &u.plan)
		}
		u.in = u.in[:0]
		u.settle(e, now, at)
	}
	if checked {
		u.check()
	}
	for i := range u.plan.Batch {
		sl := &u.plan.Batch[i]
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
	if len(u.plan.Batch) > 0 {
		u.makeRoom(u.plan.Tokens)
		return true
	}
	e.stepDue = false
	copied := u.tiers.passed()
	due, more := u.tiers.due(now + copied)
	switch u.poolEvent(); {
	case len(u.in) > 0: // a release set cells or somebody free, who waited for it
		e.pushStep(now + copied)
	case u.plan.WakeAt > 0:
		wake := max(now+1, (int64(u.plan.WakeAt)+999)/1000, now+copied)
		if more {
			wake = min(wake, max(now+1, due))
		}
		e.pushStep(wake)
	case more:
		e.pushStep(max(now+1, due))
	}
	e.busyTill = max(e.busyTill, now+copied)
	return false
}

// settle carries out the part of a plan that comes before its batch.
func (u *uma) settle(e *Engine, now int64, at sched.Instant) {
	for i := range u.plan.Release {
		rel := &u.plan.Release[i]
		if rel.Seq >= 0 {
			u.release(rel, at)
		}
		q := u.byID[rel.Req]
		switch {
		case q == nil:
		case rel.Final: // alone in the pool and still without room
			u.lost(e, q, now, Dropped)
		default:
			e.m.Preemptions++
			r := q.r
			if r.state != Running {
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
	for _, rej := range u.plan.Reject {
		if q := u.byID[rej.Req]; q != nil {
			state := Rejected
			if rej.Reason == sched.ReasonPromptTooLong {
				state = Dropped
			}
			u.lost(e, q, now, state)
		}
	}
	for _, st := range u.plan.Start {
		u.start(st, at)
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
	b.Requests, b.PrefillTokens, b.DecodeTokens = len(u.plan.Batch), u.plan.PrefillTokens, u.plan.DecodeTokens+u.plan.ProbeTokens
	continues := u.runs.Step(workload.Only(&u.plan))
	b.Resident = u.cells - u.tree.Cells().Free + u.plan.Tokens
	for i := range u.plan.Batch {
		sl := &u.plan.Batch[i]
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
	u.in = append(u.in, sched.Event{Kind: sched.EvStep, Took: time.Duration(decoded) * time.Microsecond})
	seen := now + took + e.overhead
	u.done = u.done[:0]
	for i := range u.plan.Batch {
		sl := &u.plan.Batch[i]
		if sl.Kind == sched.SliceProbe {
			continue
		}
		q := u.byID[sl.Req]
		u.computed(q, sl.Start+sl.N)
		r := q.r
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
		q.tokens = r.seq.ID.AppendTokens(q.tokens, len(q.tokens), len(q.tokens)+1)
		ev := sched.Event{Kind: sched.EvToken, Req: sl.Req, Thinking: r.tokens < r.spec.Think}
		for ; r.probes < len(r.spec.Probes) && r.spec.Probes[r.probes].After <= r.tokens; r.probes++ {
			ev.Probe = min(r.spec.Probes[r.probes].Rows, u.probeRows)
		}
		if q.thinking && !ev.Thinking {
			u.blocks.Demote(meridian.Owner(q.id))
		}
		q.thinking = ev.Thinking
		switch {
		case r.tokens >= max(1, r.spec.Output):
			ev = sched.Event{Kind: sched.EvFinish, Req: sl.Req, Finish: sched.ReasonStop}
		case r.tokens >= r.limit:
			ev = sched.Event{Kind: sched.EvFinish, Req: sl.Req, Finish: sched.ReasonLength}
			r.capped = true
			e.m.LengthCapped++
		}
		u.in = append(u.in, ev)
		if ev.Kind == sched.EvFinish {
			u.forget(q)
			u.done = append(u.done, r)
		} else if k := r.stalls; k < len(r.spec.Stalls) && r.tokens >= r.spec.Stalls[k].After {
			r.stalls++
			u.in = append(u.in, sched.Event{Kind: sched.EvPause, Req: sl.Req})
			u.wake(u.tree.Stall(q.seq, true))
			e.events.push(now+took+max(1, r.spec.Stalls[k].Us), resumed, r.slot, r.gen)
		}
	}
}

// resume lets a request go on whose client reads again.
func (u *uma) resume(r *request) {
	q := u.byID[sched.ReqID(r.spec.Index)+1]
	u.in = append(u.in, sched.Event{Kind: sched.EvResume, Req: q.id})
	if q.seq >= 0 {
		u.wake(u.tree.Stall(q.seq, false))
	}
}

func (u *uma) complete(e *Engine, _, end int64) {
	for _, r := range u.done {
		e.running = slices.DeleteFunc(e.running, func(x *request) bool { return x == r })
		e.completed(r, end)
	}
}
