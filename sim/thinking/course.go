package thinking

import (
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Kind is the course of a thought.
type Kind uint8

const (
	// Open: the answer stays undecided until the thought has ended. No signal should end it.
	Open Kind = iota
	// Settles: from a turn on the answer is decided, and the thought after it is redundant (EAT: converged).
	Settles
	// Stalls: from a turn on the distribution of the answer no longer changes, and no answer is likely (EAT: stalled).
	Stalls
	// Drifts: from a turn on the thought leaves its path: its tokens become less certain (RPDI: overthinking).
	Drifts
)

// Shares of the kinds; the rest of 1 is Open. They and the levels below are assumptions, chosen so that each signal
// occurs with meridian.DefaultConfig. They are not measurements of a model.
const (
	settleShare = 0.45
	stallShare  = 0.15
	driftShare  = 0.15
)

// Levels of the entropies, nats.
const (
	undecided   = 0.8  // after the close tag, at the beginning of a thought
	decided     = 0.02 // … once an answer has settled
	torn        = 1.4  // … of a thought that stalls
	settledEdge = 0.01 // the width of the noise behind the turn
	openEdge    = 0.5  // … and before it, falling towards the turn; that of an open thought does not fall
	rowLevel    = 0.5  // of a row of the thought, mean
	driftFactor = 5    // how much higher it is behind the turn of a thought that drifts
)

// Course is the course of one thought. Its entropies depend on the seed and the position alone, so neither the schedule
// nor a preemption changes them.
type Course struct {
	Kind Kind
	Turn int // tokens after which a thought that is not Open turns: 3/10 … 6/10 of its length

	seed uint64
}

// NewCourse draws the course of a thought of length tokens.
func NewCourse(seed uint64, length int) Course {
	c := Course{seed: workload.Mix64(seed ^ 0x636f75727365)}
	switch u := c.draw(0, 0); {
	case u < settleShare:
		c.Kind = Settles
	case u < settleShare+stallShare:
		c.Kind = Stalls
	case u < settleShare+stallShare+driftShare:
		c.Kind = Drifts
	}
	c.Turn = max(1, int(float64(length)*(0.3+0.3*c.draw(0, 1))))
	return c
}

// draw returns a number in [0, 1) for a stream at a position.
func (c *Course) draw(stream uint64, at int) float64 {
	return float64(workload.Mix64(c.seed+stream<<56+uint64(at)*0x9e3779b97f4a7c15)>>11) / (1 << 53)
}

// Probe returns the entropy of the row after the close tag, in nats, if the thought closed after n tokens.
func (c *Course) Probe(n int) float64 {
	noise := c.draw(1, n) - 0.5
	if c.Kind == Open || c.Kind == Drifts {
		return undecided + openEdge*noise
	}
	goal := decided
	if c.Kind == Stalls {
		goal = torn
	}
	left := max(0, 1-float64(n)/float64(c.Turn)) // of the way to the turn
	left *= left * left
	return goal + left*(undecided-goal) + (settledEdge+left*openEdge)*noise
}

// Row returns the statistics of the row from which the token behind n others of the thought is drawn. The entropy is
// what phase control uses of them; the close tag is not among the probable tokens.
func (c *Course) Row(n int) runtime.RowStats {
	level := rowLevel
	if c.Kind == Drifts && n >= c.Turn {
		level *= driftFactor
	}
	return runtime.RowStats{Entropy: level * (0.2 + 1.6*c.draw(2, n)), CloseRank: -1}
}
