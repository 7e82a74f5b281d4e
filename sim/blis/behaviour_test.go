package blis_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

func linear() blis.Config {
	cfg := blis.DefaultConfig()
	cfg.Beta, cfg.Alpha = []float64{1000, 10, 5}, []float64{100, 1, 100}
	cfg.KVBlocks = 4096
	return cfg
}

func mustJSON(t testing.TB, rep *sim.Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := rep.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestLivelock: a request whose prompt fits but whose answer does not fit preempts itself for ever. Without a horizon
// the run ends with an error; with one the simulation continues to it, as BLIS does.
func TestLivelock(t *testing.T) {
	cfg := linear()
	cfg.KVBlocks = 4
	rows := []workload.Request{{Index: 0, Input: 40, Output: 100}, {Index: 1, Input: 10, Output: 2, Arrival: 10}}
	rep, err := blis.Run(cfg, workload.NewList(rows))
	var stuck *sim.Stuck
	if !errors.As(err, &stuck) {
		t.Fatalf("err = %v, want a livelock", err)
	}
	for _, want := range []string{"request_0", "40 prompt tokens", "needs 5 KV blocks", "has 4", "1 requests wait"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if rep == nil || rep.Stuck != stuck || rep.Metrics.Preemptions < 3 || rep.Metrics.Preemptions > 5 {
		t.Errorf("it took %d preemptions to see it", rep.Metrics.Preemptions)
	}

	cfg.HorizonUs = 1_000_000
	rep, err = blis.Run(cfg, workload.NewList(rows))
	if err != nil || rep.Stuck == nil || rep.Metrics.Engines[0].Clock < cfg.HorizonUs {
		t.Errorf("with a horizon: err %v, stuck %v, clock %d", err, rep.Stuck, rep.Metrics.Engines[0].Clock)
	}
	cfg.Livelock = sim.LivelockStop
	if _, err = blis.Run(cfg, workload.NewList(rows)); !errors.As(err, &stuck) {
		t.Errorf("LivelockStop: %v", err)
	}

	// sjf lets the short one pass, and it is served; a deadline of the stuck one resolves the livelock.
	cfg = linear()
	cfg.KVBlocks, cfg.Scheduler = 4, "sjf"
	rows[0].Deadline = 400_000
	cfg.Livelock = sim.LivelockReport
	rep, err = blis.Run(cfg, workload.NewList(rows))
	if err != nil || rep.Metrics.Completed != 1 || rep.Metrics.TimedOut != 1 {
		t.Errorf("sjf with a deadline: err %v, %d completed, %d timed out", err, rep.Metrics.Completed,
			rep.Metrics.TimedOut)
	}
}

// TestPreemptionStormIsNoLivelock: many preemptions with progress are not called a livelock.
func TestPreemptionStormIsNoLivelock(t *testing.T) {
	cfg := linear()
	cfg.KVBlocks, cfg.MaxRunning = 24, 16
	var rows []workload.Request
	for i := range int64(60) {
		rows = append(rows, workload.Request{Index: i, Arrival: i, Input: 30, Output: 200, Budget: 200})
	}
	rep, err := blis.Run(cfg, workload.NewList(rows))
	if err != nil || rep.Metrics.Completed != 60 || rep.Metrics.Preemptions < 60 {
		t.Errorf("err %v, %d completed, %d preemptions", err, rep.Metrics.Completed, rep.Metrics.Preemptions)
	}
}

// TestSameBytes (INV-6): the same seed gives the same bytes, in repeated and in parallel runs.
func TestSameBytes(t *testing.T) {
	spec, err := workload.ParseSpec(golden()["workload/two_clients_prefix.yaml"])
	if err != nil {
		t.Fatal(err)
	}
	for _, formation := range blis.BatchFormations {
		cfg := linear()
		cfg.BatchFormation, cfg.KVBlocks, cfg.KVCPUBlocks, cfg.RecordSteps = formation, 100, 50, true
		if formation == "uma" {
			cfg.KVCPUBlocks = 0
		}
		run := func() []byte {
			s := *spec
			s.NumRequests = 25
			rep, err := blis.Run(cfg, s.New())
			if err != nil {
				t.Error(err)
				return nil
			}
			return mustJSON(t, rep)
		}
		want := run()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 25 {
					if !bytes.Equal(run(), want) {
						t.Error("two runs differ")
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestOverlap: BLIS lets a request start a step while the last one of a drained batch still runs.
func TestOverlap(t *testing.T) {
	cfg := linear()
	cfg.Alpha = nil
	rows := []workload.Request{{Index: 0, Input: 50, Output: 1}, {Index: 1, Arrival: 700, Input: 50, Output: 1}}
	for _, c := range []struct {
		mend bool
		want int64
	}{{false, 0}, {true, 800}} {
		cfg.NoOverlap = c.mend
		rep, err := blis.Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		if got := *rep.Requests[1].DelayUs; got != c.want {
			t.Errorf("no overlap %v: it waited %d us, want %d", c.mend, got, c.want)
		}
	}
}

// TestTokenBucket: the bucket starts full, holds prompt tokens and refills with time.
func TestTokenBucket(t *testing.T) {
	cfg := linear()
	cfg.Admission, cfg.BucketCapacity, cfg.BucketRefill = "token-bucket", 100, 1000
	rows := []workload.Request{{Index: 0, Input: 80, Output: 1}, {Index: 1, Arrival: 1, Input: 80, Output: 1},
		{Index: 2, Arrival: 60_001, Input: 80, Output: 1}}
	rep, err := blis.Run(cfg, workload.NewList(rows))
	if err != nil {
		t.Fatal(err)
	}
	if rep.Metrics.Completed != 2 || rep.Metrics.Rejected != 1 || rep.Requests[1].State != "rejected" {
		t.Errorf("%d completed, %d rejected, states %s %s %s", rep.Metrics.Completed, rep.Metrics.Rejected,
			rep.Requests[0].State, rep.Requests[1].State, rep.Requests[2].State)
	}
}

// TestMemoryIsFlat: ten times the requests, no more memory, and no allocation that grows with them.
func TestMemoryIsFlat(t *testing.T) {
	cfg := linear()
	cfg.Collect, cfg.KVBlocks = sim.Aggregate, 2000
	run := func(n int64) (allocations uint64) {
		d := workload.DefaultDistribution()
		d.Requests, d.Rate, d.Input, d.Output = n, 300, workload.Gaussian{Mean: 60, SD: 20, Min: 2, Max: 200},
			workload.Gaussian{Mean: 8, SD: 3, Min: 1, Max: 20}
		spec, err := d.Spec()
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rep, err := blis.Run(cfg, spec.New())
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if rep.Metrics.Completed != n {
			t.Fatalf("%d of %d completed", rep.Metrics.Completed, n)
		}
		return after.Mallocs - before.Mallocs
	}
	small, large := run(2000), run(20000)
	if large > small+1000 && !invariants.Enabled { // the checks remember things
		t.Errorf("2,000 requests take %d allocations, 20,000 take %d", small, large)
	}
}
