package workload

import (
	"math"
	"math/bits"

	"gonum.org/v1/gonum/mathext/prng"
)

// random draws as Python's random.Random does (Mersenne Twister, 53-bit floats, rejection for integers), so that a
// seed names the same workload here as in the reference implementation of the mix.
type random struct{ mt *prng.MT19937 }

// newRandom is random.Random(seed).
func newRandom(seed uint64) *random {
	mt := prng.NewMT19937()
	keys := []uint32{uint32(seed)}
	if hi := uint32(seed >> 32); hi != 0 {
		keys = append(keys, hi)
	}
	mt.SeedFromKeys(keys)
	return &random{mt}
}

// float is random.random().
func (r *random) float() float64 {
	a, b := r.mt.Uint32()>>5, r.mt.Uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}

// below is uniform in [0, n), 0 < n ≤ 2³².
func (r *random) below(n int) int {
	k := bits.Len64(uint64(n))
	for {
		if v := int(r.mt.Uint32() >> (32 - k)); v < n {
			return v
		}
	}
}

// between is uniform in [a, b], both included.
func (r *random) between(a, b int) int { return a + r.below(b-a+1) }

// exponential has the mean 1/rate.
func (r *random) exponential(rate float64) float64 { return -math.Log(1-r.float()) / rate }

// shuffle is random.shuffle.
func shuffle[T any](r *random, xs []T) {
	for i := len(xs) - 1; i > 0; i-- {
		j := r.below(i + 1)
		xs[i], xs[j] = xs[j], xs[i]
	}
}
