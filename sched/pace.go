package sched

import "time"

// pace sizes steps with prompt work: a number of tokens that moves so that a step takes about its goal.
//
// It follows an exponentially weighted moving average of the time such steps took. Outside a band of ±10 %
// around the goal the number is scaled by goal/average, at most halved and at most 1.25 times as many at once,
// and the average is restated for the new size: a step's time is nearly proportional to its tokens, and without
// that the old steps would be answered again and again.
type pace struct {
	goal   float64 // ns
	tokens float64 // Invariant: lo ≤ tokens ≤ hi
	lo, hi float64
	took   average // ns, of steps that the budget bounded or that took too long
}

func newPace(goal time.Duration, start, lo, hi int) pace {
	return pace{goal: float64(goal), tokens: float64(max(start, lo)), lo: float64(lo), hi: float64(hi)}
}

// size is the budget in tokens.
func (p *pace) size() int { return int(p.tokens + 0.5) }

// observe learns from a step of n tokens. limited says that the budget was what kept it from being larger;
// without that a short step says nothing about the budget.
func (p *pace) observe(n int, limited bool, took time.Duration) {
	if !limited && float64(took) <= p.goal {
		return
	}
	p.took.add(float64(took), 0.3)
	f := p.goal / max(p.took.value, 1)
	switch {
	case f < 0.9:
		f = max(f, 0.5)
	case f > 1.1 && limited:
		f = min(f, 1.25)
		// A step can be larger than its target: each answer gets its token anyway.
		p.tokens = max(p.tokens, float64(n))
	default:
		return
	}
	was := p.tokens
	p.tokens = min(max(p.tokens*f, p.lo), p.hi)
	p.took.value *= p.tokens / was
}
