package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// uma drives the daemon's core on the virtual clock. Core makes every decision. The simulator passes it arrivals,
// cancels and pauses, lets copies and decodes take the time that the latency model gives, and answers each row with a
// token. With an engine, every batch, copy and removal of cells is also carried out.
//
// An inter-token latency is what a client sees: from one token to the next, pauses and preemptions included.
type uma struct {
	waiting []*Request // those without a place in a batch, preempted ones first
	running []*Request // in the order of admission

	c      *core.Core
	cfg    core.Config    // of c
	stores *stores        // nil: cells that are evicted are computed again
	eng    runtime.Engine // nil: only the time of a batch is asked for
	row    func(*workload.Request, []runtime.Token, []float32)
	hands  bool // requests go to another server with their first token (Sink.Prefilled)
	think  *thinkModel
	cpu    *processors // nil: not modelled

	step   *core.Step
	result core.Result
	byID   map[core.ID]*served // until they have ended
	ended  []*served           // that still have a sequence
	spare  []*served

	runs      latency.Runs
	speculate int
	repeat    float64
	probeRows int // the most rows a fork has: it must fit into a batch beside its decode
	checked   int

	cells  int
	size   int // tokens of a block
	prompt int64
	cached int64 // of prompt tokens: those that need not be computed
	done   []*request
	paused int // live requests whose clients do not read
	ids    []core.Token
	words  []runtime.Token
}

// served is a request of the core and the simulator's request.
type served struct {
	core.Request
	spec core.Spec // Request.Spec
	r    *request  // nil once it has ended
	t    thought
	// given is the number of tokens of its answer that its prompt contains: 1 when another server has computed the
	// first token.
	given  int
	paused bool // its client does not read

	repeat float64 // share of its answer that repeats earlier text
	source int     // index of the token that it repeats next; 0 = none
}

// maxFakeCells bounds the pool of a fake engine, which keeps every cell.
const maxFakeCells = 1 << 22

func newUma(cfg *Config, model latency.Model, sink *Sink) (*uma, error) {
	s := SchedConfig(cfg)
	u := &uma{probeRows: max(0, s.MaxBatch-1), byID: map[core.ID]*served{}, cells: s.Cells, size: cfg.BlockTokens,
		eng: sink.Engine, row: sink.Row, hands: sink.Prefilled != nil, speculate: cfg.Speculate, repeat: cfg.Repeat}
	c := core.Config{
		Sched: s, Sequences: core.Sequences(s.MaxRunning, !cfg.NoPrefixCache), CellBytes: 1,
		BlockCells: cfg.BlockTokens, NoPrefixCache: cfg.NoPrefixCache,
		CanShift: true, ThinkEvict: cfg.ThinkEvict, ContextShift: cfg.ContextShift,
		Planned: sink.Planned,
		Tokens: func(r *core.Request) {
			q := r.Data.(*served)
			// The capacity affects no decision.
			r.Tokens = slices.Grow(r.Tokens, r.Prompt+min(q.r.Spec.Output, r.MaxTokens))
			r.Tokens = q.r.Identity.AppendTokens(r.Tokens, 0, r.Prompt)
		},
	}
	if u.stores = newStores(cfg); u.stores != nil {
		c.Stores, c.PartTokens, c.Durable = u.stores, cfg.KVPartTokens, cfg.KVDiskBlocks > 0 || cfg.KVFabric
		c.CopyPerToken = time.Duration(cfg.KVTierUs[core.Host-1] * float64(time.Microsecond))
		c.ByPrice = true
	}
	var err error
	if u.c, err = core.New(c); err != nil {
		return nil, fmt.Errorf("batch formation uma: %w", err)
	}
	u.cfg = c
	u.cpu = newProcessors(cfg, u.c)
	if u.think, err = newThinkModel(cfg.ThinkBudget, cfg.EarlyExit); err != nil {
		return nil, err
	}
	if cfg.Engine == "fake" && u.eng == nil {
		if s.Cells > maxFakeCells {
			return nil, fmt.Errorf("batch formation uma: the fake engine keeps every cell and takes up to %d; the "+
				"cache has %d", maxFakeCells, s.Cells)
		}
		f := fake.Config{Seed: uint64(cfg.Seed)}
		f.ContextTokens, f.Batch, f.Sequences = s.Cells, s.MaxBatch, c.Sequences
		if m, ok := model.(*latency.Calibrated); ok && m.Curve == nil {
			f.Cost = fake.Cost{BaseMs: m.Cost.A, PrefillMs: m.Cost.B, DecodeMs: m.Cost.C, KVMs: m.Cost.D,
				ReadMs: m.Cost.E}
		}
		u.eng = fake.New(f)
	}
	return u, nil
}

// SchedConfig returns the scheduler configuration of a daemon with this configuration.
func SchedConfig(cfg *Config) sched.Config {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	var c sched.Config
	if cfg.Base != nil {
		c = *cfg.Base
	}
	c.Policy, c.MaxRunning, c.MaxBatch, c.MaxQueue = cfg.Policy,
		min(cfg.MaxRunning, core.MaxRunning(core.MaxSequences)), cfg.MaxScheduledTokens, cfg.MaxQueue
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

func (u *uma) Waiting() int          { return len(u.waiting) }
func (u *uma) Waiter(i int) *Request { return u.waiting[i] }
func (u *uma) Running() []*Request   { return u.running }
func (u *uma) overlaps() bool        { return false }
func (u *uma) transfer() int64       { return 0 }
func (u *uma) checkBlocks() error    { return nil } // core has its own

func (u *uma) totals(t *EngineTotals) {
	t.HitRate = u.hitRate()
	if u.stores != nil {
		t.Restored = u.stores.restored
	}
	t.OutputCriticalEvictions = u.c.Ledger().Evictions().Interruptions
}

// remove takes r out of its list.
func (u *uma) remove(r *request) {
	list := &u.waiting
	if r.state == Running {
		list = &u.running
	}
	if i := slices.Index(*list, &r.Request); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
}

// waits: a client does not read, and its request, or those that need its cells, go on when it does.
func (u *uma) waits() bool { return u.paused > 0 }

// pending: core has to be told of completions, a restore is under way, or there is time to copy cached prefixes.
func (u *uma) pending() bool { return u.c.Pending() || !u.c.Quiet() }

func (u *uma) used() int {
	c := u.c.Tree().Cells()
	return (c.Own + c.Shared + c.Pinned + u.size - 1) / u.size
}

// hitRate returns the share of prompt tokens that did not have to be computed.
func (u *uma) hitRate() float64 { return ratio(u.cached, u.prompt) }

// instant returns a tick on the core's axis.
func instant(us int64) core.Instant { return core.Instant(min(us, math.MaxInt64/1000) * 1000) }

func (u *uma) form(e *Engine, now int64) bool {
	at := instant(now)
	for _, r := range u.running {
		r.NewTokens = 0
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
	next, ok := u.stores.next()
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
		n := sl.N - sl.Guessed
		r.NewTokens, r.Progress, r.Computed = n, sl.Start, sl.Start+n
		if r.state != Running {
			u.remove(r)
			u.running = append(u.running, &r.Request)
			e.admitted(r, now)
		}
	}
}

// carryOut executes the step's operations and returns the microseconds that its copies take.
func (u *uma) carryOut(e *Engine, now int64) (copied int64) {
	res := &u.result
	*res = core.Result{Copies: res.Copies[:0]}
	for i := range u.step.Ops {
		op := &u.step.Ops[i]
		switch op.Kind {
		case core.SeqCopy, core.SeqRemove, core.SeqShift:
			u.sequence(op)
		case core.Compute:
			u.fill(op.Dst, op.Tokens, op.From, op.To)
		default:
			to := u.stores.carry(op, now, res)
			if op.Kind == core.CopyIn {
				e.advances++
				u.ingest(op, min(to, op.Limit))
			}
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

// told counts the step's notes and ends the requests that it ended.
func (u *uma) told(e *Engine, now int64) {
	for i := range u.step.Notes {
		n := &u.step.Notes[i]
		switch n.Kind {
		case core.Started:
			if n.First && n.Request.Data.(*served).given == 0 {
				u.prompt += int64(n.Request.Prompt)
				u.cached += int64(min(n.N, n.Request.Prompt))
			}
		case core.Preempted:
			e.m.Preemptions++
			u.runs.End(uint64(n.Request.ID))
			r := n.Request.Data.(*served).r
			if r == nil || r.state != Running {
				continue // it had a sequence and no computed token: here it still waits
			}
			if e.sink.Preempted != nil {
				e.sink.Preempted(&r.Spec, now)
			}
			u.remove(r)
			r.state, r.Progress, r.Computed = Queued, 0, 0
			if len(u.running) == 0 {
				e.noteStall(r)
			}
			u.waiting = slices.Insert(u.waiting, 0, &r.Request)
		}
	}
	for i := range u.step.Ends {
		end := &u.step.Ends[i]
		q := u.byID[end.Request.ID]
		if q == nil {
			continue // it left, which the simulator knows
		}
		state := Dropped // alone in the pool and still without room
		if end.Kind == core.Rejected && end.Reason != reason.PromptTooLong {
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
	u.remove(r)
	r.state = state
	if state == Rejected {
		e.m.Rejected++
	} else {
		e.m.Dropped++
	}
	e.refused(r, now)
}
