package sched

import (
	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

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

// prompts fills the rest of a step. It sets the plan's reason when the budget is why the batch is not larger.
func (p *predictive) prompts(b *batcher, budget stepBudget) {
	if len(p.pre) == 0 {
		p.held = 0
		p.group.note(p.s.now, false)
		return
	}
	p.sort()
	f := p.newFill(b, budget)
	f.together = p.holdsLast(b.load, &f.budget) // rule 6
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
	// Rule 5: the first words of the answers that have just begun go before this prompt.
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

// soloExtrapolation is the most prompt tokens of such a step, whatever the cost model says. The first step with prompt
// tokens ever is a small one: it shows how fast the machine is.
func (s *Scheduler) soloExtrapolation() int {
	if s.cost.Prompts() == 0 {
		return max(1, s.cfg.FirstPrefill, s.cfg.MinPrefill)
	}
	return max(s.cfg.StartBudget, s.cfg.MinPrefill, int(2*s.cost.Largest()))
}

// soloFits is the most tokens of prompts, the farthest of which is at position start, that such a step has time for:
// the bound for policies that do not predict.
func (s *Scheduler) soloFits(start, most int) int {
	if s.cost.Prompts() == 0 {
		return min(most, s.soloExtrapolation())
	}
	ms := max(restSlack*float64(s.cfg.SoloBudget)/1e6, s.soloMs(cost.Load{}, start))
	n := max(s.cost.FitsLikely(ms, cost.Load{}, start, most), min(most, s.cfg.MinPrefill))
	if n < most {
		n = cost.WholeTiles(0, max(1, s.cfg.MinPrefill), n)
	}
	return n
}

// soloMs returns the limit on such a step in milliseconds: Config.SoloBudget, or where soloTokens take longer, their
// time up to Config.SoloLimit. base is in the batch already; the first prompt is at position start.
func (s *Scheduler) soloMs(base cost.Load, start int) float64 {
	ms := float64(s.cfg.SoloBudget) / 1e6
	if limit := float64(s.cfg.SoloLimit) / 1e6; limit > ms {
		base.AddPrompt(start, soloTokens)
		ms = max(ms, min(s.cost.Likely(base), limit))
	}
	return ms
}
