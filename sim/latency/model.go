package latency

import (
	"fmt"
	"math"
)

// Item is one request's part of a step.
type Item struct {
	Context int  // tokens computed before the step
	New     int  // tokens computed in it, > 0
	Prefill bool // they are the prompt's
}

// Batch counts the work of a step. Items is filled only for a model whose NeedsItems is true.
type Batch struct {
	Requests      int // with at least one new token
	PrefillTokens int
	DecodeTokens  int
	Rows          int     // of logits
	Attended      float64 // Σ over requests of sched.Attended: the cells that each new token looks at
	Read          float64 // Σ over requests of the cells that any of its new tokens looks at
	Runs          int     // pieces that these cells lie in: see Runs
	Resident      int     // KV cells in use when it is computed, those of cached prefixes included
	Items         []Item
}

// Model predicts times. A Model has no state and may be shared.
type Model interface {
	// Step is the duration of a step, ≥ 1.
	Step(b *Batch) int64
	// Enqueue is the delay between a request's arrival and its place in the queue, for a prompt of n tokens.
	Enqueue(n int) int64
	// Token is added to every observed token time and never to the clock: post-processing that overlaps the next step.
	Token() int64
	// Finish is added once to a finished request's end-to-end time.
	Finish() int64
	// NeedsItems says that Step reads Batch.Items.
	NeedsItems() bool
}

// Ticks cuts x toward zero; what does not fit (or is no number) is the largest tick.
func Ticks(x float64) int64 {
	if math.IsNaN(x) || x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(x)
}

// Alpha are the times outside the engine: Alpha[0] + Alpha[1]·prompt tokens before the queue, Alpha[2] a token after.
type Alpha [3]float64

func (a Alpha) Enqueue(n int) int64 { return Ticks(a[0] + float64(a[1]*float64(n))) }
func (a Alpha) Token() int64        { return Ticks(a[2]) }
func (a Alpha) Finish() int64       { return 0 }

// CheckCoefficients returns an error, which begins with name, unless c has at least so many finite numbers ≥ 0.
func CheckCoefficients(name string, c []float64, least int) error {
	if len(c) < least {
		return fmt.Errorf("%s: %d coefficients, at least %d are needed", name, len(c), least)
	}
	for i, x := range c {
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			return fmt.Errorf("%s[%d] = %v: must be finite and ≥ 0", name, i, x)
		}
	}
	return nil
}

// NewAlpha checks the three coefficients: finite, ≥ 0.
func NewAlpha(c []float64) (Alpha, error) {
	if err := CheckCoefficients("alpha_coeffs", c, 3); err != nil {
		return Alpha{}, err
	}
	return Alpha(c[:3]), nil
}

// Blackbox is the linear model: Beta[0] + Beta[1]·prefill tokens + Beta[2]·decode tokens, microseconds.
type Blackbox struct {
	Alpha
	Beta [3]float64
}

// NewBlackbox checks the coefficients: at least three each, finite, ≥ 0.
func NewBlackbox(alphas, betas []float64) (*Blackbox, error) {
	a, err := NewAlpha(alphas)
	if err != nil {
		return nil, err
	}
	if err := CheckCoefficients("beta_coeffs", betas, 3); err != nil {
		return nil, err
	}
	return &Blackbox{a, [3]float64(betas[:3])}, nil
}

func (m *Blackbox) Step(b *Batch) int64 {
	return max(1, Ticks(m.Beta[0]+float64(m.Beta[1]*float64(b.PrefillTokens))+float64(
		m.Beta[2]*float64(b.DecodeTokens))))
}
func (m *Blackbox) NeedsItems() bool { return false }
