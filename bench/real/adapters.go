package real

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Adapters compares requests that have different adapters at the same time. Each server has two adapters, 0 and 1.
type Adapters struct {
	Compare  // its Concurrency are the streams; its Adapters are set here
	Scale    float64
	Rounds   int // of each Load; 0: only answers are compared
	Measured int // tokens of an answer of a Load
}

// Load is the speed of streams that all begin at once, in tokens a second: the median of the rounds.
type Load struct {
	Name   string    `json:"name"`
	Ours   float64   `json:"ours"`
	Theirs float64   `json:"theirs"`
	All    []float64 `json:"all"` // ours and theirs, by round
}

// adapterLoads say which adapter each stream has, -1 = none.
var adapterLoads = []struct {
	name string
	of   func(i int) int
}{
	{"no adapter", func(int) int { return -1 }},
	{"one adapter", func(int) int { return 0 }},
	{"two and none in turn", func(i int) int { return i%3 - 1 }},
}

// with returns the adapters of a request: both are named, because llama-server gives a request without any those that
// it was started with, in full.
func (a *Adapters) with(id int) []Adapter {
	of := []Adapter{{ID: 0}, {ID: 1}}
	if id >= 0 {
		of[id].Scale = a.Scale
	}
	return of
}

// Check compares the answers to as many of texts as there are streams, and measures the loads with the others.
func (a *Adapters) Check(ctx context.Context, name string, texts []string) Check {
	check := Check{Name: name, OK: true}
	start := time.Now()
	n := a.Concurrency
	if need := n * (1 + a.Rounds*len(adapterLoads)); len(texts) < need {
		check.Fail("%d texts, and %d are needed", len(texts), need)
		return check
	}
	loads, err := a.measure(ctx, texts[n:])
	if err != nil {
		check.Fail("%v", err)
		return check
	}
	mixed := adapterLoads[len(adapterLoads)-1]
	a.Adapters = nil
	for i := range n {
		a.Adapters = append(a.Adapters, a.with(mixed.of(i)))
	}
	check = a.Compare.Check(ctx, texts[:n], true)
	check.Name, check.Seconds = name, time.Since(start).Seconds()
	for _, l := range loads {
		check.Summary += fmt.Sprintf("; %s: %.0f tokens/s, llama-server %.0f", l.Name, l.Ours, l.Theirs)
	}
	check.Details = map[string]any{"answers": check.Details, "loads": loads}
	return check
}

func (a *Adapters) measure(ctx context.Context, texts []string) ([]Load, error) {
	var loads []Load
	for _, l := range adapterLoads {
		load := Load{Name: l.name}
		var of [2][]float64
		for range a.Rounds {
			for k, s := range []*Server{a.Ours, a.Theirs} {
				rate, err := a.rate(ctx, s, texts[:a.Concurrency], l.of)
				if err != nil {
					return nil, err
				}
				of[k], load.All = append(of[k], rate), append(load.All, math.Round(rate*10)/10)
			}
			texts = texts[a.Concurrency:]
		}
		if a.Rounds > 0 {
			load.Ours, load.Theirs = median(of[0]), median(of[1])
			loads = append(loads, load)
		}
	}
	return loads, nil
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// rate returns the tokens a second of a stream for each text, all begun at once.
func (a *Adapters) rate(ctx context.Context, s *Server, texts []string, adapter func(int) int) (float64, error) {
	total := make([]int, len(texts))
	start := time.Now()
	err := each(ctx, len(texts), len(texts), func(ctx context.Context, i int) error {
		var c Completion
		err := s.post(ctx, "/completion", map[string]any{"prompt": texts[i], "n_predict": a.Measured, "temperature": 0,
			"ignore_eos": true, "return_tokens": true, "lora": a.with(adapter(i))}, &c)
		total[i] = len(c.Tokens)
		return err
	})
	sum := 0
	for _, n := range total {
		sum += n
	}
	return float64(sum) / time.Since(start).Seconds(), err
}
