package soak

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Rule is the criterion by which a series passes or fails.
type Rule uint8

const (
	Shown   Rule = iota // it is only shown
	Bounded             // its trend stays below GrowthLimit percent an hour
	Flat                // it does not rise: see Trend.Rises
)

// The limits.
const (
	// GrowthLimit is the trend of a Bounded series at which it fails, in percent of its median per hour.
	GrowthLimit = 1.0
	// FlatLimit is the rise of a Flat series over the whole time after the warm-up, in percent of its median,
	// from which on it counts; FlatChance is the chance of such an order of values without a trend below which it
	// counts.
	FlatLimit  = 25.0
	FlatChance = 0.01
	// leastPoints and leastHours are the minimum for a trend: with less, its value per hour is noise.
	leastPoints = 20
	leastHours  = 0.5
	// mostPoints bounds the pairs of values that a trend compares.
	mostPoints = 1500
)

// Series is a quantity over time. Values that are not known are NaN.
type Series struct {
	Name   string
	Unit   string
	Rule   Rule
	Hours  []float64 // since the start
	Values []float64
}

// Trend is the linear trend of a series after the warm-up.
type Trend struct {
	Points  int
	Hours   float64 // from the first value to the last
	Median  float64
	PerHour float64 // percent of Median an hour, by Theil and Sen: the median slope of all pairs of values
	Chance  float64 // p-value of the trend, by Mann and Kendall (one-sided: upwards)
}

// Known reports whether there are enough values over enough time.
func (t *Trend) Known() bool { return t.Points >= leastPoints && t.Hours >= leastHours && t.Median > 0 }

// Rises reports whether a Flat series has risen: by FlatLimit percent or more over the time, and not by accident.
func (t *Trend) Rises() bool {
	return t.Known() && t.PerHour*t.Hours >= FlatLimit && t.Chance < FlatChance
}

// Trend computes the trend from warmUp hours on.
func (s *Series) Trend(warmUp float64) Trend {
	var xs, ys []float64
	for i, h := range s.Hours {
		if h >= warmUp && !math.IsNaN(s.Values[i]) {
			xs, ys = append(xs, h), append(ys, s.Values[i])
		}
	}
	if len(xs) < 2 {
		return Trend{Points: len(xs), PerHour: math.NaN(), Chance: math.NaN(), Median: middle(ys)}
	}
	t := Trend{Points: len(xs), Hours: xs[len(xs)-1] - xs[0], Median: middle(ys)}
	xs, ys = thin(xs, ys)
	var slopes []float64
	rises := 0 // Kendall's S
	for i := range xs {
		for j := i + 1; j < len(xs); j++ {
			slopes = append(slopes, (ys[j]-ys[i])/(xs[j]-xs[i]))
			switch {
			case ys[j] > ys[i]:
				rises++
			case ys[j] < ys[i]:
				rises--
			}
		}
	}
	t.PerHour = 100 * middle(slopes) / t.Median
	t.Chance = kendall(rises, ys)
	return t
}

// thin replaces runs of neighbours by their medians, so that mostPoints values are left.
func thin(xs, ys []float64) (x, y []float64) {
	run := (len(xs) + mostPoints - 1) / mostPoints
	if run == 1 {
		return xs, ys
	}
	for i := 0; i < len(xs); i += run {
		end := min(i+run, len(xs))
		x, y = append(x, middle(xs[i:end])), append(y, middle(ys[i:end]))
	}
	return x, y
}

// kendall returns the chance of a sum of signs of at least s among the pairs of ys in random order: Kendall's normal
// approximation with continuity correction and with the variance for ties (M. G. Kendall, Rank Correlation Methods).
func kendall(s int, ys []float64) float64 {
	n := float64(len(ys))
	variance := n * (n - 1) * (2*n + 5)
	sorted := slices.Sorted(slices.Values(ys))
	for i := 0; i < len(sorted); {
		j := i
		for j < len(sorted) && sorted[j] == sorted[i] {
			j++
		}
		t := float64(j - i)
		variance -= t * (t - 1) * (2*t + 5)
		i = j
	}
	if variance <= 0 || s <= 0 {
		return 1
	}
	z := float64(s-1) / math.Sqrt(variance/18)
	return 1 - distuv.UnitNormal.CDF(z)
}

// middle returns the median, NaN of no values.
func middle(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	xs = slices.Sorted(slices.Values(xs))
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// judge returns the reason why a series fails; "" = it passes, or too little is known.
func (s *Series) judge(t *Trend) string {
	switch {
	case !t.Known():
	case s.Rule == Bounded && t.PerHour >= GrowthLimit:
		return fmt.Sprintf("%s grows by %.2f %% an hour; the limit is %g %%", s.Name, t.PerHour, GrowthLimit)
	case s.Rule == Flat && t.Rises():
		return fmt.Sprintf("%s is not flat: it rises by %.1f %% over %.1f hours (limit %g %%), by accident with a "+
			"chance of %.4f (limit %g)", s.Name, t.PerHour*t.Hours, t.Hours, FlatLimit, t.Chance, FlatChance)
	}
	return ""
}
