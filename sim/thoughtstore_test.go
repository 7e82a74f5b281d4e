package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestThinkingSessionsThatWantThreePools: 32 thinking sessions that need three times the pool are served at 0.72 of the
// speed with room for all, or better, and their thoughts go out and come back.
func TestThinkingSessionsThatWantThreePools(t *testing.T) {
	const sessions, prompt, think, answer = 32, 64, 64, 128
	var rows []workload.Request
	for i := range sessions {
		rows = append(rows, workload.Request{Index: int64(i), Input: prompt, Output: answer, Budget: answer,
			Think:  think,
			Stream: uint64(i) + 1})
	}
	speed := func(policy, evict string, cells int) (perSecond float64, restored int64) {
		cfg := served(policy)
		cfg.KVBlocks, cfg.MaxRunning, cfg.KVCPUBlocks, cfg.ThinkEvict = cells/cfg.BlockTokens, sessions, 4096, evict
		cfg.KVPartTokens = 16
		rep, err := sim.Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		for _, r := range rep.Requests {
			if r.E2EUs == nil || r.ITLs != answer-1 {
				t.Fatalf("%s, %s: %+v", policy, evict, r)
			}
			last = max(last, r.ArrivalUs+*r.E2EUs)
		}
		return float64(sessions*answer) / (float64(last) / 1e6), rep.Metrics.Engines[0].Restored[0]
	}
	const live = sessions * (prompt + answer)
	for _, policy := range []string{"uma", "meridian"} {
		free, _ := speed(policy, "none", live*5/4)
		for _, evict := range []string{"none", "offload"} {
			tight, restored := speed(policy, evict, live/3)
			t.Logf("%s, think evict %s: %.0f tokens/s, %.2f of %.0f; %d tokens restored", policy, evict, tight,
				tight/free, free, restored)
			if tight < 0.72*free {
				t.Errorf("%s, think evict %s: %.0f tokens/s, %.2f of %.0f", policy, evict, tight, tight/free, free)
			}
		}
	}
}
