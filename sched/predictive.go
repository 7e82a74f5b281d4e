package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched/queue"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// predictive is the part of meridian that meridian_static shares: the phase of each request, the target of each answer,
// the size of prompt chunks in the rest of a step (prompts.go), and the order of prompts. The rules of the two policies
// differ.
type predictive struct {
	s               *Scheduler
	cfg             *Config
	out, think, pre []*request // scratch: the running requests of this step, by phase
	held            int        // steps in a row in which prompts were held
	turn            int        // steps that served one of several prompts since the least recently served went first
	hasTurn         bool       // the least recently served prompt goes first in this step
	protected       int        // steps that protected first tokens, less the steps since that did not
	infeasible      bool       // the newest ITL target cannot be met
	group           together
	shared, solo    int // prompt tokens of the newest steps with prompts, beside answers and alone
}

func newPredictive(s *Scheduler) predictive {
	n := s.cfg.MaxRunning
	return predictive{s: s, cfg: &s.cfg, out: make([]*request, 0, n), think: make([]*request, 0, n),
		pre: make([]*request, 0, n), shared: s.cfg.StartBudget, solo: s.cfg.StartBudget}
}

func (p *predictive) lane(c Class, owner uint32) (Class, uint32) { return c, owner }

func (p *predictive) observe(*Plan, time.Duration) {}

func (p *predictive) targets() (shared, solo int) { return p.shared, p.solo }

// split sorts the running requests by phase.
func (p *predictive) split() {
	p.out, p.think, p.pre = p.out[:0], p.think[:0], p.pre[:0]
	for _, r := range p.s.running {
		switch {
		case r.paused:
		case r.state == Output:
			p.out = append(p.out, r)
		case r.state == Think:
			p.think = append(p.think, r)
		default:
			p.pre = append(p.pre, r)
		}
	}
}

// skip records that nothing is computed for r in this step, for the first reason that is given.
func (p *predictive) skip(b *batcher, r *request, why Reason) {
	// unserved reserves a cell for each request: one that is counted twice would let a later slice exceed the batch.
	if r.turns.lastSkip == p.s.step {
		return
	}
	r.turns.lastSkip = p.s.step
	b.unserved--
	r.turns.reason = why
	r.log.add(p.s.now, why, 0)
	p.s.totals.count[why]++
}

// finish sets the plan's reason and budget, after everything was added.
func (p *predictive) finish(b *batcher) {
	plan := &b.s.plan
	if plan.Reason == reason.None {
		plan.Reason = b.whyNotMore()
	}
	if plan.Budget = plan.Tokens; plan.Reason == reason.Served {
		plan.Budget = p.cfg.MaxBatch
	}
}

// sort orders the prompts of this step: interactive ones first; those before their first token first; promised ones by
// deadline; owners that are far ahead of others last; then the earliest TTFT deadline; then the shortest rest, which
// makes the mean wait short. In every turnEvery'th step the least recently served one goes before all.
func (p *predictive) sort() {
	if p.hasTurn = false; len(p.pre) < 2 {
		return
	}
	least := p.pre[0].entry.Served()
	for _, r := range p.pre {
		least = min(least, r.entry.Served())
	}
	slices.SortFunc(p.pre, func(a, b *request) int {
		order, av, bv := comparePrompts(a, b), a.entry.Served(), b.entry.Served()
		switch aAhead, bAhead := av-least > queue.FairSlack, bv-least > queue.FairSlack; {
		case order != 0:
			return order
		case aAhead != bAhead && aAhead:
			return 1
		case aAhead != bAhead:
			return -1
		case aAhead && av != bv:
			return cmp.Compare(av, bv)
		case a.entry.Deadline != b.entry.Deadline:
			return cmp.Compare(a.entry.Deadline, b.entry.Deadline)
		case a.left() != b.left():
			return a.left() - b.left()
		}
		return cmp.Compare(a.entry.Rank, b.entry.Rank)
	})
	if p.hasTurn = p.turn >= turnEvery-1; p.hasTurn {
		oldestFirst(p.pre)
	}
}

// countTurn counts a step that has computed so many tokens of prompts. A step that holds prompts back does not count,
// and a turn stays due until its prompt has a slice, or waits for others' first tokens.
func (p *predictive) countTurn(computed int) {
	if computed == 0 || len(p.pre) < 2 {
		return
	}
	p.turn++
	if first := p.pre[0]; p.hasTurn && (first.turns.lastStep == p.s.step || first.turns.lastSkip == p.s.step) {
		p.turn = 0
	}
}

// oldestFirst moves the least recently served prompt to the front.
func oldestFirst(pre []*request) {
	first := 0
	for i, r := range pre {
		o := pre[first]
		switch at, oldest := r.turns.lastStep, o.turns.lastStep; {
		case at < oldest, at == oldest && r.entry.Rank < o.entry.Rank:
			first = i
		}
	}
	r := pre[first]
	copy(pre[1:first+1], pre[:first])
	pre[0] = r
}
