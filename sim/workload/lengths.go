package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Lengths is a distribution of token counts. Params per type:
//
//	constant         value
//	gaussian         mean, std_dev, min, max
//	exponential      mean
//	pareto_lognormal alpha, xm, mu, sigma, mix_weight (the share of the Pareto part)
//	empirical        token count: weight, …
type Lengths struct {
	Type   string             `yaml:"type"`
	Params map[string]float64 `yaml:"params"`
}

var lengthParams = map[string][]string{
	"constant":         {"value"},
	"gaussian":         {"mean", "std_dev", "min", "max"},
	"exponential":      {"mean"},
	"pareto_lognormal": {"alpha", "xm", "mu", "sigma", "mix_weight"},
}

const lengthTypes = "constant, gaussian, exponential, pareto_lognormal, empirical"

func (l *Lengths) check() error {
	if l.Type == "empirical" {
		if len(l.Params) == 0 {
			return errors.New("empirical: params must map token counts to weights")
		}
		total := 0.0
		for k, v := range l.Params {
			n, err := strconv.Atoi(k)
			if err != nil || n < 1 || n > MaxTokens {
				return fmt.Errorf("empirical: %q is not a token count between 1 and %d", k, MaxTokens)
			}
			if !(v >= 0) || math.IsInf(v, 0) {
				return fmt.Errorf("empirical: weight of %s is %v: must be finite and ≥ 0", k, v)
			}
			total += v
		}
		if total == 0 {
			return errors.New("empirical: all weights are 0")
		}
		return nil
	}
	need, ok := lengthParams[l.Type]
	if !ok {
		return fmt.Errorf("type %q is unknown; valid are %s", l.Type, lengthTypes)
	}
	for _, k := range need {
		if _, ok := l.Params[k]; !ok {
			return fmt.Errorf("%s: parameter %q is missing", l.Type, k)
		}
	}
	for k, v := range l.Params {
		if !slices.Contains(need, k) {
			return fmt.Errorf("%s: parameter %q is unknown; it takes %s", l.Type, k, strings.Join(need, ", "))
		}
		if math.IsNaN(v) || math.Abs(v) > MaxTokens {
			return fmt.Errorf("%s: %s = %v: must be at most %d", l.Type, k, v, MaxTokens)
		}
	}
	p := l.Params
	switch {
	case l.Type == "gaussian" && p["min"] > p["max"]:
		return fmt.Errorf("gaussian: min %v is above max %v", p["min"], p["max"])
	case l.Type == "gaussian" && p["std_dev"] < 0:
		return fmt.Errorf("gaussian: std_dev = %v: must be ≥ 0", p["std_dev"])
	case l.Type == "pareto_lognormal" &&
		!(p["alpha"] > 0 && p["xm"] > 0 && p["sigma"] >= 0 && p["mix_weight"] >= 0 && p["mix_weight"] <= 1):
		return errors.New("pareto_lognormal: alpha and xm must be > 0, sigma ≥ 0, mix_weight in [0, 1]")
	}
	return nil
}

// sampler returns a generator of lengths, each between 1 and MaxTokens.
func (l *Lengths) sampler() func(*rand.Rand) int {
	p := l.Params
	round := func(x float64) int { return int(math.Max(1, math.Min(math.Round(x), MaxTokens))) }
	switch l.Type {
	case "constant":
		v := max(1, int(p["value"]))
		return func(*rand.Rand) int { return v }
	case "gaussian":
		mean, sd, lo, hi := p["mean"], p["std_dev"], math.Trunc(p["min"]), math.Trunc(p["max"])
		if lo == hi {
			return func(*rand.Rand) int { return max(1, int(lo)) }
		}
		return func(r *rand.Rand) int {
			return round(math.Min(hi, math.Max(lo, float64(r.NormFloat64()*sd)+mean)))
		}
	case "exponential":
		mean := p["mean"]
		return func(r *rand.Rand) int { return round(r.ExpFloat64() * mean) }
	case "pareto_lognormal":
		alpha, xm, mu, sigma, weight := p["alpha"], p["xm"], p["mu"], p["sigma"], p["mix_weight"]
		return func(r *rand.Rand) int {
			if r.Float64() < weight {
				return round(xm / math.Pow(positiveUniform(r), 1/alpha))
			}
			return round(math.Exp(mu + float64(sigma*r.NormFloat64())))
		}
	}
	return l.empirical()
}

// empirical draws by inverting the cumulative weights, in the order of the counts.
func (l *Lengths) empirical() func(*rand.Rand) int {
	var counts []int
	total := 0.0
	for k := range l.Params {
		n, _ := strconv.Atoi(k)
		counts = append(counts, n)
	}
	slices.Sort(counts)
	weight := func(n int) float64 { return l.Params[strconv.Itoa(n)] }
	for _, n := range counts {
		total += weight(n)
	}
	var values []int
	var cdf []float64
	sum := 0.0
	for _, n := range counts {
		if w := weight(n); w > 0 {
			sum += w / total
			values, cdf = append(values, n), append(cdf, sum)
		}
	}
	if len(values) == 1 {
		return func(*rand.Rand) int { return values[0] }
	}
	cdf[len(cdf)-1] = 1
	return func(r *rand.Rand) int { return values[min(sort.SearchFloat64s(cdf, r.Float64()), len(values)-1)] }
}
