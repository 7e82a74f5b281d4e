package sched

import (
	"math"
	"slices"
)

// meridian keeps a promise in milliseconds: the time between two tokens of a visible answer stays under a target,
// whatever else there is to compute.
//
// Rule: in each step
//  1. every answer in its output phase gets one token;
//  2. what the cost model says is left under the tightest target (Event.TargetTBT, else Config.ITLTarget for
//     interactive answers) is shared by thinking requests and prompts: half of it goes to thinking ones, least
//     recently served first, when prompts wait; a thinking one that would wait longer than Config.ThinkFloor gets
//     its token in any case;
//  3. prompts get the chunk that fits into the rest in 95 of 100 cases, by the cost model's own record of how far it
//     is off, and no larger than twice what it has seen. When nothing fits they are held, at most Config.MaxHeld steps
//     in a row, then they get the smallest chunk; held prompts go on only when Config.MinPrefill fits;
//  4. while no answer runs, thinking requests all get their token (they are on the way to their answer, and the target
//     is theirs then). With no token to wait for, prompts get the chunk that takes Config.SoloBudget, so that progress
//     is seen and a cancel or a newcomer does not wait for seconds. The first chunk ever has Config.FirstPrefill tokens;
//  5. beside an interactive answer of fewer than five tokens prompts are held, because its first words are waited for:
//     in at most 12 steps more than there were others, and not a prompt that would have its own first token within two
//     steps;
//  6. where answers alone take longer than the target, it cannot be met (Stats.TargetInfeasible): then a step may take
//     half as long again as these, because holding the others would smooth nothing.
//
// It optimises: the promise first, then the throughput of prompts and of thinking under it. It predicts: the first
// step of a storm is sized as the hundredth is.
// It gives up: the share t_answers/target of the prompt throughput, and mean smoothness: steps are as long as the
// target allows while there is work.
// Do not use it for work without anybody waiting: `stock` computes more prompt tokens a second.
//
// Bounds:
//   - An answer in its output phase gets a token every step, as under `uma`.
//   - A thinking request gets a token within ThinkFloor and a step, or, when more are due than a batch has rows, in turn.
//   - Prompts are held at most MaxHeld steps in a row, and one that has a sequence gets tokens at least once in
//     8 × MaxRunning steps that are not held.
type meridian struct{ predictive }

func newMeridian(s *Scheduler) *meridian { return &meridian{newPredictive(s)} }

// thinkShare is the part of what is left under the target that thinking requests may take while prompts wait.
const thinkShare = 0.5

// learnedSteps is how many steps the cost model must have seen before it decides about thinking rows.
const learnedSteps = 8

func (p *meridian) fill(b *builder) {
	s := b.s
	p.split()
	s.plan.Reason = ReasonNone
	b.keep = p.reserved()
	rows := p.cfg.MaxBatch - b.keep
	answers, why := p.out, ReasonDecode
	if len(answers) == 0 {
		answers, why = p.think, ReasonThink
	}
	unserved := b.decodeAll(answers, rows, why)
	room := p.room(b, answers)
	var waiting []*request
	if len(p.out) > 0 {
		share := 1.0
		if len(p.pre) > 0 {
			share = thinkShare
		}
		now := s.cost.upper(b.load)
		waiting = p.thoughts(b, rows, now+mul(share, max(0, room.ms-now)), room.bounded)
	}
	p.prompts(b, room)
	// What prompts left over.
	if n := min(len(unserved), b.left); n > 0 {
		b.decodeAll(unserved, n, ReasonDecodeTurn)
	}
	for _, r := range waiting {
		if b.left > 0 && !s.plan.PrefillHeld && p.rowFits(b, r, room.ms) {
			b.decode(r, ReasonThink)
			continue
		}
		p.leaveOut(b, r, ReasonThinkHeld)
		s.promise.thinkHeld++
	}
	if s.plan.Reason == ReasonNone && s.promise.thinkHeld > 0 {
		s.plan.Reason = ReasonTarget
	}
	p.finish(b)
}

// thoughts adds the rows of thinking requests that are due or fit below ms, and returns the others.
func (p *meridian) thoughts(b *builder, rows int, ms float64, bounded bool) (waiting []*request) {
	s := b.s
	// In the step after this one it is too late.
	dueBy := s.now.Add(s.promise.target).Add(-p.cfg.ThinkFloor)
	due := func(r *request) bool { return !r.emitted || r.lastEmit <= dueBy }
	slices.SortFunc(p.think, func(a, b *request) int {
		switch ad, bd := due(a), due(b); {
		case ad != bd && ad:
			return -1
		case ad != bd:
			return 1
		case a.flow.class != b.flow.class && !ad:
			return int(a.flow.class) - int(b.flow.class)
		case a.lastTurn != b.lastTurn:
			return cmp(a.lastTurn, b.lastTurn)
		}
		return cmp(a.rank, b.rank)
	})
	fits := func(i int, r *request) bool {
		switch {
		case !bounded:
			return true
		case s.cost.steps < learnedSteps:
			return i < int(math.Ceil(p.cfg.ThinkMultiplier*float64(len(p.out))))
		}
		return p.rowFits(b, r, ms)
	}
	for i, r := range p.think {
		if s.plan.Tokens >= rows || b.left == 0 {
			return p.think[i:]
		}
		switch {
		case due(r):
			why := ReasonThink
			if r.lastStep+1 < s.step {
				why = ReasonThinkFloor
			}
			b.decode(r, why)
		case fits(i, r):
			b.decode(r, ReasonThink)
		default:
			return p.think[i:]
		}
	}
	return nil
}

// rowFits reports whether the batch with r's next token stays below ms.
func (p *predictive) rowFits(b *builder, r *request, ms float64) bool {
	l := b.load
	l.slice(SliceDecode, r.computed, 1+r.probe)
	return p.s.cost.upper(l) <= ms
}
