package explore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
)

// Target has the latency targets of a plan, in milliseconds; 0 = none.
type Target struct {
	ITLP95Ms  float64
	TTFTP95Ms float64
}

// Grid are the configurations that Plan tries: every combination.
type Grid struct {
	Contexts []int    // tokens of KV cache (n_ctx)
	Slots    []int    // requests at once
	Policies []string // NAME (batch formation uma) or vllm:SCHEDULER
}

// Candidate is one configuration and its results.
type Candidate struct {
	Context int    `json:"n_ctx"`
	Slots   int    `json:"slots"`
	Policy  string `json:"policy"`
	Meets   bool   `json:"meets_target"`
	Summary
}

// Plan simulates the grid and returns every candidate, the best first: those that meet the target with a stable
// server, by the least memory, then the shortest time to first token; then the others by how far they miss it.
func Plan(base blis.Config, grid Grid, t Target, run func(blis.Config) (*sim.Report, error), done func()) ([]Candidate,
	error) {
	var jobs []Job
	var out []Candidate
	for _, ctx := range grid.Contexts {
		for _, slots := range grid.Slots {
			for _, policy := range grid.Policies {
				cfg := base
				if err := SetPolicy(&cfg, policy); err != nil {
					return nil, err
				}
				cfg.KVBlocks, cfg.MaxRunning = max(1, ctx/cfg.BlockTokens), slots
				out = append(out, Candidate{Context: ctx, Slots: slots, Policy: policy})
				jobs = append(jobs, Job{fmt.Sprintf("n_ctx %d, %d slots, %s", ctx, slots, policy),
					func() (*sim.Report, error) { return run(cfg) }})
			}
		}
	}
	sums, err := Sweep(jobs, done)
	if err != nil {
		return nil, err
	}
	for i := range out {
		s := sums[i]
		out[i].Summary = s
		out[i].Meets = s.Verdict == Stable && s.Completed > 0 &&
			(t.ITLP95Ms == 0 || s.ITLP95 <= t.ITLP95Ms) && (t.TTFTP95Ms == 0 || s.TTFTP95 <= t.TTFTP95Ms)
	}
	miss := func(c *Candidate) float64 {
		m := 0.0
		if t.ITLP95Ms > 0 {
			m = max(m, c.ITLP95/t.ITLP95Ms)
		}
		if t.TTFTP95Ms > 0 {
			m = max(m, c.TTFTP95/t.TTFTP95Ms)
		}
		return m
	}
	rank := map[Verdict]int{Stable: 0, Backlogged: 1, Overloaded: 2}
	slices.SortStableFunc(out, func(a, b Candidate) int {
		if a.Meets != b.Meets {
			if a.Meets {
				return -1
			}
			return 1
		}
		if a.Meets {
			return cmp.Or(cmp.Compare(a.Context, b.Context), cmp.Compare(a.TTFTP95, b.TTFTP95),
				cmp.Compare(a.ITLP95, b.ITLP95), cmp.Compare(a.Slots, b.Slots))
		}
		return cmp.Or(cmp.Compare(rank[a.Verdict], rank[b.Verdict]), cmp.Compare(miss(&a), miss(&b)),
			cmp.Compare(a.Context, b.Context))
	})
	return out, nil
}
