package sim_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// served is a calibrated server with batch formation uma. Its coefficients are exact in binary, and a prompt token
// costs what an answer's does, so that it does not matter who adds them up, and which of the two a chunk of one token
// is.
func served(policy string) sim.Config {
	cfg := sim.DefaultConfig()
	cfg.BatchFormation, cfg.Policy, cfg.LatencyModel = "uma", policy, "calibrated"
	cfg.CostModel = []float64{4000, 500, 500, 1000.0 / 1024}
	cfg.KVBlocks, cfg.MaxRunning, cfg.MaxScheduledTokens = 512, 8, 512
	return cfg
}

// together are n requests that share their first tokens, each gap microseconds after the one before.
func together(n, shared, own, output int, gap int64) []workload.Request {
	var rows []workload.Request
	for i := range n {
		rows = append(rows, workload.Request{Index: int64(i), Arrival: int64(i) * gap, Input: shared + own,
			Output: output, Budget: output, Prefix: "g", PrefixLen: shared})
	}
	return rows
}

// computed runs a workload and counts the prompt tokens that were computed, and the requests that waited for another
// one's prompt.
func computed(t *testing.T, cfg sim.Config, rows []workload.Request) (rep *sim.Report, prompt, joined int) {
	t.Helper()
	model, err := cfg.Latency()
	if err != nil {
		t.Fatal(err)
	}
	rep, err = sim.RunModel(cfg, model, workload.NewList(rows),
		sim.Options{Planned: func(_ sched.Instant, in *sched.Events, plan *sched.Plan) {
			prompt += plan.PrefillTokens
			joined += len(in.Defers)
		}})
	if err != nil {
		t.Fatal(err)
	}
	if int(rep.Metrics.Completed) != len(rows) {
		t.Fatalf("%d of %d completed", rep.Metrics.Completed, len(rows))
	}
	return rep, prompt, joined
}

// TestUmaSharesPrompts: a common prefix is computed once, under every policy, also while its first owner still computes
// it; the turns of a session find their history.
func TestUmaSharesPrompts(t *testing.T) {
	const n, shared, own = 16, 1024, 32
	for _, policy := range sched.Policies() {
		cfg := served(policy)
		rep, prompt, joined := computed(t, cfg, together(n, shared, own, 8, 1000))
		if prompt != shared+n*own || joined != n-1 {
			t.Errorf("%s: %d prompt tokens were computed, want %d; %d requests joined, want %d", policy, prompt,
				shared+n*own, joined, n-1)
		}
		if hit := rep.Metrics.Engines[0].HitRate; math.Abs(hit-float64((n-1)*shared)/float64(n*(shared+own))) > 1e-9 {
			t.Errorf("%s: hit rate %v", policy, hit)
		}
		cfg.NoPrefixCache = true
		if _, prompt, _ = computed(t, cfg, together(n, shared, own, 8, 2_000_000)); prompt != n*(shared+own) {
			t.Errorf("%s, one after the other without a prefix cache: %d prompt tokens were computed", policy, prompt)
		}
	}
	turns := []workload.Request{
		{Index: 0, Input: 200, Output: 50, Stream: 9},
		{Index: 1, Arrival: 2_000_000, Input: 300, Output: 50, Stream: 9},
		{Index: 2, Arrival: 2_000_000, Input: 300, Output: 50, Stream: 8},
		{Index: 3, Arrival: 4_000_000, Input: 400, Output: 50, Stream: 9, Tenant: "another user"},
	}
	// The last token of an answer is not fed back, so it is computed with the next turn.
	if _, prompt, _ := computed(t, served("uma"), turns); prompt != 200+(300-249)+300+400 {
		t.Errorf("turns: %d prompt tokens were computed", prompt)
	}
	// Tokens that a recording lists as resident are not computed.
	resident := []workload.Request{{Index: 0, Input: 200, Output: 5, Resident: 150}}
	if rep, prompt, _ := computed(t, served("uma"), resident); prompt != 50 || rep.Metrics.Engines[0].HitRate != 0.75 {
		t.Errorf("resident: %d prompt tokens were computed, hit rate %v", prompt, rep.Metrics.Engines[0].HitRate)
	}
}

// randomRun is a small server with every tier, and a workload of all that requests do.
func randomRun(t *rapid.T) (cfg sim.Config, rows []workload.Request) {
	cfg = served(rapid.SampledFrom(sched.Policies()).Draw(t, "policy"))
	cfg.KVBlocks = rapid.IntRange(12, 60).Draw(t, "blocks")
	cfg.MaxRunning = rapid.IntRange(1, 12).Draw(t, "running")
	cfg.NoPrefixCache = rapid.Bool().Draw(t, "no cache")
	cfg.KVCPUBlocks = rapid.SampledFrom([]int{0, 20, 200}).Draw(t, "host")
	cfg.KVPartTokens = rapid.SampledFrom([]int{16, 128}).Draw(t, "part")
	if cfg.KVCPUBlocks > 0 {
		cfg.KVDiskBlocks, cfg.KVFabric = rapid.SampledFrom([]int{0, 60}).Draw(t, "disk"), rapid.Bool().Draw(t, "fabric")
		cfg.KVTierUs = []float64{rapid.Float64Range(0, 300).Draw(t, "host us"), 40,
			rapid.Float64Range(0, 3000).Draw(t, "fabric us")}
	}
	at := int64(0)
	for i := range rapid.IntRange(1, 40).Draw(t, "n") {
		at += rapid.Int64Range(0, 40_000).Draw(t, "gap")
		r := workload.Request{Index: int64(i), Arrival: at, Input: rapid.IntRange(1, 150).Draw(t, "in"),
			Output: rapid.IntRange(1, 60).Draw(t, "out"),
			Class:  rapid.SampledFrom([]string{"", "batch"}).Draw(t, "class"),
			Stream: uint64(rapid.IntRange(0, 3).Draw(t, "stream"))}
		r.Think = rapid.IntRange(0, r.Output).Draw(t, "think")
		if rapid.Bool().Draw(t, "shared") {
			r.Prefix, r.PrefixLen = "g", min(r.Input, 100)
		}
		if rapid.IntRange(0, 4).Draw(t, "leave") == 0 {
			r.Deadline = at + rapid.Int64Range(1, 300_000).Draw(t, "patience")
		}
		for k := range rapid.IntRange(0, 2).Draw(t, "stalls") {
			r.Stalls = append(r.Stalls, workload.Stall{After: 1 + k*rapid.IntRange(1, 20).Draw(t, "after"),
				Us: rapid.Int64Range(1, 5_000_000).Draw(t, "stall")})
		}
		for k := range rapid.IntRange(0, 3).Draw(t, "probes") {
			if at := 1 + 5*k; at < r.Think {
				r.Probes = append(r.Probes, workload.Probe{After: at, Rows: rapid.IntRange(1, 9).Draw(t, "rows")})
			}
		}
		r.Resident = rapid.SampledFrom([]int{0, 0, r.Input / 2}).Draw(t, "resident")
		rows = append(rows, r)
	}
	return cfg, rows
}

// TestFakeEngine: a run that is also computed by runtime/fake gives the same bytes as one that asks only the latency
// model. The fake engine accepts every operation (it refuses a position that does not continue its sequence, a copy
// over used cells, and a batch without room).
func TestFakeEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, rows := randomRun(t)
		run := func() []byte {
			rep, err := sim.Run(cfg, workload.NewList(rows))
			if err != nil {
				t.Fatal(err)
			}
			if left := rep.Metrics.StillQueued + rep.Metrics.StillRunning; left > 0 {
				t.Fatalf("%d requests were never served", left)
			}
			var b bytes.Buffer
			if err := rep.WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		asked := run()
		cfg.Engine = "fake"
		if done := run(); !bytes.Equal(asked, done) {
			t.Fatalf("asked:\n%s\ndone:\n%s", asked, done)
		}
	})
}

// TestRecordingOfADaemon: a trace recorded by uma-serve (shared-prefix, 16 requests, 4 at a time) replays to the
// recorded plans, so this scheduler is the daemon's. As a workload it computes as many prompt tokens as the daemon did.
func TestRecordingOfADaemon(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "daemon.trace.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := trace.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	prompt, cached, arrived := 0, 0, 0
	for _, step := range recorded.Steps {
		for _, ev := range step.Events.Starts {
			cached += ev.Cached
		}
		arrived += len(step.Events.Arrivals)
	}
	if err := recorded.Replay(func(_ *trace.Step, plan *sched.Plan) { prompt += plan.PrefillTokens }); err != nil {
		t.Fatal(err)
	}
	rows, err := workload.FromRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 16 || arrived != 16 || cached < 1000 {
		t.Fatalf("%d rows of %d arrivals with %d cached tokens", len(rows), arrived, cached)
	}
	cfg := served("uma")
	cfg.SetRecorded(&recorded.Config)
	for _, engine := range sim.Engines {
		cfg.Engine = engine
		if _, simulated, _ := computed(t, cfg, rows); simulated != prompt {
			t.Errorf("engine %q: %d prompt tokens were computed, the daemon computed %d", engine, simulated, prompt)
		}
	}
}

// record simulates and returns the report and the recording of the run. A nil model is the configuration's.
func record(t *testing.T, cfg sim.Config, model latency.Model, src workload.Source) (*sim.Report, *trace.Trace) {
	t.Helper()
	if model == nil {
		var err error
		if model, err = cfg.Latency(); err != nil {
			t.Fatal(err)
		}
	}
	sc := sim.SchedConfig(&cfg)
	lines := trace.AppendConfig(nil, &sc)
	rep, err := sim.RunModel(cfg, model, src,
		sim.Options{Planned: func(now sched.Instant, in *sched.Events, plan *sched.Plan) {
			lines = trace.AppendStep(lines, now, in, plan)
		}})
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := trace.Read(lines)
	if err != nil {
		t.Fatal(err)
	}
	return rep, recorded
}

// TestRecordingShares: the shared prefixes of a recording are recovered. Simulated as a workload, it computes the same
// tokens, waits at the same places and takes the same time.
func TestRecordingShares(t *testing.T) {
	var turns []workload.Request
	for i := range int64(24) {
		in := 300 + 80*int(i/4)
		turns = append(turns, workload.Request{Index: i, Arrival: i/4*1_500_000 + i%4*30_000, Input: in, Output: 40,
			Budget: 40, Stream: 1 + uint64(i%4)})
	}
	for name, rows := range map[string][]workload.Request{"prefix": together(16, 700, 40, 12, 20_000), "turns": turns} {
		cfg := served("meridian")
		rep, recorded := record(t, cfg, nil, workload.NewList(rows))
		if err := recorded.Replay(nil); err != nil {
			t.Fatal(err)
		}
		again, err := workload.FromRecording(recorded)
		if err != nil {
			t.Fatal(err)
		}
		cfg.SetRecorded(&recorded.Config)
		rep2, err := sim.Run(cfg, workload.NewList(again))
		if err != nil {
			t.Fatal(err)
		}
		a, b := rep.Metrics, rep2.Metrics
		if hit := a.Engines[0].HitRate; hit < 0.5 || hit != b.Engines[0].HitRate || a.TTFT.Sum() != b.TTFT.Sum() ||
			a.ITL.Sum() != b.ITL.Sum() || a.Engines[0].Steps != b.Engines[0].Steps {
			t.Errorf("%s: hit rate %.4f and again %.4f, TTFT %d and %d, ITL %d and %d, %d and %d steps", name, hit,
				b.Engines[0].HitRate,
				a.TTFT.Sum(), b.TTFT.Sum(), a.ITL.Sum(), b.ITL.Sum(), a.Engines[0].Steps, b.Engines[0].Steps)
		}
	}
}
