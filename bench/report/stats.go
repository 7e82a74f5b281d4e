package report

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// nan is an unknown value, null in JSON.
var nan = Num(math.NaN())

// Percentile returns the p-th percentile of xs in any order, p in 0…100: linear between the two nearest ranks, k =
// (n-1)·p/100 (NumPy's default, Hyndman and Fan's type 7); NaN of no values.
func Percentile(xs []float64, p float64) float64 {
	return quantile(slices.Sorted(slices.Values(xs)), p)
}

// quantile is Percentile for sorted values.
func quantile(sorted []float64, p float64) float64 {
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	k := float64(n-1) * p / 100
	i := int(k)
	if i+1 >= n {
		return sorted[n-1]
	}
	return sorted[i] + (k-float64(i))*(sorted[i+1]-sorted[i])
}

// mean returns the mean of xs, NaN of no values.
func mean(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	return stat.Mean(xs, nil)
}

// Interval is a mean over repeats with its 95 % interval.
type Interval struct {
	Mean Num `json:"mean"`
	Low  Num `json:"low"`  // null with fewer than two repeats
	High Num `json:"high"` // the same
	N    int `json:"n"`
}

// interval returns Student's interval: mean ± t(0.975, n-1)·s/√n. Repeats without a value are left out.
func interval(xs []float64) Interval {
	xs = finite(xs)
	out := Interval{Num(mean(xs)), Num(math.NaN()), Num(math.NaN()), len(xs)}
	if len(xs) >= 2 {
		m, s := stat.MeanStdDev(xs, nil)
		half := tQuantile(float64(len(xs)-1)) * s / math.Sqrt(float64(len(xs)))
		out.Low, out.High = Num(m-half), Num(m+half)
	}
	return out
}

func tQuantile(df float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.Quantile(.975)
}

// welch returns the 95 % interval of mean(b) - mean(a) without assuming that both scatter alike (Welch 1947, with
// Satterthwaite's degrees of freedom). ok is false when either has fewer than two values.
func welch(a, b []float64) (low, high float64, ok bool) {
	a, b = finite(a), finite(b)
	if len(a) < 2 || len(b) < 2 {
		return 0, 0, false
	}
	ma, sa := stat.MeanVariance(a, nil)
	mb, sb := stat.MeanVariance(b, nil)
	va, vb := sa/float64(len(a)), sb/float64(len(b))
	d := mb - ma
	if va+vb == 0 {
		return d, d, true
	}
	df := (va + vb) * (va + vb) / (va*va/float64(len(a)-1) + vb*vb/float64(len(b)-1))
	half := tQuantile(df) * math.Sqrt(va+vb)
	return d - half, d + half, true
}

func finite(xs []float64) (out []float64) {
	for _, x := range xs {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			out = append(out, x)
		}
	}
	return out
}

// Wilson returns the 95 % score interval of k successes in n trials (Wilson 1927): unlike the textbook ±1.96·σ it stays
// within 0 … 1 and has a width at k = n.
func Wilson(k, n int) (low, high float64) {
	const z = 1.959964
	p, m := float64(k)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max(0, middle-half), min(1, middle+half)
}
