package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// BenchmarkUma is batch formation uma on the chat-and-reasoning mix: scheduler, prefix tree and block ledger for every
// token.
func BenchmarkUma(b *testing.B) {
	for _, policy := range []string{"uma", "meridian"} {
		b.Run(policy, func(b *testing.B) {
			b.ReportAllocs()
			cfg := served(policy)
			cfg.KVBlocks, cfg.MaxRunning, cfg.Collect = 4096, 32, sim.Aggregate
			steps := 0
			for b.Loop() {
				src, err := workload.Mix{Rate: 0.5, Requests: 300, Seed: 1, ReasoningRatio: 0.3}.New()
				if err != nil {
					b.Fatal(err)
				}
				rep, err := sim.Run(cfg, src)
				if err != nil {
					b.Fatal(err)
				}
				steps += rep.Metrics.Engines[0].Steps
			}
			b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}
