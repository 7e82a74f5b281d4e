package pooling

import (
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// NewRank makes a Pooler of one value: the score of a pair, by r, of rows of so many values.
func NewRank(r *runtime.Ranking, values int) *Pooler {
	kind := runtime.PoolCLS
	if r.Last {
		kind = runtime.PoolLast
	}
	p := New(kind, values)
	p.rank = r
	return p
}

// score returns the first label that c gives a hidden state.
func score(c *runtime.Classifier, h []float32) float32 {
	v := make([]float64, len(h))
	for i, x := range h {
		v[i] = float64(x)
	}
	if len(c.Dense) > 0 {
		v = affine(c.Dense, c.DenseBias, v)
		for i := range v {
			v[i] = math.Tanh(v[i])
		}
	}
	if len(c.Out) > 0 {
		v = affine(c.Out, c.OutBias, v)
	}
	if !c.Softmax {
		return float32(v[0])
	}
	sum := 0.0
	for _, x := range v {
		sum += math.Exp(x - v[0])
	}
	return float32(1 / sum)
}

// affine is m·v + bias. The rows of m are as long as v.
func affine(m, bias []float32, v []float64) []float64 {
	out := make([]float64, len(m)/len(v))
	for i := range out {
		if len(bias) > 0 {
			out[i] = float64(bias[i])
		}
		for j, x := range m[i*len(v) : (i+1)*len(v)] {
			out[i] += float64(x) * v[j]
		}
	}
	return out
}
