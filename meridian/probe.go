package meridian

import (
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// ReferenceProbe computes runtime.RowStats by their definition, in float64 over the whole row. Tests compare the faster
// probes with it. With x the logits that are numbers, m the largest of them and Z = Σ e^(x-m), the log-sum-exp is
// m + ln Z and the entropy is ln Z - Σ (x-m)·e^(x-m)/Z.
func ReferenceProbe(row []float32, close []int32) (st runtime.RowStats) {
	probe(row, close, math.Inf(1), &st)
	return st
}

// ProbeRow is ReferenceProbe without the exponentials of logits that are too small to change the result. It serves
// engines that do not implement runtime.RowProber. It takes two passes and allocates nothing.
func ProbeRow(row []float32, close []int32, out *runtime.RowStats) {
	probe(row, close, pruned+math.Log(float64(max(len(row), 1))), out)
}

// pruned bounds the error of ProbeRow: n logits that are pruned + ln n below the largest have together less than
// e^-pruned = 2.1e-9 of the mass and, as -p·ln p grows with p there, less than 7e-8 nats of the entropy at n = 152,064.
const pruned = 20

// probe computes a row's statistics. It ignores logits more than reach below the largest one.
func probe(row []float32, close []int32, reach float64, out *runtime.RowStats) {
	inf := float32(math.Inf(1))
	st := runtime.RowStats{Max: -inf, Argmax: runtime.NoToken, LogSumExp: math.Inf(-1), CloseRank: -1}
	best, ranked := -inf, false
	for _, id := range close {
		if v, ok := logit(row, id); ok {
			best, ranked = max(best, v), true
		}
	}
	above := 0
	for i, v := range row {
		if !(v < inf) {
			st.NonFinite++
			continue
		}
		if v > st.Max {
			st.Max, st.Argmax = v, runtime.Token(i)
		}
		if v > best {
			above++
		}
	}
	if ranked {
		st.CloseRank = above
	}
	if st.Argmax != runtime.NoToken {
		top, sum, dot := float64(st.Max), 0.0, 0.0
		floor := float32(max(top-reach, -math.MaxFloat32))
		for _, v := range row {
			if v >= floor && v < inf {
				d := float64(v) - top
				e := math.Exp(d)
				sum += e
				dot += d * e
			}
		}
		logZ := math.Log(sum)
		st.LogSumExp, st.Entropy = top+logZ, logZ-dot/sum
		for _, id := range close {
			if v, ok := logit(row, id); ok {
				st.CloseMass += math.Exp(float64(v) - st.LogSumExp)
			}
		}
	}
	*out = st
}

// logit returns id's logit; false when there is none, or it is NaN or +Inf.
func logit(row []float32, id int32) (float32, bool) {
	if id < 0 || int(id) >= len(row) || !(row[id] < float32(math.Inf(1))) {
		return 0, false
	}
	return row[id], true
}

// Rows is the part of a runtime.Engine that returns logits.
type Rows interface {
	Logits(i int) []float32
}

// ProberOf returns e if it is a runtime.RowProber, or else a prober that calls ProbeRow on e's logits.
func ProberOf(e Rows) runtime.RowProber {
	if p, ok := e.(runtime.RowProber); ok {
		return p
	}
	return rowProber{e}
}

type rowProber struct{ Rows }

func (p rowProber) ProbeRow(i int, close []runtime.Token, out *runtime.RowStats) bool {
	row := p.Logits(i)
	if row == nil {
		return false
	}
	ProbeRow(row, close, out)
	return true
}
