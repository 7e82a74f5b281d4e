package sim_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/kv"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

func linear() sim.Config {
	cfg := sim.DefaultConfig()
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

// TestLivelock: a request whose prompt fits and whose answer does not preempts itself for ever. Without a horizon that
// ends with a sentence; with one the simulation goes on to it, as the original's does.
func TestLivelock(t *testing.T) {
	cfg := linear()
	cfg.KVBlocks = 4
	rows := []workload.Request{{Index: 0, Input: 40, Output: 100}, {Index: 1, Input: 10, Output: 2, Arrival: 10}}
	rep, err := sim.Run(cfg, workload.NewList(rows))
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
	rep, err = sim.Run(cfg, workload.NewList(rows))
	if err != nil || rep.Stuck == nil || rep.Metrics.Engines[0].Clock < cfg.HorizonUs {
		t.Errorf("with a horizon: err %v, stuck %v, clock %d", err, rep.Stuck, rep.Metrics.Engines[0].Clock)
	}
	cfg.Livelock = sim.LivelockStop
	if _, err = sim.Run(cfg, workload.NewList(rows)); !errors.As(err, &stuck) {
		t.Errorf("LivelockStop: %v", err)
	}

	// sjf lets the short one pass, and it is served; a deadline of the stuck one resolves the livelock.
	cfg = linear()
	cfg.KVBlocks, cfg.Scheduler = 4, "sjf"
	rows[0].Deadline = 400_000
	cfg.Livelock = sim.LivelockReport
	rep, err = sim.Run(cfg, workload.NewList(rows))
	if err != nil || rep.Metrics.Completed != 1 || rep.Metrics.TimedOut != 1 {
		t.Errorf("sjf with a deadline: err %v, %d completed, %d timed out", err, rep.Metrics.Completed, rep.Metrics.TimedOut)
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
	rep, err := sim.Run(cfg, workload.NewList(rows))
	if err != nil || rep.Metrics.Completed != 60 || rep.Metrics.Preemptions < 60 {
		t.Errorf("err %v, %d completed, %d preemptions", err, rep.Metrics.Completed, rep.Metrics.Preemptions)
	}
}

// TestSameBytes (INV-6): the same seed gives the same bytes, however often and however many at once.
func TestSameBytes(t *testing.T) {
	spec, err := workload.ParseSpec(golden()["workload/two_clients_prefix.yaml"])
	if err != nil {
		t.Fatal(err)
	}
	for _, formation := range sim.BatchFormations {
		cfg := linear()
		cfg.BatchFormation, cfg.KVBlocks, cfg.KVCPUBlocks, cfg.RecordSteps = formation, 100, 50, true
		if formation == "uma" {
			cfg.KVCPUBlocks = 0
		}
		run := func() []byte {
			s := *spec
			s.NumRequests = 25
			rep, err := sim.Run(cfg, s.New())
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

// TestSameCode: the plans that package sched made inside the simulator are those that it makes when the recorded
// events are given to it directly, which is what the daemon does. The recording goes through the daemon's own format.
func TestSameCode(t *testing.T) {
	for _, policy := range sched.Policies() {
		t.Run(policy, func(t *testing.T) {
			cfg := linear()
			cfg.BatchFormation, cfg.Policy, cfg.KVBlocks, cfg.MaxRunning, cfg.MaxScheduledTokens = "uma", policy, 300, 6, 256
			src, err := workload.Mix{Rate: 3, Requests: 40, Seed: 7, ReasoningRatio: 0.3}.New()
			if err != nil {
				t.Fatal(err)
			}
			sc := sim.SchedConfig(&cfg)
			trace := sched.AppendConfig(nil, &sc)
			steps := 0
			model, err := cfg.Latency()
			if err != nil {
				t.Fatal(err)
			}
			rep, err := sim.RunModel(cfg, model, src, sim.Options{Planned: func(now sched.Instant, in []sched.Event, plan *sched.Plan) {
				steps++
				trace = plan.Append(sched.AppendEvents(trace, now, in), "> ")
			}})
			if err != nil {
				t.Fatal(err)
			}
			if rep.Metrics.Completed != 40 || rep.Metrics.Preemptions == 0 {
				t.Fatalf("%d completed, %d preemptions: the workload does not try enough", rep.Metrics.Completed, rep.Metrics.Preemptions)
			}
			recorded, err := sched.ReadTrace(trace)
			if err != nil {
				t.Fatal(err)
			}
			replayed := 0
			if err := recorded.Replay(func(*sched.TraceStep, *sched.Plan) { replayed++ }); err != nil {
				t.Fatal(err)
			}
			if replayed != steps || steps < 1000 {
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
			if a.Completed != b.Completed || a.OutputTokens != b.OutputTokens || a.ITL.Sum() != b.ITL.Sum() || a.ITL.PercentileMs(95) != b.ITL.PercentileMs(95) {
				t.Errorf("as a workload: %d/%d completed, %d/%d tokens, ITL sum %d/%d", a.Completed, b.Completed, a.OutputTokens, b.OutputTokens, a.ITL.Sum(), b.ITL.Sum())
			}
		})
	}
}

// TestConservation (INV-1 and the metric laws) on random servers and workloads: arrivals are counted by the source.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := linear()
		cfg.BatchFormation = rapid.SampledFrom(sim.BatchFormations).Draw(t, "formation")
		cfg.Scheduler = rapid.SampledFrom(sim.Schedulers).Draw(t, "scheduler")
		cfg.PriorityPolicy = rapid.SampledFrom(sim.PriorityPolicies).Draw(t, "priority")
		cfg.KVBlocks = rapid.IntRange(4, 60).Draw(t, "blocks")
		cfg.BlockTokens = rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "block")
		cfg.MaxRunning = rapid.IntRange(1, 8).Draw(t, "running")
		cfg.MaxScheduledTokens = rapid.IntRange(2, 128).Draw(t, "budget")
		cfg.LongPrefill = rapid.SampledFrom([]int{0, 7, 32}).Draw(t, "threshold")
		cfg.MaxModelLen = rapid.SampledFrom([]int{0, cfg.KVBlocks * cfg.BlockTokens}).Draw(t, "len")
		cfg.KVCPUBlocks = rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "host")
		cfg.KVTierModel = rapid.SampledFrom(sim.TierModels).Draw(t, "tier")
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
			r := workload.Request{Index: i, Arrival: at, Input: rapid.IntRange(1, 90).Draw(t, "in"), Output: rapid.IntRange(0, 40).Draw(t, "out"),
				Class: rapid.SampledFrom([]string{"", "batch"}).Draw(t, "class")}
			r.Budget = rapid.SampledFrom([]int{0, r.Output}).Draw(t, "budget")
			if rapid.Bool().Draw(t, "shared") {
				r.Prefix, r.PrefixLen = "g", min(r.Input, 48)
			}
			if rapid.IntRange(0, 3).Draw(t, "deadline") == 0 {
				r.Deadline = at + rapid.Int64Range(1, 30_000).Draw(t, "patience")
			}
			src.rows = append(src.rows, r)
		}
		rep, err := sim.Run(cfg, src)
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
		if int(src.at) != len(rep.Requests) || states["completed"] != m.Completed || states["dropped"] != m.Dropped || states["timed_out"] != m.TimedOut ||
			states["queued"] != m.StillQueued || states["running"] != m.StillRunning || states["rejected"] != m.Rejected {
			t.Fatalf("states %v, metrics %+v", states, m.Numbers(&cfg))
		}
		if total := m.Injected() + states["not_arrived"]; total != int64(len(src.rows)) {
			t.Fatalf("INV-1: %d requests, %d accounted for", len(src.rows), total)
		}
		end := cfg.HorizonUs
		if cfg.StrictHorizon {
			end -= 3000 // a step that would have passed it was not begun: 1 ms, and 10 us for each of at most 128 tokens
		}
		if cfg.HorizonUs > 1_000_000 && rep.Stuck == nil && states["queued"]+states["running"] > 0 && m.Engines[0].Clock < end {
			t.Fatalf("INV-8: it ended at %d us with work left: %v", m.Engines[0].Clock, states)
		}
		if states["queued"]+states["running"] == 0 && m.Engines[0].KVUsed != 0 && cfg.BatchFormation == "vllm" {
			t.Fatalf("INV-4: %d blocks in use and nobody there", m.Engines[0].KVUsed)
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

// TestOutputLengthIsSecret (INV-9): what a request will really generate changes nothing before it is generated.
func TestOutputLengthIsSecret(t *testing.T) {
	for _, formation := range sim.BatchFormations {
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
			rep, err := sim.Run(cfg, workload.NewList(rows(output)))
			if err != nil {
				t.Fatal(err)
			}
			if rep.Metrics.Dropped > 0 {
				t.Errorf("%s: dropped %d for outputs of %d tokens nobody announced", formation, rep.Metrics.Dropped, output)
			}
			steps, _ := json.Marshal(rep.Steps[:1])
			first = append(first, string(steps))
		}
		if first[0] != first[1] {
			t.Errorf("%s: the first batch depends on the output length:\n%s\n%s", formation, first[0], first[1])
		}
	}
}

// TestOverlap: the original lets a request start a step while the last one of a drained batch still runs.
func TestOverlap(t *testing.T) {
	cfg := linear()
	cfg.Alpha = nil
	rows := []workload.Request{{Index: 0, Input: 50, Output: 1}, {Index: 1, Arrival: 700, Input: 50, Output: 1}}
	for _, c := range []struct {
		mend bool
		want int64
	}{{false, 0}, {true, 800}} {
		cfg.NoOverlap = c.mend
		rep, err := sim.Run(cfg, workload.NewList(rows))
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
	rows := []workload.Request{{Index: 0, Input: 80, Output: 1}, {Index: 1, Arrival: 1, Input: 80, Output: 1}, {Index: 2, Arrival: 60_001, Input: 80, Output: 1}}
	rep, err := sim.Run(cfg, workload.NewList(rows))
	if err != nil {
		t.Fatal(err)
	}
	if rep.Metrics.Completed != 2 || rep.Metrics.Rejected != 1 || rep.Requests[1].State != "rejected" {
		t.Errorf("%d completed, %d rejected, states %s %s %s", rep.Metrics.Completed, rep.Metrics.Rejected, rep.Requests[0].State, rep.Requests[1].State, rep.Requests[2].State)
	}
}

// TestMemoryIsFlat: ten times the requests, no more memory, and no allocation that grows with them.
func TestMemoryIsFlat(t *testing.T) {
	cfg := linear()
	cfg.Collect, cfg.KVBlocks = sim.Aggregate, 2000
	run := func(n int64) (allocations uint64) {
		d := workload.DefaultDistribution()
		d.Requests, d.Rate, d.Input, d.Output = n, 300, workload.Gaussian{Mean: 60, SD: 20, Min: 2, Max: 200}, workload.Gaussian{Mean: 8, SD: 3, Min: 1, Max: 20}
		spec, err := d.Spec()
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rep, err := sim.Run(cfg, spec.New())
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

// TestSessions (INV-10, INV-11) and that a session's later rounds find its earlier ones in the cache.
func TestSessions(t *testing.T) {
	spec, err := workload.ParseSpec([]byte(`
version: "2"
seed: 3
aggregate_rate: 20
num_requests: 300
clients:
  - id: chat
    rate_fraction: 1
    timeout: 2000000
    arrival: {process: poisson}
    prefix_group: system
    prefix_length: 64
    input_distribution: {type: gaussian, params: {mean: 60, std_dev: 20, min: 5, max: 200}}
    output_distribution: {type: exponential, params: {mean: 30}}
    reasoning:
      reason_ratio_distribution: {type: constant, params: {value: 40}}
      multi_turn: {max_rounds: 4, think_time_us: 50000, context_growth: accumulate}
`))
	if err != nil {
		t.Fatal(err)
	}
	cfg := linear()
	g := spec.New()
	rep, err := sim.Run(cfg, g)
	if err != nil {
		t.Fatal(err)
	}
	ends := g.Ends
	if ends.Started == 0 || ends.Started != ends.Completed+ends.Cancelled+ends.Horizon+ends.Exhausted || ends.Completed == 0 || ends.Exhausted == 0 {
		t.Errorf("INV-11: %+v", ends)
	}
	done := map[string]sim.Result{}
	rounds := 0
	for _, r := range rep.Requests {
		key := func(k int) string { return fmt.Sprint(r.Spec.Session, "/", k) }
		done[key(r.Spec.Round)] = r
		if r.Spec.Round == 0 {
			continue
		}
		rounds++
		before, ok := done[key(r.Spec.Round-1)]
		if !ok || r.ArrivalUs < *before.LeftUs+50_000 {
			t.Fatalf("INV-10: %s arrived at %d, its predecessor left at %v", r.ID, r.ArrivalUs, before.LeftUs)
		}
		if r.Input <= before.Input+before.Output {
			t.Errorf("%s: %d prompt tokens after %d + %d", r.ID, r.Input, before.Input, before.Output)
		}
		if r.Spec.Think != int(0.4*float64(r.Output)) {
			t.Errorf("%s: %d of %d tokens are thinking", r.ID, r.Spec.Think, r.Output)
		}
	}
	if rounds < 100 || rep.Metrics.Engines[0].HitRate < 0.5 {
		t.Errorf("%d later rounds, hit rate %.2f: later rounds should find the earlier ones", rounds, rep.Metrics.Engines[0].HitRate)
	}
}

// TestClosedLoop: so many users, never more requests than users at once.
func TestClosedLoop(t *testing.T) {
	d := workload.DefaultDistribution()
	d.Concurrency, d.ThinkUs, d.Requests = 5, 1000, 100
	spec, err := d.Spec()
	if err != nil {
		t.Fatal(err)
	}
	cfg := linear()
	cfg.RecordSteps = true
	rep, err := sim.Run(cfg, spec.New())
	if err != nil {
		t.Fatal(err)
	}
	if rep.Metrics.Completed != 100 {
		t.Errorf("%d completed", rep.Metrics.Completed)
	}
	for _, s := range rep.Steps {
		if s.Running+s.QueueLen > 5 {
			t.Fatalf("step %d: %d running and %d waiting for 5 users", s.Step, s.Running, s.QueueLen)
		}
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

// TestConfigErrors: each message names the field.
func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ json, want string }{
		{`{`, "line 1"},
		{`{"max_num_running_reqs": "x"}`, "max_num_running_reqs"},
		{`{"max_num_running_reqs": 0}`, "max_num_running_reqs"},
		{`{"max_num_scheduled_tokens": -1}`, "max_num_scheduled_tokens"},
		{`{"block_size_in_tokens": 0}`, "block_size_in_tokens"},
		{`{"max_model_len": 1000, "total_kv_blocks": 3}`, "too small for max_model_len"},
		{`{"scheduler": "lifo"}`, "valid are fcfs"},
		{`{"priority_policy": "x"}`, "priority_policy"},
		{`{"kv_cpu_blocks": 3, "kv_offload_threshold": 2}`, "kv_offload_threshold"},
		{`{"kv_cpu_blocks": 3, "kv_transfer_bandwidth": 0}`, "kv_transfer_bandwidth"},
		{`{"horizon_us": -4}`, "horizon_us"},
		{`{"beta_coeffs": [1]}`, "beta_coeffs"},
		{`{"beta_coeffs": [1,2,3], "alpha_coeffs": [1,2]}`, "alpha_coeffs"},
		{`{"beta_coeffs": [1,2,-3]}`, "beta_coeffs[2]"},
		{`{"latency_model": "roofline"}`, "config.json"},
		{`{"latency_model": "calibrated"}`, "cost model"},
		{`{"batch_formation": "uma", "policy": "zz", "beta_coeffs": [1,2,3]}`, "zz"},
	} {
		cfg, _, err := sim.ReadConfig([]byte(c.json), "")
		if err == nil {
			_, err = sim.Run(cfg, workload.NewList([]workload.Request{{Input: 1, Output: 1}}))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.json, err, c.want)
		}
	}
	if _, unknown, err := sim.ReadConfig([]byte(`{"max_runing": 3}`), ""); err != nil || len(unknown) != 1 || unknown[0] != "max_runing" {
		t.Errorf("unknown keys %v, err %v", unknown, err)
	}
}

// TestRooflineWorked are the worked values of two Llama-3.1-8B steps on an H100, and the sizes of its cache.
func TestRooflineWorked(t *testing.T) {
	dir := goldenDir(t)
	shape := func(name string) latency.Shape {
		data, err := os.ReadFile(filepath.Join(dir, "models", name))
		if err != nil {
			t.Fatal(err)
		}
		s, err := latency.ParseShape(data, name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	llama, mixtral := shape("llama31-8b.json"), shape("mixtral-8x7b.json")
	m, err := latency.NewRoofline([]float64{0, 0, 0}, llama, latency.GPUs["H100"], 1, latency.RooflineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		items []latency.Item
		want  int64
	}{
		{[]latency.Item{{New: 280, Prefill: true}}, 6460},
		{[]latency.Item{{Context: 281, New: 1}, {Context: 138, New: 1}}, 3061},
		{nil, 1},
	} {
		if got := m.Step(&latency.Batch{Items: c.items}); got != c.want {
			t.Errorf("%v: %d us, want %d", c.items, got, c.want)
		}
	}
	slower, err := latency.NewRoofline([]float64{0, 0, 0}, llama, latency.GPUs["H100"], 2, latency.RooflineOptions{TwoPhase: true, AllReduceGBs: 100, LayerOverhead: 5})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := latency.NewRoofline([]float64{0, 0, 0}, llama, latency.GPUs["H100"], 2, latency.RooflineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mixed := &latency.Batch{Items: []latency.Item{{New: 280, Prefill: true}, {Context: 100, New: 1}}}
	if a, b := plain.Step(mixed), slower.Step(mixed); b < a+32*5 {
		t.Errorf("%d us without, %d with overheads", a, b)
	}
	for _, c := range []struct {
		shape latency.Shape
		gpu   string
		tp    int
		want  int
	}{{llama, "H100", 1, 26312}, {llama, "A100-SXM", 2, 125278}, {llama, "L40S", 1, 11567}, {mixtral, "H100", 2, 48956}} {
		got, err := latency.KVBlocks(c.shape, latency.GPUs[c.gpu], c.tp, 0.9, 16)
		if err != nil || got != c.want {
			t.Errorf("%s TP%d: %d blocks (%v), want %d", c.gpu, c.tp, got, err, c.want)
		}
	}
	if _, err := latency.KVBlocks(mixtral, latency.GPUs["H100"], 1, 0.9, 16); err == nil || !strings.Contains(err.Error(), "do not leave room") {
		t.Errorf("Mixtral on one H100: %v", err)
	}
	if n := latency.MaxModelLen(llama, 26312, 16); n != 131072 {
		t.Errorf("max model length %d", n)
	}
	if n := latency.MaxModelLen(llama, 100, 16); n != 1600 {
		t.Errorf("max model length %d, want the cache's 1600", n)
	}
}

// TestPrivateBlocks: entering a request's own blocks into the hash index only when it is preempted changes no number.
// A request whose stream is named explicitly is entered at once, as the original does.
func TestPrivateBlocks(t *testing.T) {
	preempted := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := linear()
		cfg.KVBlocks = rapid.IntRange(6, 40).Draw(t, "blocks")
		cfg.BlockTokens = rapid.SampledFrom([]int{1, 2, 8, 16}).Draw(t, "block")
		cfg.MaxRunning = rapid.IntRange(1, 8).Draw(t, "running")
		cfg.MaxScheduledTokens = rapid.IntRange(2, 64).Draw(t, "budget")
		cfg.LongPrefill = rapid.SampledFrom([]int{0, 5}).Draw(t, "threshold")
		cfg.Scheduler = rapid.SampledFrom(sim.Schedulers).Draw(t, "scheduler")
		cfg.HorizonUs, cfg.RecordSteps, cfg.RecordITL = 400_000, true, true
		var rows []workload.Request
		at := int64(0)
		for i := range int64(rapid.IntRange(2, 25).Draw(t, "n")) {
			at += rapid.Int64Range(0, 3000).Draw(t, "gap")
			r := workload.Request{Index: i, Arrival: at, Input: rapid.IntRange(1, 60).Draw(t, "in"), Output: rapid.IntRange(0, 60).Draw(t, "out")}
			if rapid.Bool().Draw(t, "shared") {
				r.Prefix, r.PrefixLen = "g", rapid.IntRange(0, r.Input).Draw(t, "prefix")
			}
			rows = append(rows, r)
		}
		lazy, err := sim.Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			rows[i].Stream = kv.NumberedStream(rows[i].Index)
		}
		eager, err := sim.Run(cfg, workload.NewList(rows))
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
