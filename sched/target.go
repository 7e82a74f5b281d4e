package sched

import (
	"math"
	"time"
)

// The deadline of a step. Rows, chunks and guesses are added to a batch while the cost model says that it ends before
// the next token of an answer in it is late.

// deadline is the time at which the first of the next tokens of a batch's answers is late. The zero value is that of a
// batch without answers that have a target.
type deadline struct {
	target time.Duration // the tightest ITL target; 0 = none has one
	left   time.Duration // until the first of the tokens is late; holds where target > 0
	// begun: an interactive answer with a target has fewer than firstTokens tokens.
	begun bool
}

// add adds the next token of r.
func (d *deadline) add(s *Scheduler, r *request) {
	target := s.itlTarget(r)
	if target == 0 {
		return
	}
	left := target
	if r.timing.emitted {
		left -= s.now.Sub(r.timing.lastEmit)
	}
	if d.target == 0 {
		d.target, d.left = target, left
	}
	d.target, d.left = min(d.target, target), min(d.left, left)
	d.begun = d.begun || r.generated < firstTokens && r.entry.Class == Interactive
}

// ms returns the duration of a batch that ends in time, in ms; +Inf = no answer has a target.
func (d *deadline) ms(s *Scheduler) float64 {
	if d.target == 0 {
		return math.Inf(1)
	}
	return float64(d.left)/1e6 - s.overhead.Value/1e6
}

// itlTarget returns the target of r's next token after its newest one, 0 = none.
func (s *Scheduler) itlTarget(r *request) time.Duration {
	return r.spec.Targets.Next(s.cfg.ITLTarget, r.entry.Class == Interactive, r.timing.closing)
}

// limitMs returns EvLimit's limit less the overhead between two batches, in ms; 0 = none.
func (s *Scheduler) limitMs() float64 {
	if s.clock.limit == 0 {
		return 0
	}
	return max(float64(s.clock.limit)-s.overhead.Value, 1) / 1e6
}

// missed returns the limit on a step in ms when answers alone, which are predicted to take ms, miss the target anyway.
// It has the cost model's margin, as the durations that are compared with it.
func (s *Scheduler) missed(ms float64) float64 { return infeasibleSlack * (ms * s.cost.Margin()) }

// guessLimit returns the duration in ms below which guesses keep the batch: by the deadline of its answers, and by
// those of other engines.
func (s *Scheduler) guessLimit(b *batcher) float64 {
	limit := b.due.ms(s)
	if plain := s.cost.Predict(b.load); plain > limit { // missed without guesses too: then only more tokens a step help
		limit = s.missed(plain)
	}
	if others := s.limitMs(); others > 0 {
		limit = min(limit, others)
	}
	return limit
}

// stepBudget is the time that a step may take under meridian.
type stepBudget struct {
	ms     float64       // up to here no answer's next token is late
	most   float64       // ≥ ms: up to here it may take for a prompt's first token, or for the smallest chunk
	target time.Duration // the tightest ITL target of the answers in the step; 0 = none has one
	// bounded is false when no answer in the step has a target; then ms is Config.SoloBudget.
	bounded bool
	// protectFirstTokens: an answer has just begun. Its first words are waited for, so prompts make way.
	protectFirstTokens bool
	others             bool // the answers of other engines bound it (EvLimit)
	// left is the time until the first of the answers' next tokens is late, alone the duration of a step of the answers
	// alone that 95 of 100 stay below; in ms. 0 = not known, or the target cannot be met.
	left, alone float64
}

// within cuts the budget to limit ms, which other engines leave; 0 = no limit.
func (b stepBudget) within(limit float64) stepBudget {
	if limit > 0 && b.most > limit {
		b.others = b.ms > limit
		b.ms, b.most = min(b.ms, limit), limit
	}
	return b
}

// budget returns how long this step may take. The batch consists of the rows of the answers, which all have their
// deadline in due.
func (p *predictive) budget(b *batcher, due deadline) stepBudget {
	return p.ownBudget(b, due).within(p.s.limitMs())
}

// ownBudget returns the budget without the answers of other engines.
func (p *predictive) ownBudget(b *batcher, due deadline) stepBudget {
	s := p.s
	if due.target == 0 {
		ms := float64(p.cfg.SoloBudget) / 1e6
		return stepBudget{ms: ms, most: ms}
	}
	ms, plain := due.ms(s), s.cost.Predict(b.load)
	switch t := float64(due.target)/1e6 - s.overhead.Value/1e6; {
	case s.cost.Steps() == 0:
	case plain > t:
		p.infeasible = true
	case plain < infeasibleClear*t:
		p.infeasible = false
	}
	if p.infeasible { // rule 7
		ms = max(ms, s.missed(plain))
	}
	budget := stepBudget{most: ms, protectFirstTokens: due.begun, target: due.target, bounded: true}
	if !p.infeasible && s.cost.Steps() > 0 { // rule 3
		budget.left, budget.alone = ms, mul(s.cost.Answers(b.load), s.cost.Margin())
		ms = min(ms, max(enoughSteps*budget.alone, enoughShare*float64(due.target)/1e6))
	}
	budget.ms = ms
	s.clock.guard = guard{state: GuardTrim, target: due.target, infeasible: p.infeasible}
	return budget
}

// bound returns the times at which a step of answers and prompts is given up: while there is just time left for a step
// of the answers alone. What the prompts have computed in it is lost, so it is done at most once in lateEvery such
// steps, up to lateMost times in a row.
func (p *predictive) bound(budget *stepBudget) Bound {
	s := p.s
	s.clock.lateCredit = min(s.clock.lateCredit+1, lateMost*lateEvery)
	if s.clock.lateCredit < lateEvery || s.cost.Steps() < learnedSteps {
		return Bound{}
	}
	decide := budget.left - mul(lateSlower, budget.alone) - s.overhead.Value/1e6
	return Bound{Decide: time.Duration(decide * 1e6), Limit: time.Duration(budget.left * 1e6)}
}
