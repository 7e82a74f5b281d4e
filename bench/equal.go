package bench

import (
	"fmt"
	"io"
)

// EqualConfig configures the comparison of two daemons when equal clients send requests at the same moment.
type EqualConfig struct {
	Clients, Prompt, Tokens int // each prompt and answer, in tokens
	Rounds                  int // pairs; the order alternates
	Names, Sockets          [2]string
	Client                  func(ClientJob) ([][]int64, error) // see OverheadConfig
	Log                     io.Writer
}

// Equal is the result of one daemon under equal clients: medians over the rounds.
type Equal struct {
	Name         string  `json:"name"`
	DoneMs       float64 `json:"done_ms"`             // until the last token of all
	LastFirstMs  float64 `json:"last_first_token_ms"` // until the last first token
	ITLp95Ms     float64 `json:"itl_p95_ms"`
	DoneRatio    float64 `json:"done_ratio,omitempty"` // over the first daemon's, median of the rounds' ratios
	LastFirstRat float64 `json:"last_first_token_ratio,omitempty"`
}

// RunEqual alternates bursts of equal requests between the two daemons, which must be idle otherwise.
func RunEqual(cfg EqualConfig) ([2]Equal, error) {
	var out [2]Equal
	var rounds [2][]Equal
	for round := range cfg.Rounds + 1 {
		var got [2]Equal
		for k := range 2 {
			i := (k + round) % 2
			times, err := cfg.Client(ClientJob{Socket: cfg.Sockets[i], Streams: cfg.Clients, Connections: cfg.Clients,
				Tokens: cfg.Tokens, Prompt: cfg.Prompt, Round: round})
			if err != nil {
				return out, fmt.Errorf("%s: %w", cfg.Names[i], err)
			}
			got[i] = equalOf(times)
		}
		if round == 0 {
			continue // warm-up
		}
		got[1].DoneRatio, got[1].LastFirstRat = got[1].DoneMs/got[0].DoneMs, got[1].LastFirstMs/got[0].LastFirstMs
		if cfg.Log != nil {
			fmt.Fprintf(cfg.Log, "round %d: done after %.0f and %.0f ms (%.3f), last first token %.0f and %.0f ms "+
				"(%.2f), ITL p95 %.0f and %.0f ms\n", round, got[0].DoneMs, got[1].DoneMs, got[1].DoneRatio,
				got[0].LastFirstMs, got[1].LastFirstMs, got[1].LastFirstRat, got[0].ITLp95Ms, got[1].ITLp95Ms)
		}
		for i := range got {
			rounds[i] = append(rounds[i], got[i])
		}
	}
	for i, rs := range rounds {
		of := func(f func(*Equal) float64) float64 {
			var xs []float64
			for k := range rs {
				xs = append(xs, f(&rs[k]))
			}
			return median(xs)
		}
		out[i] = Equal{Name: cfg.Names[i],
			DoneMs:       of(func(e *Equal) float64 { return e.DoneMs }),
			LastFirstMs:  of(func(e *Equal) float64 { return e.LastFirstMs }),
			ITLp95Ms:     of(func(e *Equal) float64 { return e.ITLp95Ms }),
			DoneRatio:    of(func(e *Equal) float64 { return e.DoneRatio }),
			LastFirstRat: of(func(e *Equal) float64 { return e.LastFirstRat }),
		}
	}
	return out, nil
}

// equalOf returns the result of a burst whose tokens arrived at these times, in ns since its start.
func equalOf(times [][]int64) (e Equal) {
	var gaps []float64
	for _, ts := range times {
		for i, at := range ts {
			if i == 0 {
				e.LastFirstMs = max(e.LastFirstMs, float64(at)/1e6)
			} else {
				gaps = append(gaps, float64(at-ts[i-1])/1e6)
			}
			e.DoneMs = max(e.DoneMs, float64(at)/1e6)
		}
	}
	e.ITLp95Ms = quantile(gaps, 0.95)
	return e
}
