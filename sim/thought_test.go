package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestThoughtsEndEarly: phase control ends simulated thoughts by budget and by signals. The answers behind them keep
// their length, so a request is answered sooner by the tokens that were saved; and probe forks cost rows.
func TestThoughtsEndEarly(t *testing.T) {
	const think, answer, requests = 4000, 50, 40
	var rows []workload.Request
	for i := range int64(requests) {
		rows = append(rows, workload.Request{Index: i, Arrival: i * 200_000, Input: 100, Think: think,
			Output: think + answer, Budget: think + answer})
	}
	run := func(budget int, exit string) (*sim.Report, float64) {
		cfg := served("meridian")
		cfg.KVBlocks, cfg.MaxRunning, cfg.ThinkBudget, cfg.EarlyExit = 16384, 8, budget, exit
		rep, err := sim.Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, r := range rep.Requests {
			if r.E2EUs == nil {
				t.Fatalf("budget %d, exit %q: %+v", budget, exit, r)
			}
			sum += float64(*r.E2EUs)
		}
		return rep, sum / requests
	}
	_, whole := run(0, "")
	capped, short := run(1000, "")
	if m := capped.Metrics; m.Thoughts[meridian.EndedHardCap] != requests || m.Forks != 0 ||
		m.OutputTokens > requests*(1000+answer) || m.OutputTokens < requests*(1000-33+answer) {
		t.Errorf("budget 1000: ended %v, %d forks, %d tokens", m.Thoughts, m.Forks, m.OutputTokens)
	}
	if short > 0.4*whole {
		t.Errorf("a budget of 1,000 of 4,000 tokens answers after %.0f us, none after %.0f us", short, whole)
	}
	both, early := run(0, "both")
	m := both.Metrics
	for _, how := range []meridian.Ended{meridian.EndedConverged, meridian.EndedStalled, meridian.EndedOverthinking,
		meridian.EndedNatural} {
		if m.Thoughts[how] == 0 {
			t.Errorf("no thought ended as %v: %v", how, m.Thoughts)
		}
	}
	if m.Forks < requests*20 || early > 0.9*whole {
		t.Errorf("signals: %d forks, answered after %.0f us, without them after %.0f us", m.Forks, early, whole)
	}
	for _, r := range both.Requests {
		if r.ITLs+1 < answer || r.ITLs+1 > think+answer {
			t.Errorf("%s has %d tokens", r.ID, r.ITLs+1)
		}
	}
}
