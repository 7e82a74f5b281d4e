package gpu

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed coefficients.csv
var publishedCSV []byte

// Fit is one published set of blackbox coefficients: BLIS, defaults.yaml at commit b563c440 (Apache-2.0). Some are
// clearly degenerate (a step of 42 µs); trust none without looking.
type Fit struct {
	Model, GPU, VLLM string
	TP               int
	Beta, Alpha      []float64 // microseconds
	Blocks           int
}

// Published lists all of them in the order of the table.
var Published = sync.OnceValue(func() []Fit {
	rows, err := csv.NewReader(bytes.NewReader(publishedCSV)).ReadAll()
	if err != nil {
		panic(fmt.Sprintf("latency: the embedded coefficient table: %v", err))
	}
	var out []Fit
	for _, r := range rows[1:] {
		num := func(i int) float64 {
			f, err := strconv.ParseFloat(r[i], 64)
			if err != nil {
				panic(fmt.Sprintf("latency: the embedded coefficient table: %v", err))
			}
			return f
		}
		out = append(out, Fit{Model: r[0], GPU: r[1], TP: int(num(2)), VLLM: r[3],
			Beta: []float64{num(4), num(5), num(6)}, Alpha: []float64{num(7), num(8), num(9)}, Blocks: int(num(10))})
	}
	return out
})

// FindFit returns the fit for a model (any case) on a GPU; vllm "" takes the last listed.
func FindFit(model, gpu string, tp int, vllm string) (Fit, error) {
	var found *Fit
	var have []string
	for _, f := range Published() {
		if !strings.EqualFold(f.Model, model) {
			continue
		}
		have = append(have, fmt.Sprintf("%s TP%d %s", f.GPU, f.TP, f.VLLM))
		if f.GPU == gpu && f.TP == tp && (vllm == "" || f.VLLM == vllm) {
			found = &f
		}
	}
	if found != nil {
		return *found, nil
	}
	if len(have) > 0 {
		return Fit{}, fmt.Errorf("no published coefficients for %s on %s TP%d; there are some on %s", model, gpu, tp,
			strings.Join(have, ", "))
	}
	var models []string
	for _, f := range Published() {
		models = append(models, f.Model)
	}
	slices.Sort(models)
	return Fit{}, fmt.Errorf("no published coefficients for model %q; give alpha_coeffs and beta_coeffs, or one "+
		"of: %s", model, strings.Join(slices.Compact(models), ", "))
}
