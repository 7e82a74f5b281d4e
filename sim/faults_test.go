package sim_test

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// faulty is a server with all tiers and a pool that one conversation fills.
func faulty() sim.Config {
	cfg := linear()
	cfg.Beta = []float64{1000, 100, 5} // prompts take so long that restoring pays
	cfg.BatchFormation, cfg.Policy, cfg.Engine, cfg.Collect = "uma", "meridian", "fake", sim.Aggregate
	cfg.MaxRunning, cfg.MaxScheduledTokens, cfg.BlockTokens, cfg.KVBlocks = 4, 256, 16, 40
	cfg.KVCPUBlocks, cfg.KVDiskBlocks, cfg.KVFabric, cfg.KVPartTokens = 8, 400, true, 32
	return cfg
}

// asks are n prompts of 512 tokens, of which every other one is asked again, a second apart.
func asks(n int) *workload.List {
	var rows []workload.Request
	for i := range int64(n) {
		rows = append(rows, workload.Request{Index: i, Arrival: (1 + i) * 1_000_000, Input: 512, Output: 4,
			Stream: 1 + uint64(i)%2})
	}
	return workload.NewList(rows)
}

// runWatched runs a workload; each is called once a second.
func runWatched(t *testing.T, cfg sim.Config, src workload.Source, each func(e *sim.Engine, now int64)) (
	*sim.Report, []sim.Result) {
	t.Helper()
	var done []sim.Result
	rep, err := sim.RunModel(cfg, mustLatency(t, cfg), src, sim.Options{WatchUs: 1_000_000, Watch: each,
		Done: func(r sim.Result) { done = append(done, r) }})
	if err != nil {
		t.Fatal(err)
	}
	return rep, done
}

// TestFailingTiers: what cannot be read is computed, and what hangs is not waited for.
func TestFailingTiers(t *testing.T) {
	restored := func(each func(*sim.Engine, int64)) [3]int64 {
		rep, done := runWatched(t, faulty(), asks(8), each)
		if len(done) != 8 || rep.Metrics.Completed != 8 {
			t.Fatalf("%d of %d requests completed", rep.Metrics.Completed, len(done))
		}
		return rep.Metrics.Engines[0].Restored
	}
	good := restored(nil)
	if good[1] < 500 {
		t.Fatalf("restored %v: the test shows nothing", good)
	}
	for _, f := range []sim.Fault{sim.Failing, sim.Hanging} {
		bad := restored(func(e *sim.Engine, _ int64) {
			if err := e.Fail(1, f); err != nil {
				t.Fatal(err)
			}
		})
		if f == sim.Failing && bad[1] != 0 {
			t.Errorf("%d tokens came from a disk that fails", bad[1])
		}
	}
	if healed := restored(func(e *sim.Engine, now int64) {
		e.Fail(1, []sim.Fault{sim.Failing, sim.Healthy}[min(1, now/4_000_000)])
	}); healed[1] == 0 || healed[1] >= good[1] {
		t.Errorf("%d tokens came from a disk that was healed, %d from a good one", healed[1], good[1])
	}
}

// TestEmptyFabric: a store that starts again has nothing.
func TestEmptyFabric(t *testing.T) {
	cfg := faulty()
	cfg.KVDiskBlocks = 2
	rep, _ := runWatched(t, cfg, asks(8), nil)
	if n := rep.Metrics.Engines[0].Restored[2]; n < 500 {
		t.Fatalf("%d tokens came from the fabric: the test shows nothing", n)
	}
	parts := 0
	rep, _ = runWatched(t, cfg, asks(8), func(e *sim.Engine, now int64) {
		e.EmptyFabric()
		b, err := e.Books(now)
		if err != nil {
			t.Error(err)
		}
		parts = b.Parts
	})
	if n := rep.Metrics.Engines[0].Restored[2]; n != 0 || parts > 5 {
		t.Errorf("%d tokens came from a fabric that is emptied each second, %d parts are left", n, parts)
	}
}

// TestStop: no step begins while the machine stands still, and everything is served afterwards.
func TestStop(t *testing.T) {
	_, plain := runWatched(t, faulty(), asks(3), nil)
	_, done := runWatched(t, faulty(), asks(3), func(e *sim.Engine, now int64) {
		if now == 2_000_000 {
			e.Stop(60_000_000)
		}
	})
	if len(done) != 3 || len(plain) != 3 || *done[0].LeftUs != *plain[0].LeftUs {
		t.Fatalf("%+v", done)
	}
	for _, r := range done[1:] {
		if *r.LeftUs < 60_000_000 || *r.LeftUs > 62_000_000 {
			t.Errorf("%s left at %d us", r.ID, *r.LeftUs)
		}
	}
}

// TestUnload: a server whose process has ended has an empty pool and host tier, and finds what it copied to disk; a
// server with a request is not unloaded.
func TestUnload(t *testing.T) {
	const load = 700_000
	var after []sim.Books
	refused := 0
	rep, done := runWatched(t, faulty(), asks(4), func(e *sim.Engine, now int64) {
		if b, err := e.Books(now); err != nil {
			t.Error(err)
		} else if !b.Quiet {
			refused++
			if e.Unload(now, load) {
				t.Errorf("it is unloaded with %+v", b)
			}
			return
		}
		if now < 2_000_000 {
			return
		}
		if !e.Unload(now, load) {
			t.Error("an idle server is not unloaded")
		}
		b, err := e.Books(now)
		if err != nil {
			t.Error(err)
		}
		after = append(after, b)
	})
	if len(done) != 4 || len(after) == 0 {
		t.Fatalf("%d requests, %d times unloaded, %d refused", len(done), len(after), refused)
	}
	for _, b := range after {
		if b.Cells.Free != 640 || b.Host != 0 || b.Disk == 0 || !b.Quiet {
			t.Errorf("%+v", b)
		}
	}
	if rep.Metrics.Engines[0].Restored[1] == 0 {
		t.Error("nothing came from disk")
	}
	slices.SortFunc(done, func(a, b sim.Result) int { return int(a.ArrivalUs - b.ArrivalUs) })
	for _, r := range done[1:] {
		if *r.TTFTUs < load {
			t.Errorf("%s waited %d us for a server that had to be loaded", r.ID, *r.TTFTUs)
		}
	}
}

// TestBooksTellWhoIsStuck: a request that gets no further is named, one whose client does not read is not.
func TestBooksTellWhoIsStuck(t *testing.T) {
	oldest := map[string]int64{}
	rows := []workload.Request{{Name: "slow", Arrival: 100_000, Input: 8, Output: 50,
		Stalls: []workload.Stall{{After: 2, Us: 30_000_000}}},
		{Index: 1, Name: "held", Arrival: 40_000_000, Input: 8, Output: 50}}
	runWatched(t, faulty(), workload.NewList(rows), func(e *sim.Engine, now int64) {
		if now == 40_000_000 {
			e.Stop(55_000_000)
		}
		b, err := e.Books(now)
		if err != nil {
			t.Error(err)
		}
		oldest[b.Oldest] = max(oldest[b.Oldest], b.StillUs)
	})
	if oldest["slow"] > 1_000_000 || oldest["held"] < 13_000_000 || oldest["held"] > 15_000_000 {
		t.Errorf("%v", oldest)
	}
	vllm := blis.DefaultConfig()
	vllm.Config = linear()
	vllm.BatchFormation = "vllm"
	e, err := sim.NewEngine(vllm.Server(), mustLatency(t, vllm.Config), &sim.Metrics{}, sim.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Books(0); err == nil || e.Fail(1, sim.Failing) == nil || e.Unload(0, 1) {
		t.Errorf("a server of BLIS has such books: %v", err)
	}
}

func mustLatency(t *testing.T, cfg sim.Config) latency.Model {
	t.Helper()
	m, err := cfg.Latency()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
