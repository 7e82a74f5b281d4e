package blis_test

import (
	"fmt"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestSessions (INV-10, INV-11) and that a session's later rounds find its earlier ones in the cache.
func TestSessions(t *testing.T) {
	spec, err := workload.ParseSpec([]byte(`
version: "2"
seed: 3
aggregate_rate: 20
num_requests: 300
clients:
  - id: chat
    rate_fraction: 1
    timeout: 2000000
    arrival: {process: poisson}
    prefix_group: system
    prefix_length: 64
    input_distribution: {type: gaussian, params: {mean: 60, std_dev: 20, min: 5, max: 200}}
    output_distribution: {type: exponential, params: {mean: 30}}
    reasoning:
      reason_ratio_distribution: {type: constant, params: {value: 40}}
      multi_turn: {max_rounds: 4, think_time_us: 50000, context_growth: accumulate}
`))
	if err != nil {
		t.Fatal(err)
	}
	cfg := linear()
	g := spec.New()
	rep, err := blis.Run(cfg, g)
	if err != nil {
		t.Fatal(err)
	}
	ends := g.Ends
	if ends.Started == 0 || ends.Started != ends.Completed+ends.Cancelled+ends.Horizon+ends.Exhausted ||
		ends.Completed == 0 || ends.Exhausted == 0 {
		t.Errorf("INV-11: %+v", ends)
	}
	done := map[string]sim.Result{}
	rounds := 0
	for _, r := range rep.Requests {
		key := func(k int) string { return fmt.Sprint(r.Spec.Session, "/", k) }
		done[key(r.Spec.Round)] = r
		if r.Spec.Round == 0 {
			continue
		}
		rounds++
		before, ok := done[key(r.Spec.Round-1)]
		if !ok || r.ArrivalUs < *before.LeftUs+50_000 {
			t.Fatalf("INV-10: %s arrived at %d, its predecessor left at %v", r.ID, r.ArrivalUs, before.LeftUs)
		}
		if r.Input <= before.Input+before.Output {
			t.Errorf("%s: %d prompt tokens after %d + %d", r.ID, r.Input, before.Input, before.Output)
		}
		if r.Spec.Think != int(0.4*float64(r.Output)) {
			t.Errorf("%s: %d of %d tokens are thinking", r.ID, r.Spec.Think, r.Output)
		}
	}
	if rounds < 100 || rep.Metrics.Engines[0].HitRate < 0.5 {
		t.Errorf("%d later rounds, hit rate %.2f: later rounds should find the earlier ones", rounds,
			rep.Metrics.Engines[0].HitRate)
	}
}

// TestClosedLoop: so many users, never more requests than users at once.
func TestClosedLoop(t *testing.T) {
	d := workload.DefaultDistribution()
	d.Concurrency, d.ThinkUs, d.Requests = 5, 1000, 100
	spec, err := d.Spec()
	if err != nil {
		t.Fatal(err)
	}
	cfg := linear()
	cfg.RecordSteps = true
	rep, err := blis.Run(cfg, spec.New())
	if err != nil {
		t.Fatal(err)
	}
	if rep.Metrics.Completed != 100 {
		t.Errorf("%d completed", rep.Metrics.Completed)
	}
	for _, s := range rep.Steps {
		if s.Running+s.QueueLen > 5 {
			t.Fatalf("step %d: %d running and %d waiting for 5 users", s.Step, s.Running, s.QueueLen)
		}
	}
}
