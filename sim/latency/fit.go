package latency

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Sample is one measured step.
type Sample struct {
	PrefillTokens, DecodeTokens int
	Attended, Read              float64 // as in Batch
	Rows                        int     // of logits
	Runs, Resident              int     // as in Batch
	Us                          float64 // how long it took, microseconds
	BetweenUs                   float64 // from its end to the next step's beginning; 0 = there was none at once
}

// costTerms is the number of coefficients of sched.Cost.
const costTerms = 5

// FitCosts finds the cost model that the samples follow, with the least squares of relative errors and no negative
// coefficient, and how far off it is: the median of the relative errors. Steps that took more than three times what a
// first fit says (the machine did something else) are left out.
func FitCosts(samples []Sample) (*Fitted, float64, error) {
	var rows []Sample
	for _, s := range samples {
		if s.Us > 0 && s.PrefillTokens+s.DecodeTokens > 0 {
			rows = append(rows, s)
		}
	}
	const least = 20
	if len(rows) < least {
		return nil, 0, fmt.Errorf("%d measured steps: at least %d are needed", len(rows), least)
	}
	c := nonNegative(rows, costTerms)
	rows = slices.DeleteFunc(rows, func(s Sample) bool { return s.Us > 3*predict(c, s) })
	if len(rows) < least {
		return nil, 0, fmt.Errorf("the measured steps follow no cost model: %d of %d are near it", len(rows),
			len(samples))
	}
	c = nonNegative(rows, costTerms)
	// Where no data bends the curve it follows a line, and reading must not take from that what a token costs.
	curve := fitCurve(rows, nonNegative(rows, costTerms-1))
	f := &Fitted{Us: c[:], Between: FitBetween(samples)}
	median := f.median(rows)
	f.Curve = curve
	if m := f.median(rows); curve == nil || m >= median {
		f.Curve = nil // the machine is a line
	} else {
		median = m
	}
	predicted, took := make([]float64, len(rows)), make([]float64, len(rows))
	squares := 0.0
	for i := range rows {
		predicted[i], took[i] = f.Predict(&rows[i]), rows[i].Us
		r := min(took[i]/max(predicted[i], 1)-1, 1)
		squares += r * r
	}
	f.Noise, f.Spread = squares/float64(len(rows)), fitSpread(predicted, took)
	return f, median, nil
}

// AsFastAs scales f to the machine's speed in these steps, by the median of measured over predicted, and returns the
// factor: the same machine is some percent slower in one minute than in the next, whatever it computes. Without steps
// it does nothing.
func (f *Fitted) AsFastAs(samples []Sample) float64 {
	var ratios []float64
	for i := range samples {
		if s := &samples[i]; s.Us > 0 && s.PrefillTokens+s.DecodeTokens > 0 {
			ratios = append(ratios, s.Us/max(f.Predict(s), 1))
		}
	}
	if len(ratios) == 0 {
		return 1
	}
	slices.Sort(ratios)
	k := ratios[len(ratios)/2]
	for i := range f.Us {
		f.Us[i] *= k
	}
	if c := f.Curve; c != nil {
		for i := range c.Us {
			c.Us[i] *= k
		}
		for _, p := range c.factors() {
			*p *= k
		}
	}
	for i := range f.Spread {
		f.Spread[i].FromUs *= k
	}
	return k
}

// median returns the median of the relative errors.
func (f *Fitted) median(rows []Sample) float64 {
	errs := make([]float64, len(rows))
	for i := range rows {
		errs[i] = math.Abs(f.Predict(&rows[i])/rows[i].Us - 1)
	}
	slices.Sort(errs)
	return errs[len(errs)/2]
}

// Predict returns the predicted duration of a step like s in microseconds, without the spread that a simulation adds.
func (f *Fitted) Predict(s *Sample) float64 {
	if f.Curve != nil {
		return f.Curve.us(s.work())
	}
	return predict([costTerms]float64(f.Us), *s)
}

// FitBetween finds what lies between two steps, as Fitted.Between: a line through the medians by the number of rows.
// nil when no sample tells.
func FitBetween(samples []Sample) []float64 {
	by := map[int][]float64{}
	for _, s := range samples {
		if s.BetweenUs > 0 {
			by[s.Rows] = append(by[s.Rows], s.BetweenUs)
		}
	}
	if len(by) == 0 {
		return nil
	}
	var n, sx, sy, sxx, sxy float64
	for _, rows := range slices.Sorted(maps.Keys(by)) {
		us := by[rows]
		slices.Sort(us)
		w, x, y := float64(len(us)), float64(rows), us[len(us)/2]
		n, sx, sy, sxx, sxy = n+w, sx+w*x, sy+w*y, sxx+w*x*x, sxy+w*x*y
	}
	slope := 0.0
	if d := n*sxx - sx*sx; d > 1e-9*n*sxx {
		slope = max(0, (n*sxy-sx*sy)/d)
	}
	if fixed := (sy - slope*sx) / n; fixed >= 0 {
		return []float64{fixed, slope}
	}
	return []float64{0, sxy / sxx}
}

func (s *Sample) work() work {
	return work{s.PrefillTokens + s.DecodeTokens, s.Rows, s.Resident, s.Runs, s.Attended, s.Read}
}

func (s *Sample) terms() [costTerms]float64 {
	return [costTerms]float64{1, float64(s.PrefillTokens), float64(s.DecodeTokens), s.Attended, s.Read}
}

func predict(c [costTerms]float64, s Sample) float64 {
	sum := 0.0
	for i, x := range s.terms() {
		sum += c[i] * x
	}
	return sum
}

// nonNegative tries every subset of the first n terms, solves its normal equations, and keeps the best solution without
// a negative coefficient.
func nonNegative(rows []Sample, n int) (best [costTerms]float64) {
	var ata [costTerms][costTerms]float64
	var atb [costTerms]float64
	var bb float64
	for _, s := range rows {
		t := s.terms()
		for i := range t {
			t[i] /= s.Us
			atb[i] += t[i]
		}
		bb++
		for i := range t {
			for j := range t {
				ata[i][j] += t[i] * t[j]
			}
		}
	}
	least := math.Inf(1)
	for set := 1; set < 1<<n; set++ {
		c, ok := solve(ata, atb, set)
		if !ok || slices.Min(c[:]) < 0 {
			continue
		}
		loss := bb
		for i := range c {
			loss -= 2 * c[i] * atb[i]
			for j := range c {
				loss += c[i] * ata[i][j] * c[j]
			}
		}
		if loss < least*(1-1e-9) {
			least, best = loss, c
		}
	}
	return best
}

// solve solves the equations of the terms in set by elimination; false when they do not determine the solution.
func solve(a [costTerms][costTerms]float64, b [costTerms]float64, set int) (x [costTerms]float64, ok bool) {
	var at []int
	for i := range costTerms {
		if set>>i&1 == 1 {
			at = append(at, i)
		}
	}
	for n, k := range at {
		pivot := n
		for m := n; m < len(at); m++ {
			if math.Abs(a[at[m]][k])/scale(a[at[m]]) > math.Abs(a[at[pivot]][k])/scale(a[at[pivot]]) {
				pivot = m
			}
		}
		p := at[pivot]
		a[k], a[p] = a[p], a[k]
		b[k], b[p] = b[p], b[k]
		if math.Abs(a[k][k]) <= 1e-12*scale(a[k]) {
			return x, false
		}
		for _, i := range at[n+1:] {
			f := a[i][k] / a[k][k]
			for j := range costTerms {
				a[i][j] -= f * a[k][j]
			}
			b[i] -= f * b[k]
		}
	}
	for n := len(at) - 1; n >= 0; n-- {
		k := at[n]
		sum := b[k]
		for _, j := range at[n+1:] {
			sum -= a[k][j] * x[j]
		}
		x[k] = sum / a[k][k]
	}
	return x, true
}

func scale(row [costTerms]float64) float64 {
	m := 1e-300
	for _, v := range row {
		m = max(m, math.Abs(v))
	}
	return m
}
