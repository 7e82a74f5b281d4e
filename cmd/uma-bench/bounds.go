package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	results "github.com/uma-serve/uma-serve/bench/report"
)

// bound is a value of --at-most.
type bound struct {
	key string
	max float64
}

// bounds reads KEY=VALUE of metrics for which less is better.
func bounds(texts []string) (out []bound, err error) {
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(results.Metrics, func(m results.Metric) bool { return m.Key == key && !m.Higher })
		if i < 0 {
			return nil, fmt.Errorf("--at-most has %q; it must be the name of a number in report.json for which less "+
				"is better, such as ttft_p50_ms", key)
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(n) || n < 0 {
			return nil, fmt.Errorf("--at-most has %q; it must be %s=NUMBER", text, key)
		}
		out = append(out, bound{key, n})
	}
	return out, nil
}

// exceeded returns an error that names each bound that r is above, and each that was not measured; requests that failed
// count too, for those that are left may be the fast ones.
func exceeded(r *results.Report, list []bound) error {
	var all []error
	for _, b := range list {
		switch v := r.Value(b.key); {
		case math.IsNaN(v):
			all = append(all, fmt.Errorf("%s of %s was not measured; --at-most bounds it", b.key, r.ConfigName))
		case v > b.max:
			all = append(all, fmt.Errorf("%s of %s is %.2f; --at-most allows %g", b.key, r.ConfigName, v, b.max))
		}
	}
	if len(list) > 0 && r.NErrors > 0 {
		all = append(all, fmt.Errorf("%d requests of %s failed; --at-most holds with none", r.NErrors, r.ConfigName))
	}
	return errors.Join(all...)
}
