package workload

import (
	"math"
	"math/rand"
)

// Stream returns the random stream of a subsystem. Streams are independent: drawing from one never moves another.
// "workload" is the master seed itself; any other name is mixed in by FNV-1a.
func Stream(seed int64, name string) *rand.Rand {
	if name != "workload" {
		h := uint64(14695981039346656037)
		for i := range len(name) {
			h = (h ^ uint64(name[i])) * 1099511628211
		}
		seed ^= int64(h)
	}
	return rand.New(rand.NewSource(seed))
}

// vocabulary is the number of token ids that a generated prompt draws from.
const vocabulary = 128000

// drawTokens draws n token ids. Nothing needs their values, everything drawn after them needs them drawn.
func drawTokens(r *rand.Rand, n int) {
	for range n {
		r.Int31n(vocabulary)
	}
}

// gamma draws from a gamma distribution by Marsaglia and Tsang (ACM TOMS 26, 2000), with Ahrens' boost below shape 1.
// The order of the draws (the boost's uniform first) is part of the workload's identity.
func gamma(r *rand.Rand, shape, scale float64) float64 {
	if shape < 1 {
		u := r.Float64()
		return gamma(r, shape+1, scale) * math.Pow(u, 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		t := 1 + c*x
		if t <= 0 {
			continue
		}
		v := t * t * t
		u := r.Float64()
		if u < 1-0.0331*(x*x)*(x*x) || math.Log(u) < 0.5*x*x+d*(1-v+math.Log(v)) {
			return d * v * scale
		}
	}
}

// weibullShape finds k with the wanted coefficient of variation, which falls as k grows, to 0.001.
func weibullShape(cv float64) float64 {
	lo, hi := 0.1, 100.0
	for range 100 {
		k := (lo + hi) / 2
		g1, g2 := math.Gamma(1+1/k), math.Gamma(1+2/k)
		got := math.Sqrt(g2/(g1*g1) - 1)
		switch {
		case math.Abs(got-cv) < 0.001:
			return k
		case got > cv:
			lo = k
		default:
			hi = k
		}
	}
	return (lo + hi) / 2
}

func positiveUniform(r *rand.Rand) float64 {
	return max(r.Float64(), math.SmallestNonzeroFloat64)
}

func ticks(x float64) int64 {
	if !(x < float64(MaxTime)) {
		return MaxTime
	}
	return int64(x)
}

// gaps returns a generator of times between arrivals, microseconds, each ≥ 1.
func (a *Arrival) gaps(perMicrosecond float64) func(*rand.Rand) int64 {
	rate := max(perMicrosecond, 1e-15)
	cv := 1.0
	if a.CV != nil && *a.CV > 0 {
		cv = *a.CV
	}
	poisson := func(r *rand.Rand) int64 { return max(1, ticks(r.ExpFloat64()/rate)) }
	switch a.Process {
	case "constant":
		gap := max(1, ticks(1/rate))
		return func(*rand.Rand) int64 { return gap }
	case "gamma":
		shape, scale := 1/(cv*cv), 1/rate*cv*cv
		if shape < 0.01 {
			return poisson
		}
		return func(r *rand.Rand) int64 { return max(1, ticks(gamma(r, shape, scale))) }
	case "weibull":
		k := weibullShape(cv)
		scale := 1 / rate / math.Gamma(1+1/k)
		return func(r *rand.Rand) int64 {
			return max(1, ticks(scale*math.Pow(-math.Log(positiveUniform(r)), 1/k)))
		}
	}
	return poisson
}
