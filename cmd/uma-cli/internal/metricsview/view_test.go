package metricsview

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/metrics"
)

func parse(t *testing.T, raw []byte, at time.Time) *Snapshot {
	t.Helper()
	s, err := Parse(raw, at)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNames: every name this package reads is one the daemon has.
func TestNames(t *testing.T) {
	s := parse(t, metrics.New(metrics.Build{}).AppendJSON(nil), time.Time{})
	for _, name := range []string{
		"running_prefill", "running_decode", "running_paused", "queued_interactive", "queued_background",
		"prompts_total",
		"requests_finished_total", "requests_rejected_total", "tokens_generated_total", "prefill_tokens_merged_total",
		"batch_calls_total", "decode_ms_last", "decode_ms_ewma", "last_batch_size", "avg_budget_used",
		"avg_budget_target",
		"kv_cells_total", "kv_cells_live", "weights_bytes", "repacked_bytes", "kv_bytes", "go_heap_bytes", "rss_bytes",
		"sessions_active",
		"accepted_total", "rx_bytes_total", "tx_bytes_total", "io_errors_total", "decode_errors_total", "uptime_ms",
		"ttft_ms", "inter_token_ms", "request_queue_ms", "request_prefill_ms", "decode_ms", "cancel_latency_ms",
		"batch_size", "response_tokens", "think_tokens", "time_to_answer_ms", "inter_token_think_ms",
		"inter_token_output_ms",
		"kv_lookups_total",
		"kv_hit_ratio", "kv_cached_tokens_total", "kv_tier_bytes", "think_ended_total", "queue_depth_think",
		"itl_target_ms", "guard",
		"slo_violations_tbt_total", "itl_target_infeasible", "itl_limited_total",
		"kv_cells_cached", "output_critical_eviction",
	} {
		if _, ok := s.fields[name]; !ok {
			t.Errorf("the daemon has no metric %q", name)
		}
	}
}

func TestRender(t *testing.T) {
	m := metrics.New(metrics.Build{Version: "v1"})
	v := View{Out: ui.New(&bytes.Buffer{}, false, false, nil)}
	start := time.Unix(1000, 0)
	first := v.Render(parse(t, m.AppendJSON(nil), start))
	if strings.Contains(first, "/s)") {
		t.Errorf("a rate without an earlier snapshot:\n%s", first)
	}
	for range 70 {
		m.TokensGenerated.Inc()
	}
	m.Prompts.Inc()
	for range 9 {
		m.TTFT.Observe(3 * time.Millisecond)
	}
	m.TTFT.Observe(5 * time.Second)
	second := v.Render(parse(t, m.AppendJSON(nil), start.Add(2*time.Second)))
	for _, want := range []string{
		"tokens    70 generated (35.0/s), 0 of prompts",
		"0 queued, 1 so far (0.50/s)",
		"first token             10     503 ms    4.00 ms   > 1.02 s     █        ▁",
		"between tokens           0          –          –          –\n",
	} {
		if !strings.Contains(second, want) {
			t.Errorf("%q is missing in\n%s", want, second)
		}
	}
	// A daemon that was started anew counts from zero: no negative rates.
	third := v.Render(parse(t, metrics.New(metrics.Build{}).AppendJSON(nil), start.Add(3*time.Second)))
	if strings.Contains(third, "-") || strings.Contains(third, "generated (") {
		t.Errorf("after a restart:\n%s", third)
	}
	if strings.Count(second, "\n") != strings.Count(third, "\n") {
		t.Error("the screen changes its height")
	}
}

// TestRenderInside: what only some daemons have is shown when it is there.
func TestRenderInside(t *testing.T) {
	m := metrics.New(metrics.Build{})
	v := View{Out: ui.New(&bytes.Buffer{}, false, false, nil)}
	if screen := v.Render(parse(t, m.AppendJSON(nil), time.Unix(1, 0))); strings.Contains(screen, "prefix cache") ||
		strings.Contains(screen, "ITL target") || strings.Contains(screen, "; ended:") {
		t.Errorf("before anything happened:\n%s", screen)
	}
	m.Lookup(metrics.Host, 812)
	m.Lookup(metrics.Device, 0)
	m.BindStore(func() metrics.Store {
		return metrics.Store{Tiers: [metrics.NumTiers]metrics.TierStats{metrics.Host: {Bytes: 3 << 20}}}
	})
	m.ThoughtDone(metrics.Thought{Tokens: 9, Ended: "converged"})
	m.SLOViolationsITL.Add(2)
	m.SetScheduler(metrics.Scheduler{ITLTarget: 50 * time.Millisecond, Guard: 1, LiveCells: 50, PoolCells: 30,
		FreeCells: 20, TargetInfeasible: true, ByState: [2][4]int{{0, 0, 3, 0}}, Limited: [5]uint64{2: 10, 4: 4}})
	for range 4 {
		m.Step(metrics.Step{Tokens: 1, Decode: 1})
	}
	m.SetKV(metrics.KV{OutputCriticalEvictions: 4})
	screen := v.Render(parse(t, m.AppendJSON(nil), time.Unix(2, 0)))
	for _, want := range []string{
		" 50 %  50 of 100, 30 more cached\n",
		"prefix cache  50 % of 2 prompts had a cached prefix, tokens: host 812\n",
		"tiers         host 3.00 MiB\n",
		"thinking      3 now; ended: converged 1\n",
		"ITL target    50.0 ms, missed 2 times, prompts in reduced chunks; cannot be met\n",
		"limited       3.50 requests a step, by that target (smaller chunks, or no tokens)\n",
		"evicted       running answers lost cells 4 times\n",
		"thought length           1          9",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("%q is missing in\n%s", want, screen)
		}
	}
}

func TestParseHostile(t *testing.T) {
	for _, raw := range []string{"", "[]", "null x", `"a"`} {
		if _, err := Parse([]byte(raw), time.Time{}); err == nil {
			t.Errorf("%q: no error", raw)
		}
	}
	v := View{Out: ui.New(&bytes.Buffer{}, false, false, nil)}
	for _, raw := range []string{"null", "{}",
		`{"ttft_ms":7,"kv_cells_total":"x","requests_finished_total":{"\u001b[2J":3}}`,
		`{"ttft_ms":{"count":5,"buckets":{"x":1,"+Inf":5}}}`} {
		if screen := v.Render(parse(t, []byte(raw), time.Time{})); strings.Contains(screen, "\x1b") {
			t.Errorf("%q: an escape in\n%s", raw, screen)
		}
	}
}

// TestWatchFitsTheWindow: a watch shows what fits into the window, the summary first and the most important rows of the
// rest, of a daemon that has everything to tell.
func TestWatchFitsTheWindow(t *testing.T) {
	m := metrics.New(metrics.Build{})
	for range 1_234_567 {
		m.TokensGenerated.Inc()
	}
	m.Lookup(metrics.Host, 812)
	m.Lookup(metrics.Device, 0)
	m.BindStore(func() metrics.Store {
		return metrics.Store{Tiers: [metrics.NumTiers]metrics.TierStats{metrics.Host: {Bytes: 3 << 20},
			metrics.Disk: {Bytes: 3 << 30}}}
	})
	for _, ended := range []string{"natural", "converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user",
		"eog", "length"} {
		m.ThoughtDone(metrics.Thought{Tokens: 9, Ended: ended})
	}
	m.SLOViolationsITL.Add(2)
	m.SetScheduler(metrics.Scheduler{ITLTarget: 50 * time.Millisecond, Guard: 1, LiveCells: 50, PoolCells: 30,
		FreeCells: 20, TargetInfeasible: true})
	m.SetKV(metrics.KV{OutputCriticalEvictions: 4})
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 24}, {60, 10}} {
		v := View{Out: ui.Window(&bytes.Buffer{}, true, size[0], size[1]), Fit: true}
		v.Render(parse(t, m.AppendJSON(nil), time.Unix(1, 0)))
		screen := v.Render(parse(t, m.AppendJSON(nil), time.Unix(2, 0)))
		lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			plain := strings.NewReplacer("\x1b[2m", "", "\x1b[22m", "").Replace(l)
			if w := ui.Width(plain); w > size[0] {
				t.Errorf("%v: a line of %d columns: %s", size, w, plain)
			}
		}
		for _, want := range []string{"requests", "tokens", "KV cells", "ITL target", "first token", "between tokens"} {
			if !strings.Contains(screen, want) {
				t.Errorf("%v: no %q in\n%s", size, want, screen)
			}
		}
		if strings.Contains(screen, "1 … tokens") != strings.Contains(screen, "thought length") {
			t.Errorf("%v: a head without rows in\n%s", size, screen)
		}
	}
}
