package sched

import "time"

// pace sizes steps with prompt work: it moves a number of tokens so that a step takes about its goal.
//
// It follows an exponentially weighted moving average of the time of such steps. Outside a band of ±10 % around the
// goal it scales the number by goal/average, at least by 0.5 and at most by 1.25, and scales the average with it: a
// step's time is nearly proportional to its tokens, and otherwise the average of old steps would change the number
// again and again.
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

// observe learns from a step of n tokens. limited says that the budget kept it from being larger; otherwise a short
// step says nothing about the budget.
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
		// A step can be larger than its budget: each answer gets its token anyway.
		p.tokens = max(p.tokens, float64(n))
	default:
		return
	}
	was := p.tokens
	p.tokens = min(max(p.tokens*f, p.lo), p.hi)
	p.took.value *= p.tokens / was
}
