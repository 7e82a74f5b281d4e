package cost

import "time"

// Pace sizes steps with prompt work: it moves a number of tokens so that a step takes about its goal.
//
// It follows an exponentially weighted moving average of the time of such steps. Outside a band of ±10 % around the
// goal it scales the number by goal/average, at least by 0.5 and at most by 1.25, and scales the average with it: a
// step's time is nearly proportional to its tokens, and otherwise the average of old steps would change the number
// again and again.
type Pace struct {
	Goal   float64 // ns
	tokens float64 // Invariant: lo ≤ tokens ≤ hi
	lo, hi float64
	took   Mean // ns, of steps that the budget bounded or that took too long
}

// NewPace returns a pace of steps of start tokens, which stay within lo … hi.
func NewPace(goal time.Duration, start, lo, hi int) Pace {
	return Pace{Goal: float64(goal), tokens: float64(max(start, lo)), lo: float64(lo), hi: float64(hi)}
}

// Size is the budget in tokens.
func (p *Pace) Size() int { return int(p.tokens + 0.5) }

// Observe learns from a step of n tokens. limited says that the budget kept it from being larger; otherwise a short
// step says nothing about the budget.
func (p *Pace) Observe(n int, limited bool, took time.Duration) {
	if !limited && float64(took) <= p.Goal {
		return
	}
	p.took.Add(float64(took), 0.3)
	f := p.Goal / max(p.took.Value, 1)
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
	p.took.Value *= p.tokens / was
}
