// Package pooling makes the embedding of a text of the hidden states of its tokens, as they are computed: a text may
// take several decode steps.
package pooling

import (
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// EveryRow reports whether embeddings of this kind are made of all rows; otherwise the last one is enough.
func EveryRow(p runtime.Pooling) bool { return p != runtime.PoolLast }

// Pooler gathers one text's rows.
type Pooler struct {
	kind runtime.Pooling
	rows int
	sum  []float64        // PoolMean
	row  []float32        // PoolCLS, PoolLast: the row it is made of
	rank *runtime.Ranking // not nil: the score of row is wanted
}

// New makes a Pooler of rows of so many values. Kind is PoolMean, PoolCLS or PoolLast.
func New(kind runtime.Pooling, values int) *Pooler {
	p := &Pooler{kind: kind}
	if kind == runtime.PoolMean {
		p.sum = make([]float64, values)
	} else {
		p.row = make([]float32, values)
	}
	return p
}

// Reset forgets all rows.
func (p *Pooler) Reset() {
	p.rows = 0
	clear(p.sum)
}

// Add takes the next row of the text. It does not keep row. Sums are in float64 and in the order of the rows, so the
// result does not depend on how many of them came at once.
func (p *Pooler) Add(row []float32) {
	p.rows++
	switch p.kind {
	case runtime.PoolMean:
		for i, x := range row {
			p.sum[i] += float64(x)
		}
	case runtime.PoolCLS:
		if p.rows == 1 {
			copy(p.row, row)
		}
	default:
		copy(p.row, row)
	}
}

// AppendTo appends the embedding of the rows so far, at least one, or their score to dst.
func (p *Pooler) AppendTo(dst []float32) []float32 {
	switch {
	case p.rank != nil:
		return append(dst, score(&p.rank.Classifier, p.row))
	case p.kind != runtime.PoolMean:
		return append(dst, p.row...)
	}
	for _, x := range p.sum {
		dst = append(dst, float32(x/float64(p.rows)))
	}
	return dst
}

// maxMagnitude is the largest magnitude of an embedding with norm 0, as in llama.cpp (common_embd_normalize).
const maxMagnitude = 32760

// Normalize scales v as llama-server's embd_normalize says: -1 not at all, 0 so that the largest magnitude is 32760, 1
// so that the magnitudes add up to 1, 2 to the length 1, and p > 2 to 1 by the p-norm. A vector of zeros stays as it
// is.
func Normalize(v []float32, norm int) {
	if norm < 0 {
		return
	}
	most := 0.0
	for _, x := range v {
		most = max(most, math.Abs(float64(x)))
	}
	if most == 0 {
		return
	}
	scale := maxMagnitude / most
	if norm > 0 {
		sum := 0.0
		for _, x := range v { // of at most 1 each, so that high powers do not overflow
			sum += math.Pow(math.Abs(float64(x))/most, float64(norm))
		}
		scale = 1 / (most * math.Pow(sum, 1/float64(norm)))
	}
	for i, x := range v {
		v[i] = float32(float64(x) * scale)
	}
}

// Finite reports whether v has no NaN and no infinity.
func Finite(v []float32) bool {
	for _, x := range v {
		if d := x - x; d != d {
			return false
		}
	}
	return true
}
