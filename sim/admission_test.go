package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// overloaded are requests that arrive at load times the rate at which the server of served computes them, each with a
// TTFT target; of so many out of 100 it is strict.
func overloaded(seed uint64, n int, load float64, strict int) []workload.Request {
	rng := rand.New(rand.NewPCG(seed, 1))
	var rows []workload.Request
	at := 0.0
	for i := range n {
		in, out := 20+rng.IntN(400), 10+rng.IntN(80)
		if rng.IntN(10) == 0 {
			in *= 4
		}
		target := int64(300_000 + rng.IntN(4_000_000))
		rows = append(rows, workload.Request{Index: int64(i), Arrival: int64(at), Input: in, Output: out, Budget: 100,
			Tenant: fmt.Sprint("user", rng.IntN(3)), Stream: uint64(i + 1), TargetTTFT: target,
			Strict: rng.IntN(100) < strict})
		at += rng.ExpFloat64() * perRequest / load
	}
	return rows
}

// perRequest is the mean time between two ends of requests when the server is busy, in microseconds: measured.
const perRequest = 190_000

// outcome of a request: admitted, and its first token came in time.
func ttfts(t *testing.T, cfg sim.Config, rows []workload.Request) (admitted, met []bool) {
	t.Helper()
	rep, err := sim.Run(cfg, workload.NewList(rows))
	if err != nil {
		t.Fatal(err)
	}
	admitted, met = make([]bool, len(rows)), make([]bool, len(rows))
	for i := range rep.Requests {
		r := &rep.Requests[i]
		k := r.Spec.Index
		admitted[k] = r.State != "rejected"
		met[k] = r.TTFTUs != nil && *r.TTFTUs <= r.Spec.TargetTTFT
	}
	return admitted, met
}

// TestAdmissionByPromise: under twice the load that the server can carry, strict requests that are let in meet their
// target in 95 of 100 cases, and those that are refused would have missed it in 90 of 100, had they been let in.
func TestAdmissionByPromise(t *testing.T) {
	for _, policy := range []string{"meridian", "uma"} {
		for _, strict := range []int{100, 50} {
			let, kept, refused, missed := 0, 0, 0, 0
			for seed := range uint64(8) {
				cfg := served(policy)
				rows := overloaded(seed, 400, 2, strict)
				admitted, met := ttfts(t, cfg, rows)
				without := make([]workload.Request, len(rows))
				copy(without, rows)
				for i := range without {
					without[i].Strict = false
				}
				_, would := ttfts(t, cfg, without)
				for i, r := range rows {
					switch {
					case !r.Strict:
					case admitted[i]:
						let++
						if met[i] {
							kept++
						}
					default:
						refused++
						if !would[i] {
							missed++
						}
					}
				}
			}
			t.Logf("%s, %d %% strict: %d let in, %.3f met; %d refused, %.3f would have missed", policy, strict, let,
				float64(kept)/float64(let), refused, float64(missed)/float64(refused))
			if float64(kept) < 0.95*float64(let) || float64(missed) < 0.9*float64(refused) {
				t.Errorf("%s: promises broken, or requests refused in vain", policy)
			}
		}
	}
}
