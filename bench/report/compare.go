package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Verdict compares the report under test with one baseline in one metric.
type Verdict struct {
	Metric   Metric
	Baseline string
	Delta    float64 // %, NaN = there is nothing to relate to
	Welch    *[2]Num // its 95 % interval, nil without repeats
	Flag     string  // FLAT, WIN, win, LOSS, loss or n/a
	From, To float64 // the values
	Noise    bool    // the interval contains 0: repeats of one server differ as much
}

// String returns the difference with its interval and flag.
func (v Verdict) String() string {
	if v.Flag == "n/a" {
		return "n/a"
	}
	s := fmt.Sprintf("%+.2f", v.Delta)
	if v.Welch != nil {
		s += fmt.Sprintf(" [%+.1f, %+.1f]", float64(v.Welch[0]), float64(v.Welch[1]))
	}
	s += " " + v.Flag
	if v.Noise {
		s += " (within noise)"
	}
	return s
}

func (d *Document) verdict(baseline string, m Metric) Verdict {
	v := Verdict{Metric: m, Baseline: baseline, Delta: math.NaN(), Flag: "n/a", From: d.Reports[baseline].Value(m.Key),
		To: d.Reports[d.UnderTest].Value(m.Key)}
	if delta, ok := d.Delta[baseline][m.Key]; ok {
		v.Delta, v.Welch = float64(delta), d.Welch[baseline][m.Key]
	}
	if math.IsNaN(v.Delta) {
		return v
	}
	v.Noise = v.Welch != nil && v.Welch[0] <= 0 && v.Welch[1] >= 0 && v.Delta != 0
	worse := v.Delta
	if m.Higher {
		worse = -worse
	}
	switch {
	case math.Abs(worse) < 1:
		v.Flag = "FLAT"
	case worse >= 5:
		v.Flag = "LOSS"
	case worse > 0:
		v.Flag = "loss"
	case worse <= -5:
		v.Flag = "WIN"
	default:
		v.Flag = "win"
	}
	return v
}

// Regressions lists the compared metrics in which the report under test is worse than a baseline by more than failOver
// percent. With repeats, the whole interval must be on the wrong side: variation between runs is not a regression. If
// the baseline is 0, any worse value counts (such as an eviction of an answer), as do a metric that is missing now and
// an error where there was none.
func (d *Document) Regressions(failOver float64) (out []string) {
	u := d.Reports[d.UnderTest]
	for _, name := range d.baselines() {
		b := d.Reports[name]
		if u.NErrors > 0 && b.NErrors == 0 {
			out = append(out, fmt.Sprintf("%d requests failed, none of %s", u.NErrors, name))
		}
		for _, m := range Metrics {
			if !m.Compared {
				continue
			}
			v := d.verdict(name, m)
			worse, low := v.Delta, math.Inf(1)
			if v.Welch != nil {
				low = float64(v.Welch[0])
			}
			if m.Higher {
				worse = -worse
				if v.Welch != nil {
					low = -float64(v.Welch[1])
				}
			}
			switch {
			case Num(v.From).known() && !Num(v.To).known():
				out = append(out, fmt.Sprintf("%s is missing; it was %s in %s", m.Title, m.text(v.From), name))
			case v.From == 0 && v.To > 0 && !m.Higher:
				out = append(out, fmt.Sprintf("%s is %s; it was 0 in %s", m.Title, m.text(v.To), name))
			case worse > failOver && low > 0:
				out = append(out, fmt.Sprintf("%s went from %s to %s (%s) against %s", m.Title, m.text(v.From),
					m.text(v.To), v, name))
			}
		}
	}
	return out
}

// fewEvents is the difference between two counts of thoughts or blocks that is ignored, whatever the percentage.
const fewEvents = 2

// Changes lists the numbers in which the report under test differs from a baseline by more than limit percent, for the
// better or the worse: all metrics, the ends of thoughts by reason, and the evicted blocks by tier. Between two replays
// of one workload, each of them comes from a change of the code. The error says that the reports are not of the same
// replay.
func (d *Document) Changes(limit float64) (out []string, err error) {
	u := d.Reports[d.UnderTest]
	for _, name := range d.baselines() {
		b := d.Reports[name]
		if b.Provenance != Synthetic || b.Workload != u.Workload || b.Seed != u.Seed || b.Side != u.Side ||
			b.NRepeats != u.NRepeats || b.ArrivalRate != u.ArrivalRate {
			return nil, fmt.Errorf("%s and %s are not replays of the same workload, seed, rate, repeats and side", name,
				d.UnderTest)
		}
		differ := func(what string, from, to float64, text func(float64) string, least float64) {
			switch {
			case Num(from).known() != Num(to).known():
			case !Num(from).known() || math.Abs(to-from) <= max(least, math.Abs(from)*limit/100):
				return
			}
			s := fmt.Sprintf("%s went from %s to %s", what, text(from), text(to))
			if from != 0 && Num(from).known() && Num(to).known() {
				s += fmt.Sprintf(" (%+.1f %%)", 100*(to-from)/math.Abs(from))
			}
			out = append(out, s)
		}
		for _, m := range Metrics {
			differ(m.Title, b.Value(m.Key), u.Value(m.Key), m.text, 0)
		}
		whole := Metric{}.text
		differ("answered requests", float64(b.NRequests), float64(u.NRequests), whole, 0)
		differ("failed requests", float64(b.NErrors), float64(u.NErrors), whole, 0)
		for _, c := range []struct {
			what     string
			from, to map[string]int
		}{
			{"thoughts ended as %s", b.ForcedByReason, u.ForcedByReason},
			{"evicted blocks of %s", b.EvictedByTier, u.EvictedByTier},
		} {
			all := maps.Clone(c.from)
			if all == nil {
				all = map[string]int{}
			}
			maps.Copy(all, c.to)
			for _, key := range slices.Sorted(maps.Keys(all)) {
				differ(fmt.Sprintf(c.what, key), float64(c.from[key]), float64(c.to[key]), whole, fewEvents)
			}
		}
	}
	return out, nil
}
