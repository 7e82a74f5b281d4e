package cluster

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

func server() blis.Config {
	cfg := blis.DefaultConfig()
	cfg.Beta, cfg.Alpha = []float64{1000, 10, 5}, []float64{100, 1, 100}
	cfg.KVBlocks = 1000
	return cfg
}

// uma is a server with the daemon's batching.
func uma(policy string) blis.Config {
	cfg := blis.DefaultConfig()
	cfg.BatchFormation, cfg.Policy, cfg.LatencyModel, cfg.NoOverlap = "uma", policy, "calibrated", true
	cfg.CostModel = []float64{1000, 250, 500, 0} // whole microseconds for any number of tokens
	cfg.KVBlocks, cfg.MaxRunning, cfg.MaxScheduledTokens = 1000, 16, 512
	return cfg
}

func load(t testing.TB, rate float64, n int64) workload.Source {
	t.Helper()
	d := workload.DefaultDistribution()
	d.Rate, d.Requests, d.Process = rate, n, "poisson"
	d.Input, d.Output = workload.Gaussian{Mean: 120, SD: 40, Min: 2, Max: 400},
		workload.Gaussian{Mean: 20, SD: 8, Min: 1, Max: 60}
	s, err := d.Spec()
	if err != nil {
		t.Fatal(err)
	}
	return s.New()
}

// TestOneInstanceIsTheSimulator: a cluster of one gives the simulator's numbers.
func TestOneInstanceIsTheSimulator(t *testing.T) {
	one, err := Run(Config{Server: server(), Instances: 1, Routing: "least-loaded"}, load(t, 40, 500))
	if err != nil {
		t.Fatal(err)
	}
	cfg := server()
	alone, err := blis.Run(cfg, load(t, 40, 500))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(one.Metrics.Numbers(&cfg.Config))
	b, _ := json.Marshal(alone.Metrics.Numbers(&cfg.Config))
	if string(a) != string(b) {
		t.Errorf("cluster %s\nalone   %s", a, b)
	}
}

// TestConservation (INV-1) over all routings, with and without disaggregation, with and without a horizon; requests are
// counted at the router. And the same bytes twice.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := Config{Server: server(), Instances: rapid.IntRange(1, 9).Draw(rt, "instances"),
			Routing:         rapid.SampledFrom(Routings).Draw(rt, "routing"),
			KVBytesPerToken: 1e5, TransferGBs: rapid.SampledFrom([]float64{0.1, 10}).Draw(rt, "GB/s"),
			TransferBaseUs: 50}
		if policy := rapid.SampledFrom([]string{"", "uma", "meridian", "stock"}).Draw(rt, "policy"); policy != "" {
			cfg.Server = uma(policy)
		}
		cfg.PrefillInstances = rapid.IntRange(0, cfg.Instances-1).Draw(rt, "prefill")
		cfg.Server.KVBlocks = rapid.SampledFrom([]int{40, 1000}).Draw(rt, "blocks")
		cfg.Server.HorizonUs = rapid.SampledFrom([]int64{0, 300_000}).Draw(rt, "horizon")
		run := func() *Report {
			rep, err := Run(cfg, load(t, 200, 200))
			if err != nil {
				rt.Fatal(err)
			}
			return rep
		}
		rep := run()
		m := rep.Metrics
		if cfg.Server.HorizonUs == 0 {
			if rep.Injected != 200 || m.Injected() != 200 || m.StillQueued+m.StillRunning != 0 || rep.InFlight != 0 {
				rt.Fatalf("injected %d, accounted for %d, %d waiting, %d running, %d on the wire", rep.Injected,
					m.Injected(), m.StillQueued, m.StillRunning, rep.InFlight)
			}
			if m.TTFT.Count() != m.Completed || m.E2E.Count() != m.Completed {
				rt.Fatalf("%d completed, %d TTFT, %d E2E", m.Completed, m.TTFT.Count(), m.E2E.Count())
			}
		} else if m.Injected()+rep.InFlight > rep.Injected {
			rt.Fatalf("%d accounted for, %d injected", m.Injected(), rep.Injected)
		}
		if cfg.PrefillInstances > 0 && cfg.Server.HorizonUs == 0 && rep.Moved < 150 {
			rt.Fatalf("%d of 200 requests moved", rep.Moved)
		}
		a, _ := json.Marshal(rep.Numbers(&cfg))
		b, _ := json.Marshal(run().Numbers(&cfg))
		if string(a) != string(b) {
			rt.Fatalf("two runs differ:\n%s\n%s", a, b)
		}
	})
}

// TestRouting: round-robin spreads evenly, least-loaded follows the load (INV-7: at the moment of routing), affinity
// keeps a group together and finds its prefix.
func TestRouting(t *testing.T) {
	run := func(routing string, rows []workload.Request) *Report {
		cfg := Config{Server: server(), Instances: 4, Routing: routing}
		rep, err := Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	// A long request and three short ones at once, then one more: the least loaded is the server that is done.
	rows := []workload.Request{{Index: 0, Input: 10, Output: 500}, {Index: 1, Input: 10, Output: 2},
		{Index: 2, Input: 10, Output: 500}, {Index: 3, Input: 10, Output: 500},
		{Index: 4, Arrival: 100_000, Input: 10, Output: 2}}
	if got := run("least-loaded", rows).PerServer; got[1] != 2 || got[0] != 1 {
		t.Errorf("least-loaded sent %v, want the fifth to the second server", got)
	}
	if got := run("round-robin", rows).PerServer; got[0] != 2 || got[1] != 1 {
		t.Errorf("round-robin sent %v, want the fifth to the first server", got)
	}
	rows = nil
	for i := range int64(400) {
		rows = append(rows, workload.Request{Index: i, Arrival: i * 20_000, Input: 200, Output: 5,
			Prefix: string(rune('a' + i%7)), PrefixLen: 160})
	}
	hits := func(r *Report) float64 { return r.Numbers(&Config{Server: server()})["cache_hit_rate"].(float64) }
	affine, blind := run("prefix-affinity", rows), run("round-robin", rows)
	if hits(affine) <= hits(blind) {
		t.Errorf("hit rate %.3f with affinity, %.3f without", hits(affine), hits(blind))
	}
	// All requests prefer one server: the bound sends some elsewhere.
	for i := range rows {
		rows[i].Arrival, rows[i].Prefix = 0, "one"
	}
	for i, n := range run("prefix-affinity", rows).PerServer {
		if n > 126 {
			t.Errorf("server %d got %d of 400", i, n)
		}
	}
}

// TestDisaggregation by hand: prompt on one server, transfer, answer on the other.
func TestDisaggregation(t *testing.T) {
	cfg := Config{Server: server(), Instances: 2, Routing: "round-robin", PrefillInstances: 1, KVBytesPerToken: 1000,
		TransferGBs: 1, TransferBaseUs: 50}
	cfg.Server.Alpha = nil
	rep, err := Run(cfg, workload.NewList([]workload.Request{{Index: 0, Input: 100, Output: 3, Budget: 3}}))
	if err != nil {
		t.Fatal(err)
	}
	m := rep.Metrics
	// Prefill 1000+10·100 us; transfer 50 + 100·1000/1000 us; two decode steps of 1005 us.
	if m.Completed != 1 || m.TTFT.Sum() != 2000 || rep.MovedUs != 150 || m.ITL.Sum() != 150+2*1005 ||
		m.E2E.Sum() != 2000+150+2010 || m.InputTokens != 100 || m.OutputTokens != 3 {
		t.Errorf("%+v, moved %d us, TTFT %d, ITL %d, E2E %d, tokens %d in, %d out", m.Completed, rep.MovedUs,
			m.TTFT.Sum(), m.ITL.Sum(), m.E2E.Sum(), m.InputTokens, m.OutputTokens)
	}
}

// TestDisaggregationOfUma is the same with the daemon's batching: the decode server has the prompt's cells, computes
// that of the first token and goes on with the answer, thinking included.
func TestDisaggregationOfUma(t *testing.T) {
	for _, policy := range []string{"uma", "meridian", "stock", "meridian_static"} {
		cfg := Config{Server: uma(policy), Instances: 2, Routing: "round-robin", PrefillInstances: 1,
			KVBytesPerToken: 1000, TransferGBs: 1, TransferBaseUs: 50}
		rep, err := Run(cfg, workload.NewList([]workload.Request{{Input: 100, Output: 30, Budget: 30, Think: 10}}))
		if err != nil {
			t.Fatal(err)
		}
		m := rep.Metrics
		// Prefill 250·100 us and 1000 for each step; transfer 50 + 100·1000/1000 us; 29 steps of a token, the first of
		// which is the last of a prompt to the scheduler.
		const prefill, decode = 26_000, 1250 + 28*1500
		if ttft := m.TTFT.Sum(); m.Completed != 1 || ttft < prefill || (ttft-prefill)%1000 != 0 ||
			policy == "stock" && ttft != prefill || rep.MovedUs != 150 || m.ITL.Sum() != 150+decode ||
			m.E2E.Sum() != ttft+150+decode || m.InputTokens != 100 || m.OutputTokens != 30 || m.ITL.Count() != 29 ||
			m.Thoughts[meridian.EndedNatural] != 1 {
			t.Errorf("%s: %d completed, moved %d us, TTFT %d, ITL %d of %d gaps, E2E %d, tokens %d in, %d out, %v",
				policy, m.Completed, rep.MovedUs, ttft, m.ITL.Sum(), m.ITL.Count(), m.E2E.Sum(), m.InputTokens,
				m.OutputTokens, m.Thoughts)
		}
		// A request of one token ends on the prefill side, where the next turn finds its prompt.
		ttft := func(stream uint64) int64 {
			rep, err := Run(cfg, workload.NewList([]workload.Request{
				{Index: 0, Input: 200, Output: 1, Budget: 1, Stream: 9},
				{Index: 1, Arrival: 500_000, Input: 208, Output: 5, Budget: 5, Stream: stream}}))
			if err != nil || rep.Metrics.Completed != 2 || rep.Moved != 1 {
				t.Fatalf("%s: %v, %+v", policy, err, rep)
			}
			return rep.Metrics.TTFT.Sum()
		}
		if shared, fresh := ttft(9), ttft(8); shared > fresh-150*250 {
			t.Errorf("%s: TTFT %d us with a prompt that the first turn computed, %d us without", policy, shared, fresh)
		}
	}
	cfg := Config{Server: uma("uma"), Instances: 2, Routing: "round-robin", PrefillInstances: 1, TransferGBs: 1}
	cfg.Server.NoPrefixCache = true
	if _, err := Run(cfg, load(t, 1, 1)); err == nil || !strings.Contains(err.Error(), "no_prefix_cache") {
		t.Errorf("without a prefix cache: %v", err)
	}
}

// TestDisaggregationHelpsAnswers: beside long prompts, answers of servers that compute no prompts are smoother than on
// servers that compute both, with the daemon's batching as with vLLM's.
func TestDisaggregationHelpsAnswers(t *testing.T) {
	requests := int64(2000)
	if invariants.Enabled { // a hundred times slower
		requests = 500
	}
	for _, server := range []blis.Config{server(), uma("stock")} {
		p99 := map[int]float64{}
		if server.BatchFormation == "uma" {
			server.CostModel = []float64{1000, 10, 5, 0}
		}
		for _, prefill := range []int{0, 4} {
			d := workload.DefaultDistribution()
			d.Rate, d.Requests, d.Process = 150, requests, "poisson"
			d.Input, d.Output = workload.Gaussian{Mean: 1200, SD: 400, Min: 100, Max: 3000},
				workload.Gaussian{Mean: 40, SD: 10, Min: 2, Max: 80}
			s, err := d.Spec()
			if err != nil {
				t.Fatal(err)
			}
			server.KVBlocks, server.MaxScheduledTokens = 10_000, 4096
			cfg := Config{Server: server, Instances: 6, Routing: "least-loaded", PrefillInstances: prefill,
				KVBytesPerToken: 1e5, TransferGBs: 1000}
			rep, err := Run(cfg, s.New())
			if err != nil || rep.Metrics.Completed != requests {
				t.Fatalf("%v: %d completed", err, rep.Metrics.Completed)
			}
			p99[prefill] = rep.Metrics.ITL.PercentileMs(99)
		}
		if p99[4] > 0.5*p99[0] {
			t.Errorf("%s: ITL p99 %.1f ms with prefill servers, %.1f ms without", server.BatchFormation, p99[4],
				p99[0])
		}
	}
}

func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := make([]int64, rapid.IntRange(1, 40).Draw(t, "n"))
		var tr tree
		tr.init(len(v), 0)
		for range 50 {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "i")
			v[i] = rapid.Int64Range(0, 5).Draw(t, "v")
			tr.set(i, v[i])
			best := 0
			for k := range v {
				if v[k] < v[best] {
					best = k
				}
			}
			if got, at := tr.min(); got != best || at != v[best] {
				t.Fatalf("min is %d (%d), want %d (%d)", got, at, best, v[best])
			}
		}
	})
}

// TestMemoryIsFlat: allocations do not grow with the requests.
func TestMemoryIsFlat(t *testing.T) {
	run := func(n int64) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Run(Config{Server: server(), Instances: 10, Routing: "least-loaded"},
			load(t, 1000, n)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	run(20)
	small, large := run(3000), run(15000)
	if large > small+3000 && !invariants.Enabled {
		t.Errorf("3,000 requests take %d allocations, 15,000 take %d", small, large)
	}
}

func TestConfigErrors(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"instances":   func(c *Config) { c.Instances = 0 },
		"routing":     func(c *Config) { c.Routing = "random" },
		"prefill":     func(c *Config) { c.PrefillInstances = 4 },
		"bandwidth":   func(c *Config) { c.PrefillInstances = 2 },
		"max_num_run": func(c *Config) { c.Server.MaxRunning = 0 },
	} {
		cfg := Config{Server: server(), Instances: 4, Routing: "round-robin"}
		change(&cfg)
		if _, err := Run(cfg, load(t, 1, 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// BenchmarkCluster is a thousand servers; the metric is requests a second of wall clock.
func BenchmarkCluster(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		if _, err := Run(Config{Server: server(), Instances: 1000, Routing: "least-loaded"},
			load(b, 20_000, n)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "requests/s")
}
