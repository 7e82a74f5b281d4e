package sim_test

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestNoStepBeyondTheTargetBesideALongPrompt: while a prompt of 16,000 tokens is computed, whose steps get longer as
// its context grows, no step is longer than a chat's ITL target on a machine that takes as long as it did before; with
// step times that vary by a tenth, one in twenty at most, and none by half. The coefficients are those of 135 M
// parameters with AVX-512, of a machine whose attention is slower, and of 1.1 B.
func TestNoStepBeyondTheTargetBesideALongPrompt(t *testing.T) {
	const prompt = 16_000
	for _, c := range []struct {
		cost   []float64
		target float64
	}{
		{[]float64{5500, 460, 600, 0.35}, 100}, {[]float64{5500, 460, 600, 0.35}, 50},
		{[]float64{4000, 460, 600, 3.3}, 100}, {[]float64{22000, 4600, 2600, 1.2}, 150},
	} {
		for _, noise := range []float64{0, 0.01} {
			cfg := served("meridian")
			cfg.CostModel, cfg.CostNoise, cfg.RecordITL, cfg.ITLTargetMs = c.cost, noise, true, c.target
			cfg.KVBlocks = 3 * prompt / cfg.BlockTokens
			rep, err := sim.Run(cfg, workload.NewList([]workload.Request{
				{Index: 0, Input: 60, Output: 20_000, Budget: 20_000},
				{Index: 1, Arrival: 2_000_000, Input: prompt, Output: 1, Budget: 1},
			}))
			if err != nil {
				t.Fatal(err)
			}
			// The chat's tokens until the prompt is computed.
			chat, at, done := rep.Requests[0], *rep.Requests[0].TTFTUs, 2_000_000+*rep.Requests[1].TTFTUs
			var gaps []int64
			for _, g := range chat.ITLsUs {
				if at += g; at > 2_000_000 && at <= done {
					gaps = append(gaps, g)
				}
			}
			if at < done || len(gaps) < 100 {
				t.Fatalf("cost %v: the chat ended before the prompt, or %d tokens are too few", c.cost, len(gaps))
			}
			slices.Sort(gaps)
			worst, p95 := float64(gaps[len(gaps)-1])/1000, float64(gaps[len(gaps)*95/100])/1000
			if p95 > c.target || noise == 0 && worst > c.target || worst > 1.5*c.target {
				t.Errorf("cost %v, noise %v: ITL p95 %.1f ms, worst %.1f, target %v", c.cost, noise, p95, worst,
					c.target)
			}
		}
	}
}
