package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// uma keeps answers smooth while prompts are computed.
//
// Rule: in each step
//  1. every running answer gets one token;
//  2. prompts share the rest of the step's token budget in chunks: interactive ones first, those before their first
//     token first, then promised ones by deadline, then the owner with fewer computed tokens, then the earlier TTFT
//     deadline, then round-robin; in every 8th such step the least recently served one goes first;
//  3. the budget moves with the measured time of such steps toward Config.TickBudget while answers run, and toward
//     Config.SoloBudget while none does; then the cost model bounds the step too, so that the first prompt of all does
//     not take a slow machine seconds;
//  4. the guard: when an interactive answer's newest token came later than its target (Spec.TargetITL, else
//     Config.Guard), prompts are left out of the step;
//  5. where a step without prompts takes long already, the goal of 3 is at least goalSlack times such a step, and the
//     target of 4 at least guardSlack times.
//
// It optimises: ITL, then TTFT.
// It gives up: some prompt throughput, because small chunks cost more per token. It reacts to steps that were too long
// instead of predicting them, so the first steps of a storm can be too long.
// Do not use it when no client waits for an answer: `stock` computes more prompt tokens a second.
//
// Bounds:
//   - An answer gets a token every step; with more answers than rows, every ⌈answers/(MaxBatch − reserve)⌉
//     steps, where reserve = min(MinPrefill, MaxBatch/2) rows are kept for a prompt that waits.
//   - Prompts are held at most MaxHeld steps in a row. So of MaxHeld+1 steps at least one computes min(MinPrefill,
//     MaxBatch/2) prompt tokens, or as many as are left, or as there are free cells.
//   - A prompt that has a sequence gets tokens at least once in 8 × MaxRunning steps in which prompts are not held.
type uma struct {
	s        *Scheduler
	cfg      *Config
	shared   cost.Pace  // while answers run
	solo     cost.Pace  // while none does
	alone    cost.Mean  // ns of a step with answers only
	answers  cost.Mean  // answers in such a step
	held     int        // steps in a row in which the guard held prompts
	turn     int        // steps with several prompts since the least recently served one went first
	dec, pre []*request // scratch
}

func newUMA(s *Scheduler) *uma {
	cfg := &s.cfg
	return &uma{
		s:      s,
		cfg:    cfg,
		shared: cost.NewPace(cfg.TickBudget, cfg.StartBudget, cfg.MinPrefill, cfg.MaxBatch),
		solo:   cost.NewPace(cfg.SoloBudget, cfg.StartBudget, cfg.MinPrefill, cfg.MaxBatch),
		dec:    make([]*request, 0, cfg.MaxRunning),
		pre:    make([]*request, 0, cfg.MaxRunning),
	}
}

func (p *uma) lane(c Class, owner uint32) (Class, uint32) { return c, owner }

func (p *uma) targets() (shared, solo int) { return p.shared.Size(), p.solo.Size() }

func (p *uma) fill(b *batcher) {
	p.dec, p.pre = b.split(p.dec[:0], p.pre[:0])
	plan := &b.s.plan
	hold, floor := p.guard(b.s.now)
	limit := p.cfg.MaxBatch
	if !hold {
		b.reserve(p.pre)
		limit -= b.keep
	}
	unserved := b.decodeAll(p.dec, limit, reason.Decode)
	if len(p.pre) == 0 {
		plan.Budget = max(p.shared.Size(), plan.Tokens)
		plan.Reason = b.whyNotMore()
		return
	}
	if hold {
		plan.Budget, plan.PrefillHeld, plan.Reason = plan.Tokens, true, reason.Guard
		return
	}
	why, rest := reason.PrefillTick, 0
	switch {
	case floor:
		why, rest = reason.PrefillFloor, p.cfg.leastPrefill()
	case len(p.dec) > 0:
		rest = max(p.shared.Size()-plan.Tokens, p.cfg.leastPrefill())
	default:
		far := 0
		for _, r := range p.pre {
			far = max(far, r.computed)
		}
		rest = p.solo.Size()
		if p.cfg.SoloLimit > p.cfg.SoloBudget {
			rest = max(rest, soloTokens)
		}
		rest = p.s.soloFits(far, rest)
	}
	rest = min(rest, b.left)
	if n := p.s.othersLeave(b.load, p.pre[0].computed, rest); n < rest {
		rest, why = n, reason.PrefillOthers
	}
	plan.Budget = plan.Tokens + rest
	p.sort()
	for _, r := range p.pre {
		if rest <= 0 {
			break
		}
		rest -= b.prefill(r, rest, why)
	}
	if n := min(len(unserved), b.left); n > 0 {
		// Rows were kept for prompts, and these had no cells for them.
		b.decodeAll(unserved, n, reason.Decode)
		rest = min(rest, b.left)
		plan.Budget = plan.Tokens + max(rest, 0)
	}
	switch {
	case rest > 0 || b.left == 0:
		plan.Reason = b.whyNotMore()
	case floor:
		plan.Reason = reason.Guard
	case why == reason.PrefillOthers:
		plan.Reason = reason.Others
	case b.unserved > 0 || b.cut() != reason.None:
		plan.Reason = reason.Budget
	default:
		plan.Reason = reason.Served
	}
}

// guard reports whether prompts are left out of this step because an answer is late (hold), or get the smallest chunk
// because they were left out long enough (floor).
func (p *uma) guard(now Instant) (hold, floor bool) {
	if p.cfg.Guard == 0 || len(p.pre) == 0 {
		p.held = 0
		return false, false
	}
	late, floorTarget := false, int64(guardSlack*p.plain(len(p.dec)))
	for _, r := range p.dec {
		if r.entry.Class != Interactive || !r.timing.emitted {
			continue
		}
		target := int64(p.cfg.Guard)
		if r.spec.TargetITL > 0 {
			target = int64(r.spec.TargetITL)
		}
		if max(int64(now-r.timing.lastEmit), r.timing.lastGap) > max(target, floorTarget) {
			late = true
			break
		}
	}
	switch {
	case !late:
		p.held = 0
		return false, false
	case p.held >= p.cfg.MaxHeld:
		p.held = 0
		return false, true
	}
	p.held++
	return true, false
}

// sort orders the prompts of this step.
func (p *uma) sort() {
	if len(p.pre) < 2 {
		return
	}
	slices.SortFunc(p.pre, func(a, b *request) int {
		order := comparePrompts(a, b)
		switch {
		case order != 0:
			return order
		case a.entry.Served() != b.entry.Served():
			return cmp.Compare(a.entry.Served(), b.entry.Served())
		case a.entry.Deadline != b.entry.Deadline:
			return cmp.Compare(a.entry.Deadline, b.entry.Deadline)
		case a.turns.lastStep != b.turns.lastStep:
			return cmp.Compare(a.turns.lastStep, b.turns.lastStep)
		}
		return cmp.Compare(a.entry.Rank, b.entry.Rank)
	})
	if p.turn++; p.turn < turnEvery {
		return
	}
	p.turn = 0
	oldestFirst(p.pre)
}

// plain estimates the ns of a step with n answers and no prompt, and tends to be too low: fewer answers than were
// measured count proportionally less, more count the same. 0 = nothing was measured.
func (p *uma) plain(n int) float64 {
	if !p.alone.Known {
		return 0
	}
	return p.alone.Value * min(1, float64(n)/p.answers.Value)
}

func (p *uma) observe(plan *Plan, took time.Duration) {
	// Rows of guesses are no answers: such a step is no measure of answers alone.
	if plan.PrefillTokens == 0 && plan.GuessedTokens > 0 {
		return
	}
	if plan.PrefillTokens == 0 {
		// The cut keeps one step during which the machine slept from raising every bound.
		x := float64(took)
		if p.alone.Known {
			x = min(x, 4*p.alone.Value)
		}
		p.alone.Add(x, aloneWeight)
		p.answers.Add(float64(plan.DecodeTokens), aloneWeight)
		return
	}
	// Cells bounded it, so it is no measure of the budget.
	if plan.Reason == reason.Cells {
		return
	}
	limited := plan.Reason == reason.Budget
	if plan.DecodeTokens > 0 {
		p.shared.Goal = max(float64(p.cfg.TickBudget), goalSlack*p.plain(plan.DecodeTokens))
		p.shared.Observe(plan.Tokens, limited, took)
	} else {
		p.solo.Observe(plan.Tokens, limited, took)
	}
}
