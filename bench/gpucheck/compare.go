package gpucheck

import (
	"math"
	"slices"
)

// Agreement compares two sides' answers to the same prompts.
type Agreement struct {
	Answers int `json:"answers"`
	Equal   int `json:"equal"`     // token for token
	Near    int `json:"near_ties"` // differ at a near tie: both tokens were nearly as probable for the first side
	// Different: they differ although the first side's token was more probable than the other's by more than the limit.
	Different int     `json:"different"`
	WorstGap  float64 `json:"worst_gap"` // between the two tokens where answers parted, in nats
	// Drift is the greatest difference between the two sides' log-probabilities of the chosen tokens, in nats, over the
	// tokens that the answers have in common. MeanDrift is the mean of these differences.
	Drift     float64 `json:"drift"`
	MeanDrift float64 `json:"mean_drift"`
}

// agree compares answers to the same prompts. Where two part, the gap is the first side's log-probability of its token
// less that of the other's; limit is the largest gap of a near tie, in nats. A token that is not among the first side's
// candidates has an infinite gap.
func agree(first, other []answer, limit float64) (out Agreement) {
	var sum float64
	common := 0
	for i, a := range first {
		out.Answers++
		b := other[i]
		n := min(len(a.tokens), len(b.tokens))
		part := 0
		for part < n && a.tokens[part] == b.tokens[part] {
			x, okX := logprob(a, part, a.tokens[part])
			y, okY := logprob(b, part, a.tokens[part])
			if okX && okY {
				out.Drift = max(out.Drift, math.Abs(x-y))
				sum += math.Abs(x - y)
				common++
			}
			part++
		}
		if part == n && len(a.tokens) == len(b.tokens) {
			out.Equal++
			continue
		}
		gap := math.Inf(1)
		if part < n {
			gap = gapAt(a, part, b.tokens[part])
		}
		if gap <= limit {
			out.Near++
		} else {
			out.Different++
		}
		// JSON has no infinity.
		out.WorstGap = max(out.WorstGap, min(gap, 1e3))
	}
	if common > 0 {
		out.MeanDrift = sum / float64(common)
	}
	return out
}

// logprob returns the log-probability that a gave a token at a position, if it is among the candidates.
func logprob(a answer, position, token int) (float64, bool) {
	if position >= len(a.probs) {
		return 0, false
	}
	i := slices.IndexFunc(a.probs[position], func(c candidate) bool { return c.ID == token })
	if i < 0 {
		return 0, false
	}
	return a.probs[position][i].Logprob, true
}

// gapAt returns the log-probability of a's token at a position minus that of another token, in nats; infinite if one of
// them is not among a's candidates.
func gapAt(a answer, position, token int) float64 {
	own, ok := logprob(a, position, a.tokens[position])
	if !ok {
		return math.Inf(1)
	}
	if its, ok := logprob(a, position, token); ok {
		return own - its
	}
	return math.Inf(1) // less probable than every candidate, by an unknown gap
}

// latency are the times of a group of streams.
type latency struct {
	TTFT   float64 // median of the times to the first token, ms
	ITL95  float64 // 95th percentile of the times between two tokens, ms
	Rate   float64 // tokens a second of all streams, from the first request to the last token
	Tokens int
}

func latencyOf(all []answer) (l latency) {
	var first, gaps []float64
	var end float64
	for _, a := range all {
		l.Tokens += len(a.times)
		for i, t := range a.times {
			if i == 0 {
				first = append(first, ms(t))
			} else {
				gaps = append(gaps, ms(t-a.times[i-1]))
			}
			end = max(end, t.Seconds())
		}
	}
	l.TTFT, l.ITL95 = quantile(first, 0.5), quantile(gaps, 0.95)
	if end > 0 {
		l.Rate = float64(l.Tokens) / end
	}
	return l
}

// quantile returns the smallest of x that is not below a share q of them; 0 for none. It sorts x.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return x[max(0, int(math.Ceil(q*float64(len(x))))-1)]
}
