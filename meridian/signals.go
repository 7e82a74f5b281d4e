package meridian

import "math"

// EAT follows the entropy after the close tag: how undecided the answer would be if thinking stopped here (Wang,
// McInerney, Wang, Kallus: "Entropy After </Think> for reasoning model early exiting", arXiv 2509.26522). A probe
// measures the value, in nats; EAT keeps its running mean and variance and reports when it is steady.
//
//	M₁ = x₁, V₁ = 0;  M ← αx + (1−α)M;  V ← α(x−M)² + (1−α)V with the new M
type EAT struct {
	N    int     // probes so far
	X    float64 // last probe, nats
	Mean float64 // nats
	Var  float64 // nats²
}

// Add takes a probe's entropy in nats. It ignores a value that is not finite and returns false.
func (e *EAT) Add(x, alpha float64) bool {
	if !finite(x) {
		return false
	}
	e.N++
	e.X = x
	if e.N == 1 {
		e.Mean, e.Var = x, 0
		return true
	}
	e.Mean += alpha * (x - e.Mean)
	d := x - e.Mean
	e.Var += alpha * (d*d - e.Var)
	return true
}

// Steady reports whether more than warmup probes were seen and their variance is below threshold (nats²).
func (e *EAT) Steady(warmup, threshold float64) bool {
	return float64(e.N) > warmup && e.Var < threshold
}

// RPDI is the reasoning path deviation index: mean entropy of the last W think tokens over the mean of all since
// thinking began (Guan et al., "Mitigating Overthinking in Large Reasoning Language Models via Reasoning Path
// Deviation Monitoring", arXiv 2603.14251). It is read at boundaries, where a line or a sentence ends.
type RPDI struct {
	ring []float64 // the last len(ring) entropies; value i at i mod len
	n    int       // values so far
	win  float64   // sum of the window
	all  float64   // sum of all
}

// NewRPDI returns an RPDI with a window in tokens.
func NewRPDI(window int) RPDI { return RPDI{ring: make([]float64, window)} }

// Add takes a think token's entropy in nats. It ignores a value that is not finite and returns false.
func (r *RPDI) Add(h float64) bool {
	if !finite(h) {
		return false
	}
	i := r.n % len(r.ring)
	r.win += h - r.ring[i]
	r.ring[i] = h
	r.n++
	r.all += h
	if i == len(r.ring)-1 {
		// Recompute the sum once per round of the ring, so that rounding errors do not accumulate.
		r.win = 0
		for _, v := range r.ring {
			r.win += v
		}
	}
	return true
}

// N returns the number of values taken.
func (r *RPDI) N() int { return r.n }

// Index returns ρ = local mean / global mean; 0 until the window is full, and when the global mean is 0. It is at most
// N/W, so it cannot exceed λ before N = λW.
func (r *RPDI) Index() float64 {
	if r.n < len(r.ring) || r.all <= 0 {
		return 0
	}
	return r.win / float64(len(r.ring)) / (r.all / float64(r.n))
}

// Indicator is the local over the global rate of transition tokens, tokens with an entropy above a threshold. The Rust
// crate meridian-core calls this index RPDI. Its global rate divides by the number of tokens, which makes the index
// five to seven times too high where not every token is sampled; here the global rate divides by the number of values
// taken.
type Indicator struct {
	N           int     // values so far
	Local       float64 // EMA of the indicator, from 0
	transitions int
}

// Add takes a think token's entropy in nats. It ignores a value that is not finite and returns false.
func (x *Indicator) Add(h, threshold, alpha float64) bool {
	if !finite(h) {
		return false
	}
	t := 0.0
	if h > threshold {
		t = 1
		x.transitions++
	}
	x.N++
	x.Local += alpha * (t - x.Local)
	return true
}

// Global returns the share of transition tokens among all values.
func (x *Indicator) Global() float64 {
	if x.N == 0 {
		return 0
	}
	return float64(x.transitions) / float64(x.N)
}

// Index returns local/global; 0 while the global rate is at most 0.001, where the ratio means nothing.
func (x *Indicator) Index() float64 {
	g := x.Global()
	if g <= 0.001 {
		return 0
	}
	return x.Local / g
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
