package latency

import (
	"fmt"
	"slices"
)

// Spread is the distribution of measured over predicted step times, by predicted length: a disturbance of a millisecond
// matters to a step of 8 ms and hardly to one of 200.
type Spread []SpreadOf

// SpreadOf is the Spread of steps that are expected to take FromUs or more, up to the next one's.
type SpreadOf struct {
	FromUs float64 `json:"from_us"` // microseconds; 0 for the first
	// Ratios are quantiles of took / predicted at (i + ½)/n.
	Ratios []float64 `json:"ratios"`
}

const (
	spreadParts     = 4   // lengths that are told apart
	spreadLeast     = 150 // steps that are enough for one
	spreadQuantiles = 40
)

// At returns a step's duration, microseconds, when us are expected and u in [0, 1) says how it turns out.
func (s Spread) At(us, u float64) float64 {
	k := len(s) - 1
	for k > 0 && us < s[k].FromUs {
		k--
	}
	q := s[k].Ratios
	at := min(max(u*float64(len(q))-0.5, 0), float64(len(q)-1))
	i := min(int(at), len(q)-2)
	return us * (q[i] + float64((at-float64(i))*(q[i+1]-q[i])))
}

// Check says what is wrong with s, if anything.
func (s Spread) Check() error {
	for i, p := range s {
		if err := CheckCoefficients("cost model: spread", append([]float64{p.FromUs}, p.Ratios...), 3); err != nil {
			return err
		}
		if i == 0 && p.FromUs != 0 || i > 0 && p.FromUs <= s[i-1].FromUs {
			return fmt.Errorf("cost model: spread[%d].from_us is %v: they must ascend from 0", i, p.FromUs)
		}
		if !slices.IsSorted(p.Ratios) || p.Ratios[0] <= 0 {
			return fmt.Errorf("cost model: spread[%d].ratios must be > 0 and ascend", i)
		}
	}
	return nil
}

// fitSpread takes the quantiles from what was predicted and what was measured, microseconds.
func fitSpread(predicted, took []float64) Spread {
	order := make([]int, len(took))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case predicted[a] < predicted[b]:
			return -1
		case predicted[a] > predicted[b]:
			return 1
		}
		return a - b
	})
	parts := min(max(len(order)/spreadLeast, 1), spreadParts)
	var s Spread
	for k, lo := 0, 0; k < parts; k++ {
		hi := len(order) * (k + 1) / parts
		for hi < len(order) && predicted[order[hi]] == predicted[order[hi-1]] {
			hi++ // steps that are alike stay together
		}
		if hi <= lo || len(order)-hi < spreadLeast {
			hi = len(order)
		}
		p := SpreadOf{FromUs: predicted[order[lo]]}
		if lo == 0 {
			p.FromUs = 0
		}
		ratios := make([]float64, 0, hi-lo)
		for _, i := range order[lo:hi] {
			ratios = append(ratios, took[i]/max(predicted[i], 1))
		}
		slices.Sort(ratios)
		for i := range spreadQuantiles {
			p.Ratios = append(p.Ratios, ratios[(2*i+1)*len(ratios)/(2*spreadQuantiles)])
		}
		s = append(s, p)
		if lo = hi; lo == len(order) {
			break
		}
	}
	return s
}
