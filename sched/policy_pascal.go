package sched

import "math"

// pascal serves thinking first and delays an answer while its reader still has text to read.
//
// Rule, after PASCAL (arXiv 2602.11530: phase-aware scheduling of reasoning requests): in each step
//  1. every thinking request gets one token: its user sees nothing until the answer begins;
//  2. an answer gets one unless it is ahead of a reader of Config.ReadingRate tokens a second: while the text already
//     sent lasts longer than a step takes, thinking requests and prompts get the step, if there are any;
//  3. prompts get the chunk that fits before the next token is due: an answer's by its reader, or by the target as
//     under meridian.
//
// It optimises: the time until the visible answer begins. It gives up: the evenness of the visible answer, which comes
// at reading speed and no faster while other requests have work, and its total time. Do not use it when programs read
// the answers: a parser does not read 15 tokens a second.
//
// Bounds: a thinking request gets a token every step. So does an answer that is not ahead of its reader, or when there
// is no other work (with more of both than rows: in turn). Prompts, and steps that are given up: as under meridian.
type pascal struct {
	predictive
	turns []*request // scratch: thoughts and answers that share the rows of a step in turn
}

func newPascal(s *Scheduler) *pascal {
	return &pascal{newPredictive(s), make([]*request, 0, s.cfg.MaxRunning)}
}

func (p *pascal) fill(b *batcher) {
	s := b.s
	p.split()
	s.plan.Reason = ReasonNone
	b.keep = p.reserved()
	rows := p.cfg.MaxBatch - b.keep
	// The answers that cannot wait a step move to the front.
	ms, n := math.Inf(1), len(p.out)
	// Rule 2: an answer yields only where there is other work.
	if len(p.think)+len(p.pre) > 0 {
		n = 0
		for i, r := range p.out {
			step := p.cfg.ITLTarget
			if t := s.itlTarget(r); t > 0 {
				step = min(step, t)
			}
			if ahead := r.readAt.Sub(s.now); ahead > step {
				ms = min(ms, float64(ahead)/1e6)
				continue
			}
			p.out[n], p.out[i] = p.out[i], p.out[n]
			n++
		}
	}
	behind, ahead := p.out[:n], p.out[n:]
	var unserved []*request
	if len(p.think)+len(behind) > rows {
		// In turn: thoughts alone could take every row as long as they last.
		p.turns = append(append(p.turns[:0], p.think...), behind...)
		unserved = b.decodeAll(p.turns, rows, ReasonDecodeTurn)
	} else {
		b.decodeAll(p.think, rows, ReasonThink)
		b.decodeAll(behind, rows, ReasonDecode)
	}
	answers := behind
	// Thinking requests are on the way to their answers: the target applies to them, as under meridian.
	if len(p.out) == 0 {
		answers = p.think
	}
	budget := p.budget(b, answers)
	if len(ahead) > 0 {
		budget.ms, budget.most, budget.bounded = min(budget.ms, ms), min(budget.most, ms), true
		if budget.target == 0 {
			budget.target = p.cfg.ITLTarget
		}
	}
	p.prompts(b, budget)
	if n := min(len(unserved), b.left); n > 0 {
		b.decodeAll(unserved, n, ReasonDecodeTurn)
	}
	if len(s.plan.Batch) == 0 {
		// Not even the smallest chunk fits: an early token is better than an idle machine.
		ahead = b.decodeAll(ahead, b.left, ReasonDecode)
	}
	for _, r := range ahead {
		p.skip(b, r, ReasonPaced)
	}
	p.finish(b)
}
