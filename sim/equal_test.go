package sim_test

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// burst is the result of 16 equal clients that ask at the same moment.
type burst struct{ done, lastFirst, itl float64 } // ms; the ITL is the 95th percentile

// bursts lets 16 clients ask at the same moment, four times, some ms apart: prompts of 64 tokens, answers of 128.
func bursts(t *testing.T, policy string, cost []float64) (out []burst) {
	t.Helper()
	cfg := served(policy)
	cfg.CostModel, cfg.CostNoise, cfg.RecordITL, cfg.NoPrefixCache = cost, 0.002, true, true
	cfg.KVBlocks, cfg.MaxRunning, cfg.MaxScheduledTokens = 16384/cfg.BlockTokens, 16, 2048
	var rows []workload.Request
	for round := range 4 {
		for i := range 16 {
			rows = append(rows, workload.Request{Index: int64(len(rows)), Arrival: int64(round*200_000_000 + i*200),
				Input: 64, Output: 128, Budget: 128})
		}
	}
	rep, err := sim.Run(cfg, workload.NewList(rows))
	if err != nil {
		t.Fatal(err)
	}
	for group := range slices.Chunk(rep.Requests, 16) {
		var b burst
		var gaps []int64
		for _, r := range group {
			at := *r.TTFTUs
			b.lastFirst = max(b.lastFirst, float64(at)/1000)
			for _, g := range r.ITLsUs {
				at += g
			}
			b.done = max(b.done, float64(at)/1000)
			gaps = append(gaps, r.ITLsUs...)
		}
		slices.Sort(gaps)
		b.itl = float64(gaps[len(gaps)*95/100]) / 1000
		out = append(out, b)
	}
	return out
}

// TestEqualClients: 16 equal clients at the same moment are done within 1.08 of the time that they take under stock,
// the last first token comes within 1.5 of it, and the ITL target holds where a step of 16 rows meets it: on machines
// whose coefficients are those of a model of 135 M parameters with AVX-512, with AVX2, and slower.
func TestEqualClients(t *testing.T) {
	for _, cost := range [][]float64{{5500, 1100, 1300, 0.5}, {6500, 900, 1200, 0.5}, {9000, 2300, 3000, 0.5},
		{7000, 2000, 5800, 0.5}} {
		stock := bursts(t, "stock", cost)
		for i, b := range bursts(t, "meridian", cost) {
			s := stock[i]
			if b.done > 1.08*s.done || b.lastFirst > 1.5*s.lastFirst || b.itl > max(100, 1.02*s.itl) {
				t.Errorf("cost %v, burst %d: %+v, stock %+v", cost, i, b, s)
			}
		}
	}
}
