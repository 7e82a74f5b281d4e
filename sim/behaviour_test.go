package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// linear is a server whose step times are exact in decimal.
func linear() sim.Config {
	cfg := sim.DefaultConfig()
	cfg.Beta, cfg.Alpha = []float64{1000, 10, 5}, []float64{100, 1, 100}
	cfg.KVBlocks = 4096
	return cfg
}

// TestSameCode: the plans made inside the simulator are those that package sched makes when the recorded events are
// given to it directly, as the daemon does. The recording uses the daemon's format.
func TestSameCode(t *testing.T) {
	for _, policy := range sched.Policies() {
		t.Run(policy, func(t *testing.T) {
			cfg := linear()
			cfg.BatchFormation, cfg.Policy, cfg.KVBlocks, cfg.MaxRunning, cfg.MaxScheduledTokens = "uma", policy, 300,
				6, 256
			src, err := workload.Mix{Rate: 3, Requests: 40, Seed: 7, ReasoningRatio: 0.3}.New()
			if err != nil {
				t.Fatal(err)
			}
			rep, recorded := record(t, cfg, nil, src)
			if rep.Metrics.Completed != 40 || rep.Metrics.Preemptions == 0 {
				t.Fatalf("%d completed, %d preemptions: the workload does not try enough", rep.Metrics.Completed,
					rep.Metrics.Preemptions)
			}
			replayed := 0
			if err := recorded.Replay(func(*trace.Step, *sched.Plan) { replayed++ }); err != nil {
				t.Fatal(err)
			}
			if steps := len(recorded.Steps); replayed != steps || steps < 1000 {
				t.Errorf("%d steps replayed, %d recorded", replayed, steps)
			}

			// The recording is a workload: simulated again it gives the same times.
			rows, err := workload.FromRecording(recorded)
			if err != nil {
				t.Fatal(err)
			}
			again, err := sim.Run(cfg, workload.NewList(rows))
			if err != nil {
				t.Fatal(err)
			}
			a, b := rep.Metrics, again.Metrics
			if a.Completed != b.Completed || a.OutputTokens != b.OutputTokens || a.ITL.Sum() != b.ITL.Sum() ||
				a.ITL.PercentileMs(95) != b.ITL.PercentileMs(95) {
				t.Errorf("as a workload: %d/%d completed, %d/%d tokens, ITL sum %d/%d", a.Completed, b.Completed,
					a.OutputTokens, b.OutputTokens, a.ITL.Sum(), b.ITL.Sum())
			}
		})
	}
}

// TestAdmissionOfUma: prompts that can never fit are dropped, a full queue rejects, deadlines cancel.
func TestAdmissionOfUma(t *testing.T) {
	cfg := linear()
	cfg.BatchFormation, cfg.KVBlocks, cfg.MaxRunning, cfg.MaxQueue = "uma", 20, 1, 1
	rows := []workload.Request{
		{Index: 0, Input: 100, Output: 50, Budget: 50},
		{Index: 1, Arrival: 10, Input: 100, Output: 50, Budget: 50, Deadline: 30_000},
		{Index: 2, Arrival: 10, Input: 100, Output: 50, Budget: 50},
		{Index: 3, Arrival: 10, Input: 320, Output: 5, Budget: 5},
	}
	rep, err := sim.Run(cfg, workload.NewList(rows))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"completed", "timed_out", "rejected", "dropped"} {
		if got := rep.Requests[i].State; got != want {
			t.Errorf("request_%d is %s, want %s", i, got, want)
		}
	}
}
