package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestUmaSpeculates: answers that repeat themselves take fewer steps with speculation, are as long, and a recording of
// them replays and simulates as the same. Answers that do not are served as without it.
func TestUmaSpeculates(t *testing.T) {
	for _, repeat := range []float64{0, 0.9} {
		var steps [2]int
		var output [2]int64
		for i, n := range []int{0, 16} {
			cfg := served("meridian")
			cfg.Speculate, cfg.Repeat, cfg.Engine = n, repeat, "fake"
			rep, trace := record(t, cfg, nil, workload.NewList(together(4, 60, 20, 200, 15_000)))
			if done := rep.Metrics.Completed; done != 4 {
				t.Fatalf("repeat %v, speculate %d: %d of 4 completed", repeat, n, done)
			}
			steps[i], output[i] = len(trace.Steps), rep.Metrics.OutputTokens
			if err := trace.Replay(nil); err != nil {
				t.Error(err)
			}
		}
		switch {
		case output[0] != output[1]:
			t.Errorf("repeat %v: %d output tokens without speculation, %d with it", repeat, output[0], output[1])
		case repeat > 0 && steps[1] > steps[0]*2/3:
			t.Errorf("%d steps without speculation, %d with it", steps[0], steps[1])
		case repeat == 0 && steps[1] != steps[0]:
			t.Errorf("nothing repeats: %d steps without speculation, %d with it", steps[0], steps[1])
		}
	}
}
