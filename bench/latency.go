package bench

import (
	"fmt"
	"io"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Latency summarises inter-token times, in ms.
type Latency struct {
	Tokens int     `json:"tokens"`
	P50    float64 `json:"p50_ms"`
	P95    float64 `json:"p95_ms"`
	P99    float64 `json:"p99_ms"`
	Worst  float64 `json:"worst_ms"`
}

func latency(gaps []float64) Latency {
	if len(gaps) == 0 {
		return Latency{}
	}
	slices.Sort(gaps)
	q := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, gaps, nil) }
	return Latency{len(gaps), q(.5), q(.95), q(.99), gaps[len(gaps)-1]}
}

// quantile returns the q quantile of x, 0 when there is none.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return stat.Quantile(q, stat.Empirical, slices.Sorted(slices.Values(x)), nil)
}

func say(w io.Writer, format string, args ...any) {
	if w != nil {
		fmt.Fprintf(w, format+"\n", args...)
	}
}
