package sched

import (
	"cmp"
	"math"
	"slices"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// meridian keeps the ITL of visible answers under a target in milliseconds, whatever else there is to compute.
//
// Rule: in each step
//  1. every answer in its output phase gets one token, but for background answers that have no target: beside one
//     that has, they get it where it fits under that target, least recently served first, and once they have waited
//     Config.ThinkFloor;
//  2. thinking requests and prompts share what the cost model says is left under the tightest target (Spec.TargetITL,
//     else Config.ITLTarget for interactive answers): when prompts wait, half of it goes to thinking requests, least
//     recently served first. A thinking request that would wait longer than Config.ThinkFloor gets its token in any
//     case;
//  3. prompts get the chunk that fits into the rest in 95 of 100 cases, by the cost model's own record of its error,
//     but at most twice the largest chunk that the model has seen; one more than twice as large as recent ones is
//     sized as if its further tokens could cost twice as much. The step takes at most 0.7 of the target, or six times
//     what answers alone were measured to take, if that is more: a longer one gains little. When nothing fits
//     the target, prompts are held, for at most Config.MaxHeld steps in a row; then they get the smallest chunk,
//     Config.MinPrefill tokens. Held prompts continue only when that fits. Behind a long context, where it can take
//     twice the target, it has fewer tokens, at least one: as many as 1.1 times the target leaves time for.
//     A step in which something slows the machine down is given up (Plan.Bound) where it would miss the target and a
//     step of the answers alone still meets it, one of 32 at most;
//  4. while no answer runs, every thinking request gets its token: it is on the way to its answer, and the target
//     applies to it. When no request waits for a token, prompts get the chunk that takes Config.SoloBudget (but see
//     SoloLimit), so that progress is visible and a cancel or an arrival does not wait for seconds. The first chunk of
//     all has Config.FirstPrefill tokens;
//  5. beside an interactive answer of fewer than 5 tokens prompts are held, because its first words are waited for: in
//     at most 12 steps more than there were other steps, and not a prompt that is within two steps of its first token;
//  6. prompts that arrived together, four and more, complete in one step, where their answers would leave later prompts
//     less than 0.75 of a step, and where that takes 2.5 s at most (together.go);
//  7. where answers alone take longer than the target, it cannot be met (Stats.TargetInfeasible). Then a step may take
//     1.5 times as long as answers alone, because holding the others would smooth nothing.
//
// It optimises: the target first, then the throughput of prompts and of thinking under it. It predicts: the first steps
// of a storm are sized nearly like the hundredth. It gives up: the share t_answers/target of the prompt throughput, and
// mean smoothness: steps are as long as the target allows while there is work. Do not use it when no client waits for
// an answer: `stock` computes more prompt tokens a second.
//
// Bounds:
//   - An answer in its output phase gets a token every step, as under `uma`; a background one beside interactive ones
//     within ThinkFloor and a step.
//   - A thinking request gets a token within ThinkFloor and a step; with more due than a batch has rows, in turn.
//   - Prompts are held at most MaxHeld steps in a row, and one that has a sequence gets tokens at least once in
//     8 × MaxRunning steps in which prompts are not held; a step that is given up counts as one with its chunks.
type meridian struct{ predictive }

func newMeridian(s *Scheduler) *meridian { return &meridian{newPredictive(s)} }

// fill is one pass over the step's candidates in the order of their value: rows that are computed in any case, rows in
// turn, chunks of prompts, and then the rows that found no room before the chunks. Each is added while the cost model
// says that the step ends by the answers' deadline (target.go); guesses, the last candidates, follow in speculate.
func (p *meridian) fill(b *batcher) {
	s := b.s
	p.split()
	s.plan.Reason = reason.None
	// Rows are kept for prompts, or answers that fill the batch would stop them.
	b.reserve(p.pre)
	rows := p.cfg.MaxBatch - b.keep

	// Rule 1, and rule 4 while no answer runs.
	answers, why := p.out, reason.Decode
	var yielding, waiting []*request
	if len(answers) == 0 {
		answers, why = p.think, reason.Think
	} else {
		answers, yielding = p.apart(rows)
	}
	unserved := b.decodeAll(answers, rows, why)
	due := b.due
	for _, r := range unserved {
		due.add(s, r)
	}
	budget := p.budget(b, due)
	yielding = p.inTurn(b, yielding, rows, reason.Decode, reason.Decode, func(_ int, r *request) bool {
		return p.rowFits(b, r, budget.most)
	})
	// While rows are left, the target is why these got none. Without rows they may get those that prompts leave.
	if s.plan.Tokens < rows && b.left > 0 {
		for _, r := range yielding {
			p.skip(b, r, reason.WaitEndangered)
			s.plan.Reason = reason.Target
		}
		yielding = nil
	}

	// Rule 2.
	if len(p.out) > 0 {
		share := 1.0
		if len(p.pre) > 0 {
			share = thinkShare
		}
		now := s.cost.Upper(b.load)
		waiting = p.thoughts(b, rows, now+mul(share, max(0, budget.ms-now)), budget.bounded)
	}

	// Rules 3 to 6.
	p.prompts(b, budget)

	p.leftOver(b, budget.ms, unserved, yielding, waiting)
	p.finish(b)
}

// leftOver gives the rows that prompts have left to the answers and thoughts that found none; those of thoughts keep
// the step below ms.
func (p *meridian) leftOver(b *batcher, ms float64, answers, yielding, thoughts []*request) {
	s := b.s
	if n := min(len(answers), b.left); n > 0 {
		b.decodeAll(answers, n, reason.DecodeTurn)
	}
	for _, r := range yielding {
		if b.left > 0 {
			b.decode(r, reason.DecodeTurn)
			continue
		}
		p.skip(b, r, reason.WaitEndangered)
	}
	for _, r := range thoughts {
		if b.left > 0 && !s.plan.PrefillHeld && p.rowFits(b, r, ms) {
			b.decode(r, reason.Think)
			continue
		}
		p.skip(b, r, reason.ThinkHeld)
		s.clock.guard.thinkHeld++
	}
	if s.plan.Reason == reason.None && s.clock.guard.thinkHeld > 0 {
		s.plan.Reason = reason.Target
	}
}

// apart splits the answers: those that the step is for, and the background ones that yield to their ITL targets. The
// second list is empty where none has a target, and until the cost model has learned what a row costs. Where the first
// ones leave none of the batch's rows, those that are due by Config.ThinkFloor take turns with them.
func (p *meridian) apart(rows int) (first, yielding []*request) {
	hasTarget := func(r *request) bool { return p.s.itlTarget(r) > 0 }
	if p.s.cost.Steps() < learnedSteps || !slices.ContainsFunc(p.out, hasTarget) {
		return p.out, nil
	}
	n := 0
	take := func(ok func(*request) bool) { // both lists stay in the order in which they started
		for i := n; i < len(p.out); i++ {
			if r := p.out[i]; ok(r) {
				copy(p.out[n+1:i+1], p.out[n:i])
				p.out[n] = r
				n++
			}
		}
	}
	take(func(r *request) bool { return !p.s.yieldsRow(r) })
	if n >= rows {
		take(p.due)
	}
	return p.out[:n], p.out[n:]
}

// yieldsRow reports whether r's next token waits, for up to Config.ThinkFloor, where it would make one with an ITL
// target late: r is a background answer that has none, and the policy is meridian.
func (s *Scheduler) yieldsRow(r *request) bool {
	return s.clock.yields && r.entry.Class == Background && r.state == Output && s.itlTarget(r) == 0
}

// thoughts adds the rows of the thinking requests that are due or fit below ms, and returns the other requests.
func (p *meridian) thoughts(b *batcher, rows int, ms float64, bounded bool) (waiting []*request) {
	return p.inTurn(b, p.think, rows, reason.Think, reason.ThinkFloor, func(i int, r *request) bool {
		switch {
		// No answer of the step has a target that a row could break.
		case !bounded:
			return true
		case b.s.cost.Steps() < learnedSteps:
			return i < int(math.Ceil(p.cfg.ThinkMultiplier*float64(len(p.out))))
		}
		return p.rowFits(b, r, ms)
	})
}

// due reports whether r's next token is due by Config.ThinkFloor: with the next step it would be late.
func (p *meridian) due(r *request) bool {
	return !r.timing.emitted || r.timing.lastEmit <= p.s.now.Add(p.s.clock.guard.target).Add(-p.cfg.ThinkFloor)
}

// inTurn adds the rows of the requests that are due by Config.ThinkFloor, then of those that fit until the first one
// that does not, interactive ones before background ones, the least recently served ones first. It returns the others.
func (p *meridian) inTurn(b *batcher, order []*request, rows int, why, late Reason,
	fits func(i int, r *request) bool) (waiting []*request) {
	s := b.s
	slices.SortFunc(order, func(a, b *request) int {
		switch ad, bd := p.due(a), p.due(b); {
		case ad != bd && ad:
			return -1
		case ad != bd:
			return 1
		case a.entry.Class != b.entry.Class && !ad:
			return int(a.entry.Class) - int(b.entry.Class)
		case a.turns.lastTurn != b.turns.lastTurn:
			return cmp.Compare(a.turns.lastTurn, b.turns.lastTurn)
		}
		return cmp.Compare(a.entry.Rank, b.entry.Rank)
	})
	for i, r := range order {
		if s.plan.Tokens >= rows || b.left == 0 {
			return order[i:]
		}
		switch {
		case p.due(r) && r.turns.lastStep+1 < s.step:
			b.decode(r, late)
		case p.due(r), fits(i, r):
			b.decode(r, why)
		default:
			return order[i:]
		}
	}
	return nil
}

// rowFits reports whether the batch with r's next token stays below ms.
func (p *predictive) rowFits(b *batcher, r *request, ms float64) bool {
	l := b.load
	l.AddRows(r.computed, 1)
	if r.turns.probe > 0 {
		l.AddRows(r.computed, r.turns.probe)
	}
	return p.s.cost.Upper(l) <= ms
}
