package blis_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestConservation (INV-1 and the metric laws) on random servers and workloads: arrivals are counted by the source.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := linear()
		cfg.BatchFormation = rapid.SampledFrom(blis.BatchFormations).Draw(t, "formation")
		cfg.Scheduler = rapid.SampledFrom(blis.Schedulers).Draw(t, "scheduler")
		cfg.PriorityPolicy = rapid.SampledFrom(blis.PriorityPolicies).Draw(t, "priority")
		cfg.KVBlocks = rapid.IntRange(4, 60).Draw(t, "blocks")
		cfg.BlockTokens = rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "block")
		cfg.MaxRunning = rapid.IntRange(1, 8).Draw(t, "running")
		cfg.MaxScheduledTokens = rapid.IntRange(2, 128).Draw(t, "budget")
		cfg.LongPrefill = rapid.SampledFrom([]int{0, 7, 32}).Draw(t, "threshold")
		cfg.MaxModelLen = rapid.SampledFrom([]int{0, cfg.KVBlocks * cfg.BlockTokens}).Draw(t, "len")
		cfg.KVCPUBlocks = rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "host")
		cfg.KVTierModel = rapid.SampledFrom(blis.TierModels).Draw(t, "tier")
		cfg.OffloadThreshold = rapid.SampledFrom([]float64{0, 0.3, 0.9}).Draw(t, "offload")
		cfg.NoOverlap = rapid.Bool().Draw(t, "no overlap")
		cfg.DeferBatch = rapid.Bool().Draw(t, "defer")
		cfg.HorizonUs = rapid.SampledFrom([]int64{20_000, 3_000_000}).Draw(t, "horizon")
		cfg.StrictHorizon = rapid.Bool().Draw(t, "strict")
		if rapid.Bool().Draw(t, "bucket") {
			cfg.Admission, cfg.BucketCapacity, cfg.BucketRefill = "token-bucket", 200, 20000
		}
		cfg.RecordITL = true
		src := &counted{}
		at := int64(0)
		for i := range int64(rapid.IntRange(1, 40).Draw(t, "n")) {
			at += rapid.Int64Range(0, 2000).Draw(t, "gap")
			r := workload.Request{Index: i, Arrival: at, Input: rapid.IntRange(1, 90).Draw(t, "in"),
				Output: rapid.IntRange(0, 40).Draw(t, "out"),
				Class:  rapid.SampledFrom([]string{"", "batch"}).Draw(t, "class")}
			r.Budget = rapid.SampledFrom([]int{0, r.Output}).Draw(t, "budget")
			if rapid.Bool().Draw(t, "shared") {
				r.Prefix, r.PrefixLen = "g", min(r.Input, 48)
			}
			if rapid.IntRange(0, 3).Draw(t, "deadline") == 0 {
				r.Deadline = at + rapid.Int64Range(1, 30_000).Draw(t, "patience")
			}
			src.rows = append(src.rows, r)
		}
		rep, err := blis.Run(cfg, src)
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]int64{}
		for _, r := range rep.Requests {
			states[r.State]++
			if r.State != "completed" {
				continue
			}
			sum := int64(0)
			for _, g := range r.ITLsUs {
				sum += g
			}
			if *r.E2EUs != *r.TTFTUs+sum {
				t.Fatalf("%s: E2E %d != TTFT %d + ITLs %d", r.ID, *r.E2EUs, *r.TTFTUs, sum)
			}
			if !r.Capped && r.ITLs != max(r.Output-1, 0) {
				t.Fatalf("%s: %d gaps for %d tokens", r.ID, r.ITLs, r.Output)
			}
			if *r.LeftUs < r.ArrivalUs+*r.DelayUs {
				t.Fatalf("%s: left before it was scheduled", r.ID)
			}
		}
		m := rep.Metrics
		if int(src.at) != len(rep.Requests) || states["completed"] != m.Completed || states["dropped"] != m.Dropped ||
			states["timed_out"] != m.TimedOut ||
			states["queued"] != m.StillQueued || states["running"] != m.StillRunning ||
			states["rejected"] != m.Rejected {
			t.Fatalf("states %v, metrics %+v", states, m.Numbers(&cfg.Config))
		}
		if total := m.Injected() + states["not_arrived"]; total != int64(len(src.rows)) {
			t.Fatalf("INV-1: %d requests, %d accounted for", len(src.rows), total)
		}
		end := cfg.HorizonUs
		if cfg.StrictHorizon {
			// a step that would have passed it was not begun: 1 ms, and 10 us for each of at most 128 tokens
			end -= 3000
		}
		if cfg.HorizonUs > 1_000_000 && rep.Stuck == nil && states["queued"]+states["running"] > 0 &&
			m.Engines[0].Clock < end {
			t.Fatalf("INV-8: it ended at %d us with work left: %v", m.Engines[0].Clock, states)
		}
		if states["queued"]+states["running"] == 0 && m.Engines[0].KVUsed != 0 && cfg.BatchFormation == "vllm" {
			t.Fatalf("INV-4: %d blocks in use and no request left", m.Engines[0].KVUsed)
		}
	})
}

// counted is a source that counts what it handed out.
type counted struct {
	rows []workload.Request
	at   int64
}

func (c *counted) Next(r *workload.Request) bool {
	if c.at == int64(len(c.rows)) {
		return false
	}
	*r = c.rows[c.at]
	c.at++
	return true
}

// TestOutputLengthIsSecret (INV-9): the true output length changes nothing before the output is generated.
func TestOutputLengthIsSecret(t *testing.T) {
	for _, formation := range blis.BatchFormations {
		cfg := linear()
		cfg.BatchFormation, cfg.KVBlocks, cfg.RecordSteps, cfg.HorizonUs = formation, 64, true, 500
		rows := func(output int) []workload.Request {
			var out []workload.Request
			for i := range int64(30) {
				out = append(out, workload.Request{Index: i, Input: 20 + int(i), Output: output})
			}
			return out
		}
		var first []string
		for _, output := range []int{5, 1_000_000} {
			rep, err := blis.Run(cfg, workload.NewList(rows(output)))
			if err != nil {
				t.Fatal(err)
			}
			if rep.Metrics.Dropped > 0 {
				t.Errorf("%s: dropped %d for outputs of %d unannounced tokens", formation, rep.Metrics.Dropped, output)
			}
			steps, _ := json.Marshal(rep.Steps[:1])
			first = append(first, string(steps))
		}
		if first[0] != first[1] {
			t.Errorf("%s: the first batch depends on the output length:\n%s\n%s", formation, first[0], first[1])
		}
	}
}

// TestPrivateBlocks: entering a request's own blocks into the hash index only when it is preempted changes no number.
// A request with an explicit stream is entered at once, as in BLIS.
func TestPrivateBlocks(t *testing.T) {
	preempted := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := linear()
		cfg.KVBlocks = rapid.IntRange(6, 40).Draw(t, "blocks")
		cfg.BlockTokens = rapid.SampledFrom([]int{1, 2, 8, 16}).Draw(t, "block")
		cfg.MaxRunning = rapid.IntRange(1, 8).Draw(t, "running")
		cfg.MaxScheduledTokens = rapid.IntRange(2, 64).Draw(t, "budget")
		cfg.LongPrefill = rapid.SampledFrom([]int{0, 5}).Draw(t, "threshold")
		cfg.Scheduler = rapid.SampledFrom(blis.Schedulers).Draw(t, "scheduler")
		cfg.HorizonUs, cfg.RecordSteps, cfg.RecordITL = 400_000, true, true
		var rows []workload.Request
		at := int64(0)
		for i := range int64(rapid.IntRange(2, 25).Draw(t, "n")) {
			at += rapid.Int64Range(0, 3000).Draw(t, "gap")
			r := workload.Request{Index: i, Arrival: at, Input: rapid.IntRange(1, 60).Draw(t, "in"),
				Output: rapid.IntRange(0, 60).Draw(t, "out")}
			if rapid.Bool().Draw(t, "shared") {
				r.Prefix, r.PrefixLen = "g", rapid.IntRange(0, r.Input).Draw(t, "prefix")
			}
			rows = append(rows, r)
		}
		lazy, err := blis.Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			rows[i].Stream = workload.NumberedStream(rows[i].Index)
		}
		eager, err := blis.Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		var a, b bytes.Buffer
		if lazy.WriteJSON(&a) != nil || eager.WriteJSON(&b) != nil || a.String() != b.String() {
			t.Fatalf("the numbers differ:\n%s\n%s", a.String(), b.String())
		}
		preempted += int(lazy.Metrics.Preemptions)
	})
	if preempted < 100 {
		t.Errorf("only %d preemptions were tried", preempted)
	}
}
