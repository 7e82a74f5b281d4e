package sched

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// stepBudget is the time that a step may take.
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

// limitMs returns EvLimit's limit less the overhead between two batches, in ms; 0 = none.
func (s *Scheduler) limitMs() float64 {
	if s.clock.limit == 0 {
		return 0
	}
	return max(float64(s.clock.limit)-s.overhead.Value, 1) / 1e6
}

// budget returns how long this step may take for these answers, whose rows are what the batch consists of.
func (p *predictive) budget(b *batcher, answers []*request) stepBudget {
	return p.ownBudget(b, answers).within(p.s.limitMs())
}

// ownBudget returns the budget without the answers of other engines.
func (p *predictive) ownBudget(b *batcher, answers []*request) stepBudget {
	const far = time.Duration(1<<63 - 1)
	target, left, begun := far, far, false
	for _, r := range answers {
		t := p.s.itlTarget(r)
		if t == 0 {
			continue
		}
		target = min(target, t)
		since := time.Duration(0)
		if r.timing.emitted {
			since = p.s.now.Sub(r.timing.lastEmit)
		}
		left = min(left, t-since)
		begun = begun || r.generated < firstTokens && r.entry.Class == Interactive
	}
	if target == far {
		ms := float64(p.cfg.SoloBudget) / 1e6
		return stepBudget{ms: ms, most: ms}
	}
	over := p.s.overhead.Value / 1e6
	ms := float64(left)/1e6 - over
	plain := p.s.cost.Predict(b.load)
	switch t := float64(target)/1e6 - over; {
	case p.s.cost.Steps() == 0:
	case plain > t:
		p.infeasible = true
	case plain < infeasibleClear*t:
		p.infeasible = false
	}
	// Chunks are sized by upper, which includes the margin, so the limit below must include it too.
	plain *= p.s.cost.Margin()
	// Rule 7 of meridian.
	if p.infeasible {
		ms = max(ms, infeasibleSlack*plain)
	}
	budget := stepBudget{most: ms, protectFirstTokens: begun, target: target, bounded: true}
	if !p.infeasible && p.s.cost.Steps() > 0 {
		budget.left, budget.alone = ms, mul(p.s.cost.Answers(b.load), p.s.cost.Margin())
		ms = min(ms, max(enoughSteps*budget.alone, enoughShare*float64(target)/1e6))
	}
	budget.ms = ms
	p.s.clock.guard = guard{state: GuardTrim, target: target, infeasible: p.infeasible}
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

// itlTarget returns the target of r's next token after its newest one, 0 = none.
func (s *Scheduler) itlTarget(r *request) time.Duration {
	return r.spec.Targets.Next(s.cfg.ITLTarget, r.entry.Class == Interactive, r.timing.closing)
}

// promptFill gives the rest of one step to prompts.
type promptFill struct {
	p      *predictive
	b      *batcher
	budget stepBudget
	// minChunk is the smallest chunk that is worth a step, in tokens.
	minChunk int
	// maxExtrapolation is the most prompt tokens of the step: the cost model is not asked about steps far larger than
	// those that it has seen.
	maxExtrapolation int
	cutBy            Reason // of a chunk that the budget cuts
	together         bool   // prompts before their first token are left without their last token
	waits            bool   // together has left out a token
	protect          bool   // only prompts whose first token is near get a chunk

	total   int    // prompt tokens of the step
	stopped Reason // why no further prompt got a chunk; reason.None = all got what they could use
}

// prompts fills what is left of a step. It sets the plan's reason when the budget is why the batch is not larger.
func (p *predictive) prompts(b *batcher, budget stepBudget) {
	if len(p.pre) == 0 {
		p.held = 0
		p.group.note(p.s.now, false)
		return
	}
	p.sort()
	f := p.newFill(b, budget)
	f.together = p.holdsLast(b.load, &f.budget)
	for _, r := range p.pre {
		if !f.add(r) {
			break
		}
	}
	p.countTurn(f.total)
	p.group.note(p.s.now, f.waits)
	if f.protect {
		p.protected++
	} else {
		p.protected = max(0, p.protected-1)
	}
	f.report()
	if f.total > 0 && f.budget.left > 0 && f.stopped != reason.PrefillFloor { // a floor chunk is late on purpose
		p.s.plan.Bound = p.bound(&f.budget)
	}
}

// newFill decides how much this step may give to prompts.
func (p *predictive) newFill(b *batcher, budget stepBudget) promptFill {
	f := promptFill{
		p: p, b: b, budget: budget, cutBy: reason.PrefillTarget,
		minChunk: p.cfg.leastPrefill(),
		protect:  budget.protectFirstTokens && p.protected < maxProtected,
	}
	if budget.others {
		f.cutBy = reason.PrefillOthers
	}
	if budget.bounded {
		f.maxExtrapolation = max(f.minChunk, int(2*p.s.cost.Largest()))
		return f
	}
	f.cutBy, f.minChunk = reason.PrefillTick, max(f.minChunk, 1)
	f.maxExtrapolation = p.s.soloExtrapolation()
	f.budget.ms = p.s.soloMs(b.load, p.pre[0].computed)
	all := b.load
	for _, r := range p.pre {
		all.AddPrompt(r.computed, r.left())
	}
	if ms := p.s.cost.Likely(all); ms <= restSlack*f.budget.ms {
		f.budget.ms = max(f.budget.ms, ms)
	}
	f.budget.most = f.budget.ms
	f.budget = f.budget.within(p.s.limitMs())
	if f.budget.others {
		f.cutBy = reason.PrefillOthers
	}
	return f
}

// add gives r a chunk and reports whether the next prompt may get one.
func (f *promptFill) add(r *request) (more bool) {
	most := min(r.left(), f.b.left)
	if most == 0 {
		return false
	}
	if f.p.s.clock.risk && r.entry.Class == Background && f.total > 0 && !(f.p.hasTurn && r == f.p.pre[0]) {
		// A longer step would bring an interactive request, which could miss its target, its first token later.
		f.p.skip(f.b, r, reason.WaitEndangered)
		return true
	}
	if f.together && most == r.left() && awaitsFirstToken(r) {
		f.waits, r.turns.group = true, f.p.group.ended+1
		if most--; most == 0 {
			f.p.skip(f.b, r, reason.PrefillTogether)
			return true
		}
	}
	n, why := f.chunk(r, most)
	if n <= 0 {
		f.stopped = why
		return false
	}
	got := f.b.prefill(r, n, why)
	f.total += got
	// The budget cut this chunk, so the next prompt has none either. Where cells or rows cut it (got < n), another
	// prompt may still fit.
	if got < most && got == n || why == reason.PrefillFloor {
		f.stopped = why
		return false
	}
	if f.budget.bounded && awaitsFirstToken(r) && got == r.left() {
		f.protect = true // the step ends with its first token rather than being filled
	}
	return true
}

// awaitsFirstToken reports whether the first token of an interactive answer depends on prompt r.
func awaitsFirstToken(r *request) bool { return r.generated == 0 && r.entry.Class == Interactive }

// chunk returns how many of the most next tokens of r this step computes, and why it is not more.
func (f *promptFill) chunk(r *request, most int) (n int, why Reason) {
	n, why = f.fits(f.budget.ms, r, most), f.cutBy
	if least := min(f.minChunk, most); n < least && f.total == 0 {
		n = max(n, f.fits(f.budget.most, r, least)) // only what the target leaves makes the smallest chunk smaller
	}
	// A step may take the whole target where it ends the wait for a first token.
	if n < most && most == r.left() && awaitsFirstToken(r) && f.fits(f.budget.most, r, most) == most {
		n = most
	}
	// Rule 5 of meridian: the first words of the answers that have just begun go before this prompt.
	if f.protect && !(awaitsFirstToken(r) && r.left() <= urgentSteps*n) {
		n = 0
	}
	if n == most {
		why = reason.PrefillBatch
	}
	if f.total == 0 {
		n, why = f.first(r, n, most, why)
	}
	if rest := f.maxExtrapolation - f.total; n > rest {
		n, why = rest, reason.PrefillExtrapolation
	}
	if !f.budget.bounded && n < most {
		n = cost.WholeTiles(f.b.s.plan.Tokens, max(1, f.minChunk), n)
	}
	return n, why
}

// first bounds the step's first chunk from below: prompts are not held forever, and held ones go on with a chunk that
// is worth it. Behind a long context a few tokens can take longer than the target: then the chunk has fewer, by those
// for which only the context leaves no time.
func (f *promptFill) first(r *request, n, most int, why Reason) (int, Reason) {
	least := min(f.minChunk, most)
	if f.budget.bounded && n < least {
		ms, model := floorSlack*f.budget.most, &f.p.s.cost
		without := model.FitsLikely(ms, f.b.load, 0, least)
		least = max(1, least-without+model.FitsLikely(ms, f.b.load, r.computed, least))
	}
	switch {
	case !f.budget.bounded:
		return max(n, least), why
	case f.p.held >= f.p.cfg.MaxHeld && n < f.minChunk:
		return least, reason.PrefillFloor
	// Prompts that are held continue only with a chunk that is worth the step.
	case f.p.held > 0 && n < least:
		return 0, why
	}
	return n, why
}

// fits returns how many of r's next tokens, at most most, keep the step within ms.
func (f *promptFill) fits(ms float64, r *request, most int) int {
	if f.budget.bounded || f.budget.others {
		return f.p.s.cost.Fits(ms, f.b.load, r.computed, most)
	}
	return f.p.s.cost.FitsLikely(ms, f.b.load, r.computed, most)
}

// report records how the step came out for prompts.
func (f *promptFill) report() {
	p, s, plan := f.p, f.b.s, &f.b.s.plan
	switch {
	case f.budget.bounded && f.total == 0 && f.stopped != reason.None:
		p.held++
		for _, r := range p.pre {
			p.skip(f.b, r, reason.PrefillHeld)
		}
		plan.PrefillHeld = true
		plan.Reason, s.clock.guard.state = reason.Guard, GuardHold
		return
	case f.stopped == reason.PrefillFloor:
		plan.Reason, s.clock.guard.state = reason.Guard, GuardHold
	case f.stopped == reason.PrefillTarget:
		plan.Reason = reason.Target
	case f.stopped == reason.PrefillOthers:
		plan.Reason = reason.Others
	case f.stopped == reason.PrefillTick, f.stopped == reason.PrefillExtrapolation:
		plan.Reason = reason.Budget
	}
	p.held = 0
	switch {
	case f.total == 0:
	case f.budget.bounded:
		p.shared = f.total
	default:
		p.solo = f.total
	}
}
