package metrics

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/metrics.md")

// filled has every source bound and everything observed once.
func filled() *Metrics {
	m := New(Build{Version: "v1.2.3", Engine: "llama.cpp abc", Go: "go1.26"})
	m.RejectReasons.Declare("queue_full", "sampling")
	m.Refusals.Declare("displaced")
	m.HTTPRefused.Declare("host", "uid")
	m.HTTPRefused.Inc("uid")
	m.ThreadChanges.Declare("taken", "undisturbed")
	m.ThreadChanges.Inc("taken")
	m.SetProcessors(Processors{Threads: 1, Most: 2, Taken: 0.75, Waited: 0.125, Stalled: 3 * time.Second, Throttled: -1,
		Switches: 40, BarrierSleeps: 7})
	m.SetPower(Power{Joules: 12.5, PerToken: 0.25, OnBattery: true})
	m.ToolCalls.Declare("hermes")
	m.MalformedCalls.Declare("unknown_tool")
	m.ToolCalls.Inc("hermes")
	m.MalformedCalls.Inc("unknown_tool")
	m.BindIO(IO{
		Accepted: func() uint64 { return 10 }, Refused: func() uint64 { return 1 }, Closed: func() uint64 { return 7 },
		RxBytes: func() uint64 { return 1000 }, TxBytes: func() uint64 { return 2000 },
		Errors:         func() uint64 { return 2 },
		Sessions:       func() int64 { return 3 },
		AcceptedBy:     Counts{[]string{"unix", "127.0.0.1:8737"}, func(i int) uint64 { return uint64(4 + i) }},
		RefusedBy:      Counts{[]string{"sessions", "descriptors"}, func(i int) uint64 { return uint64(i) }},
		Handshakes:     Counts{[]string{"ok", "plain"}, func(i int) uint64 { return uint64(7 + i) }},
		ClosedBy:       Counts{[]string{"idle", "displaced"}, func(i int) uint64 { return uint64(3 + i) }},
		ProtocolErrors: Counts{[]string{"E_PROTO_TIMEOUT", "sampling"}, func(i int) uint64 { return uint64(9 - 5*i) }},
	})
	m.BindMemory(func() Memory { return Memory{Weights: 100, Repacked: 50, KV: 200, Draft: 60, GoHeap: 300, RSS: 400} })
	m.BindLoadProgress(func() float64 { return 0.25 })
	m.SetModel(Model{Name: "tiny \"q\"\\\n\xff", Architecture: "llama", Description: "llama 1M Q8_0"})
	m.SetScheduler(Scheduler{
		QueuedInteractive: 1, QueuedBackground: 2, Prefilling: 3, Decoding: 4, Paused: 5, LiveCells: 60, FreeCells: 40,
		BudgetTarget: 512, TickEWMA: 21 * time.Millisecond, PoolCells: 20,
		ByState: [2][4]int{{1, 2, 3, 4}, {5, 6, 7, 8}}, ParkedThink: 1, ParkedOutput: 2,
		Guard: 1, ITLTarget: 50 * time.Millisecond,
		TargetInfeasible: true, TTFTAtRisk: 2, ThinkHeld: 6,
		Cost:     CostModel{A: 1.5, B: 3.25, C: 2, D: 0.00012345678, E: 0.0005, Error: 0.0725, Ratio: 1.25, Steps: 77},
		Guessing: [12]uint64{11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22},
		Limited:  [5]uint64{31, 32, 33, 34, 35},
	})
	m.Guessed(false, 0, 40, 30)
	m.Guessed(true, 1, 7, 2)
	m.Guessed(false, 2, 9, 8)
	m.SetKV(KV{BlockBytes: [4]int64{100, 200, 300, 400}, Evicted: [4][3]uint64{{1, 2, 3}, {}, {0, 4, 0}, {9, 0, 1}},
		OutputCriticalEvictions: 4, OutputCriticalAvoidable: 1,
		Joins: 3, Prefixes: 5, Sequences: 6, Parked: 1, PrefixEvictions: 8})
	m.BindStore(func() Store {
		return Store{Snapshots: 12, Drops: 1, Quarantined: 2,
			Tiers: [NumTiers]TierStats{Host: {Bytes: 1000, CapBytes: 2000, Entries: 3, Evictions: 4, PagesIn: 5,
				PagesOut: 6, Errors: 7}, Fabric: {PagesIn: 15, PagesOut: 16, Errors: 17}}}
	})
	m.BindFabric("valkey", []string{"timeout", "corrupt"}, func() FabricStats {
		return FabricStats{Offloaded: 8, Ingested: 9, Errors: []uint64{1, 2}, Queued: 3, CircuitOpen: true,
			Retried: 20, Again: 21, Renewed: 22,
			OffloadedTier: [3]uint64{6, 0, 2}, IngestedTier: [3]uint64{8, 1, 0}}
	})
	m.CacheMisses.Declare("cold", "diverged")
	m.CacheMisses.Inc("diverged")
	m.Lookup(Host, 812)
	m.Lookup(Device, 0)
	m.Restored(Host, 3*time.Millisecond)
	m.Priced(Host, 1)
	m.Priced(Fabric, 3)
	m.Priced(Host, 5)
	m.ThoughtDone(Thought{Tokens: 312, Time: 2 * time.Second, Ended: "converged", Probes: 9, Dropped: 1,
		EAT: true, RPDI: true, Entropy: 0.3, Mean: 0.25, Var: 0.00047, Index: 1.5, Would: "converged"})
	m.Forced("converged")
	m.Forced("hard_cap")
	m.ForceClosed(70 * time.Millisecond)
	m.ProbeFallbacks.Inc()
	m.ThoughtIngests.Add(3)
	m.ReadAheads.Add(2)
	m.GrammarCompile.Observe(6 * time.Millisecond)
	m.GrammarRefused.Inc()
	m.GrammarCompiling.Set(3)
	m.Embeddings.Inc()
	m.EmbedInputs.Add(3)
	m.EmbedTokens.Add(50)
	m.GrammarMask.Observe(40 * time.Microsecond)
	m.GrammarForced.Add(5)
	m.VocabFallbacks.Inc()
	m.AdapterRequests.Add(6)
	m.AdapterPasses.Add(7)
	m.AdapterChanges.Add(8)
	m.Reaped.Inc()
	m.TrackedRequests.Set(4)
	m.TTOT.Observe(20 * time.Millisecond)
	m.ToAnswer.Observe(200 * time.Millisecond)
	m.SLOViolationsTTFT.Inc()
	m.SLOViolationsITL.Add(2)
	m.SLOViolationsTTOT.Add(4)
	m.Recomputed.Inc()
	m.ParkedTotal.Inc()
	m.ContextShift.Inc()
	m.Step(Step{Took: 20 * time.Millisecond, Tokens: 100, Prefill: 96, Decode: 4, Budget: 512, PrefillHeld: true,
		Think: 3, Predicted: 18 * time.Millisecond, Scheduled: 12 * time.Microsecond, Probed: 3,
		ProbeTime: 90 * time.Microsecond,
		Traffic:   Traffic{Weights: 100_000_000, KV: 60_000_000, Copies: 15_000_000, Activations: 5_000_000}})
	m.Prompts.Inc()
	m.TokensGenerated.Add(5)
	m.DecodeErrors.Inc()
	m.LateSteps.Add(2)
	m.Preemptions.Inc()
	m.Finished("stop")
	m.Finished("something new")
	m.Rejected("queue_full")
	m.Refusals.Inc("displaced")
	m.Rejected("unheard of")
	m.RequestDone(11, 5, 80*time.Millisecond, 200*time.Millisecond)
	m.LiveViews.Set(2)
	m.TTFT.Observe(100 * time.Millisecond)
	m.InterToken.Observe(false, 9500*time.Microsecond)
	m.QueueTime.Observe(time.Millisecond)
	m.PrefillTime.Observe(2 * time.Second)
	m.CancelDone(3 * time.Millisecond)
	m.BindTurns(func() Turns {
		return Turns{Grants: 20, Contended: 5, Held: 3 * time.Second, Faults: [5]uint64{1, 2, 3, 4, 5}}
	})
	m.BindImages(func() Images {
		return Images{Encoded: 17, Heard: 2, Cached: 4, Loaded: 3, Seconds: 2.5,
			CacheBytes: 4096}
	})
	m.DeviceWait.Observe(7 * time.Millisecond)
	m.DeviceGraphs.Add(9)
	m.Graphs.Add(11)
	m.GraphsReused.Add(5)
	m.DeviceLogits.Add(8192)
	m.DeviceProbes.Add(3)
	m.Overlapped.Observe(40 * time.Microsecond)
	m.DeviceYields.Add(6)
	m.BindTelemetry(func() Telemetry {
		return Telemetry{Exported: 12, Failed: 3, Dropped: 2, MetricExports: 4, MetricFailures: 1}
	})
	m.BindLog(func() Log { return Log{Lines: 100, Dropped: 3, Suppressed: 4} })
	return m
}

// snapshot decodes strictly: no key twice, no number that is none.
func snapshot(t *testing.T, m *Metrics) map[string]any {
	t.Helper()
	line := m.AppendJSON(nil)
	if bytes.ContainsRune(line, '\n') {
		t.Fatalf("more than one line: %s", line)
	}
	var v map[string]any
	if err := json.Unmarshal(line, &v); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	for _, d := range m.decls {
		if n := bytes.Count(line, []byte(`"`+d.json+`":`)); n != 1 {
			t.Fatalf("%q is there %d times", d.json, n)
		}
	}
	if len(v) != len(m.decls) {
		t.Fatalf("%d keys, %d metrics", len(v), len(m.decls))
	}
	return v
}

func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := filled()
		time.Sleep(1500 * time.Microsecond)
		got := snapshot(t, m)
		for key, want := range map[string]any{
			"tokens_generated_total": 5.0, "prompts_total": 1.0, "prompt_tokens_total": 11.0, "preemptions_total": 1.0,
			"batch_calls_total": 1.0, "decode_errors_total": 1.0, "late_steps_total": 2.0,
			"prefill_tokens_merged_total": 96.0,
			"decode_tokens_merged_total":  4.0, "skipped_prefill_due_to_latency_total": 1.0, "last_batch_size": 100.0,
			"prefill_tokens_merged_last": 96.0, "decode_tokens_merged_last": 4.0, "decode_ms_last": 20.0,

			"decode_ms_ewma": 21.0, "last_step_age_ms": 1.5, "budget_target": 512.0, "budget_used": 100.0,
			"avg_budget_target": 512.0, "avg_budget_used": 100.0, "ready_sessions": 2.0, "queued_interactive": 1.0,
			"queued_background": 2.0, "running_prefill": 3.0, "running_decode": 4.0, "running_paused": 5.0,
			"kv_cells_live": 60.0, "kv_cells_free": 40.0, "kv_cells_total": 120.0, "kv_cells_cached": 20.0,
			"sessions_active": 3.0,
			"active_sessions": 3.0, "accepted_total": 10.0, "refused_total": 1.0, "closed_total": 7.0,
			"accepted_by_listener":      map[string]any{"unix": 4.0, "127.0.0.1:8737": 5.0},
			"http_fields_ignored_total": 0.0,
			"http_refused_total":        map[string]any{"host": 0.0, "uid": 1.0, "other": 0.0},
			"refused_by_reason":         map[string]any{"sessions": 0.0, "descriptors": 1.0},
			"tls_handshakes_total":      map[string]any{"ok": 7.0, "plain": 8.0},
			"closed_by_cause":           map[string]any{"idle": 3.0, "displaced": 4.0},
			"protocol_errors_total":     map[string]any{"E_PROTO_TIMEOUT": 9.0, "sampling": 4.0},

			"live_views": 2.0, "rx_bytes_total": 1000.0, "tx_bytes_total": 2000.0, "io_errors_total": 2.0,
			"telemetry_spans_total":          map[string]any{"exported": 12.0, "failed": 3.0},
			"telemetry_metric_exports_total": map[string]any{"exported": 4.0, "failed": 1.0},
			"telemetry_dropped_total":        2.0,

			"step_bytes_total": map[string]any{"weights": 1e8, "kv": 6e7, "copies": 1.5e7, "activations": 5e6},
			"bandwidth_gbps":   9.0, "bandwidth_predicted_gbps": 10.0,

			"kv_events_batches_total": 0.0, "kv_events_dropped_total": 0.0, "kv_events_stored_total": 0.0,
			"kv_events_removed_total": 0.0, "kv_events_subscribers": 0.0, "kv_events_blocks": 0.0,

			"log_lines_total": 100.0, "log_dropped_total": 3.0, "log_suppressed_total": 4.0, "weights_bytes": 100.0,

			"repacked_bytes": 50.0,

			"kv_bytes": 200.0, "draft_bytes": 60.0,
			"go_heap_bytes": 300.0, "rss_bytes": 400.0, "load_progress": 0.25, "uptime_ms": 1.5,

			"requests_finished_total": map[string]any{"stop": 1.0, "length": 0.0, "cancelled": 0.0, "shutdown": 0.0,
				"other": 1.0},
			"requests_rejected_total":    map[string]any{"queue_full": 1.0, "sampling": 4.0, "other": 10.0},
			"requests_refused_total":     map[string]any{"displaced": 1.0, "other": 0.0},
			"tool_calls_total":           map[string]any{"hermes": 1.0, "other": 0.0},
			"tool_calls_repeated_total":  0.0,
			"tool_calls_malformed_total": map[string]any{"unknown_tool": 1.0, "other": 0.0},
			"device_leases_total":        20.0, "device_leases_contended_total": 5.0, "device_held_ms_total": 3000.0,
			"images_encoded_total": 17.0, "sounds_encoded_total": 2.0,
			"image_cache_hits_total": map[string]any{"host": 4.0, "disk": 3.0}, "image_encode_ms_total": 2500.0,
			"image_cache_bytes":   4096.0,
			"device_yields_total": 6.0, "device_graphs_total": 9.0, "graphs_total": 11.0, "graphs_reused_total": 5.0,
			"device_logits_bytes_total": 8192.0, "device_probes_total": 3.0,
			"device_lease_faults_total": map[string]any{"hold_timeout": 1.0,
				"wait_timeout": 2.0, "skipped": 3.0, "lost": 4.0, "repaired": 5.0},
			"predicted_ms_last": 18.0, "recomputed_total": 1.0, "parked_total": 1.0,
			"context_shifts_total": 1.0, "requests_parked": 1.0,
			"requests_by_phase": map[string]any{"interactive/queued": 1.0, "interactive/prefill": 2.0,
				"interactive/think": 3.0, "interactive/output": 4.0,
				"background/queued": 5.0, "background/prefill": 6.0, "background/think": 7.0, "background/output": 8.0},
			"queue_depth_think": 11.0, "queue_depth_output": 14.0, "slo_violations_ttft_total": 1.0,
			"slo_violations_tbt_total": 2.0, "slo_violations_ttot_total": 4.0, "ttft_at_risk": 2.0,
			"itl_target_ms": 50.0, "itl_target_infeasible": 1.0, "guard": map[string]any{"open": 0.0, "trim": 1.0,
				"hold": 0.0}, "think_held_total": 6.0,
			"compute_threads": 1.0, "compute_threads_most": 2.0,
			"compute_thread_changes_total": map[string]any{"taken": 1.0, "undisturbed": 0.0, "other": 0.0},
			"cpus_taken":                   0.75, "compute_wait_share": 0.125, "involuntary_switches_total": 40.0,
			"cpu_stalled_ms_total": 3000.0, "cpu_throttled_ms_total": nil, "barrier_sleeps_total": 7.0,
			"energy_joules_total": 12.5, "joules_per_token": 0.25, "on_battery": 1.0,
			"cost_step_ms": 1.5, "cost_prompt_token_ms": 3.25, "cost_answer_row_ms": 2.0,
			"cost_attended_cell_ms": 0.000123457, "cost_read_cell_ms": 0.0005, "cost_error": 0.0725,
			"cost_margin": 1.25, "cost_steps_total": 77.0,
			"think_ended_total": map[string]any{"natural": 0.0, "converged": 1.0, "stalled": 0.0,
				"overthinking": 0.0, "hard_cap": 0.0, "soft_cap": 0.0, "user": 0.0, "eog": 0.0, "length": 0.0,
				"other": 0.0},
			"force_triggered_total": 2.0, "force_reason_total": map[string]any{"converged": 1.0, "stalled": 0.0,
				"overthinking": 0.0, "hard_cap": 1.0, "soft_cap": 0.0, "user": 0.0, "eog": 0.0, "other": 0.0},
			"think_signals_total": map[string]any{"converged": 1.0, "stalled": 0.0, "overthinking": 0.0, "none": 0.0,
				"other": 0.0},
			"eat_probes_total": 9.0, "probe_dropped_total": 1.0, "probe_fallbacks_total": 1.0,
			"embedding_requests_total": 1.0, "embedding_inputs_total": 3.0, "embedding_tokens_total": 50.0,
			"thought_ingests_total": 3.0,
			"kv_read_ahead_total":   2.0,
			"vocab_fallback_total":  1.0, "grammar_refused_total": 1.0, "requests_compiling": 3.0,
			"drafted_tokens_total": map[string]any{"output/draft-model": 9.0, "think/draft-model": 0.0,
				"output/head": 0.0, "think/head": 0.0,
				"output/own": 40.0, "output/other": 0.0, "think/own": 0.0,
				"think/other": 7.0},
			"accepted_tokens_total": map[string]any{"output/draft-model": 8.0, "think/draft-model": 0.0,
				"output/head": 0.0, "think/head": 0.0,
				"output/own": 30.0, "output/other": 0.0, "think/own": 0.0,
				"think/other": 2.0},
			"speculation_decisions_total": map[string]any{"draft": 11.0, "draft_none": 12.0, "draft_unlikely": 13.0,
				"draft_target": 14.0, "draft_prompts": 15.0, "draft_room": 16.0, "draft_trial": 17.0,
				"draft_model": 18.0, "draft_catch_up": 19.0, "draft_behind": 20.0, "draft_model_trial": 21.0,
				"draft_state": 22.0},
			"itl_limited_total": map[string]any{"prefill_target": 31.0, "prefill_floor": 32.0, "prefill_held": 33.0,
				"prefill_late": 34.0, "think_held": 35.0},
			"adapter_requests_total": 6.0, "adapter_passes_total": 7.0,
			"adapter_changes_total":       8.0,
			"grammar_forced_tokens_total": 5.0, "tracked_requests": 4.0, "reaped_total": 1.0,
			"kv_lookups_total": 2.0, "kv_hit_ratio": 0.5, "kv_hits_total": tiers(0, 1, 0, 0),
			"kv_cached_tokens_total": tiers(0, 812, 0, 0),
			"kv_misses_total":        map[string]any{"cold": 0.0, "diverged": 1.0, "other": 0.0}, "kv_joins_total": 3.0,
			"kv_prefixes": 5.0, "kv_sequences": 6.0, "kv_used_bytes": 1000.0,
			"kv_block_bytes": map[string]any{"think_complete": 100.0, "think_active": 200.0, "output_critical": 300.0,
				"prefix": 400.0},

			"kv_block_evictions_total": map[string]any{"think_complete/pressure": 1.0, "think_complete/preempt": 2.0,
				"think_complete/dropped": 3.0, "think_active/pressure": 0.0,
				"think_active/preempt": 0.0, "think_active/dropped": 0.0, "output_critical/pressure": 0.0,
				"output_critical/preempt": 4.0, "output_critical/dropped": 0.0,
				"prefix/pressure": 9.0, "prefix/preempt": 0.0, "prefix/dropped": 1.0},
			"output_critical_eviction": 4.0, "output_critical_avoidable": 1.0, "kv_tier_bytes": sized(400, 1000, 0),
			"kv_tier_cap_bytes": sized(200, 2000, 0), "kv_tier_entries": sized(5, 3, 0),
			"kv_tier_evictions_total": sized(8, 4, 0), "kv_pages_in_total": outer(5, 0, 15),
			"kv_pages_out_total": outer(6, 0, 16), "kv_tier_errors_total": outer(7, 0, 17),
			"kv_priced_total": map[string]any{"host/restore": 1.0, "host/trial": 0.0, "host/compute": 0.0,
				"disk/restore": 0.0, "disk/trial": 0.0, "disk/compute": 0.0, "fabric/restore": 0.0, "fabric/trial": 0.0,
				"fabric/compute": 1.0, "host/copy": 0.0, "host/discard": 1.0},
			"kv_snapshots_total": 12.0, "kv_snapshots_dropped_total": 1.0, "kv_quarantined_total": 2.0,

			"disagg_blocks_offloaded_total": map[string]any{"valkey": 8.0},

			"disagg_blocks_ingested_total": map[string]any{"valkey": 9.0},

			"disagg_tier_offloaded_total": map[string]any{"think_complete": 6.0, "think_active": 0.0,
				"output_critical": 2.0},
			"disagg_tier_ingested_total": map[string]any{"think_complete": 8.0, "think_active": 1.0,
				"output_critical": 0.0},
			"disagg_errors_total":         map[string]any{"timeout": 1.0, "corrupt": 2.0},
			"disagg_pushes_retried_total": map[string]any{"valkey": 20.0},
			"disagg_pushed_again_total":   map[string]any{"valkey": 21.0},
			"disagg_renewed_total":        map[string]any{"valkey": 22.0},
			"disagg_queued":               map[string]any{"valkey": 3.0},
			"disagg_circuit_open":         map[string]any{"valkey": 1.0},

			"build": map[string]any{"version": "v1.2.3", "engine": "llama.cpp abc", "go": "go1.26"},
			"model": map[string]any{"name": "tiny \"q\"\\\n\uFFFD", "architecture": "llama",
				"description": "llama 1M Q8_0"},
		} {
			if !reflect.DeepEqual(got[key], want) {
				t.Errorf("%s is %v, want %v", key, got[key], want)
			}
			delete(got, key)
		}
		for key, want := range map[string]struct {
			bucket string
			sum    float64
			last   string // the largest bound
		}{
			"ttft_ms": {"128", 100, "1024"}, "inter_token_ms": {"16", 9.5, "1024"}, "decode_ms": {"32", 20, "1024"},
			"request_queue_ms": {"1", 1, "1024"}, "request_prefill_ms": {"+Inf", 2000, "1024"},
			"request_decode_ms": {"128", 80, "1024"}, "cancel_latency_ms": {"4", 3, "1024"},
			"ttot_ms": {"32", 20, "1024"}, "time_to_answer_ms": {"256", 200, "1024"}, "grammar_compile_ms": {"8", 6,
				"1024"},
			"inter_token_output_ms": {"16", 9.5, "1024"}, "predicted_ms": {"32", 18, "1024"},
			"think_ms": {"+Inf", 2000, "1024"}, "think_probes": {"16", 9, "1048576"},
			"eat_entropy_mnats": {"512", 300, "1048576"}, "eat_mean_mnats": {"256", 250, "1048576"},
			"eat_variance_unats2": {"512", 470, "1048576"}, "rpdi_index_milli": {"2048", 1500, "1048576"},
			"force_close_ms": {"128", 70, "1024"}, "kv_restore_host_ms": {"4", 3, "1024"},
			"schedule_us":     {"16", 12, "1048576"},
			"step_overlap_us": {"64", 40, "1048576"},
			"batch_think":     {"4", 3, "256"}, "batch_output": {"1", 1, "256"},
			"think_tokens": {"512", 312, "1048576"},
			"batch_size":   {"128", 100, "2048"}, "response_tokens": {"8", 5, "1048576"},
			"prompt_tokens": {"16", 11, "1048576"}, "request_ms": {"256", 200, "1024"},
			"device_wait_ms": {"8", 7, "1024"},
		} {
			h, _ := got[key].(map[string]any)
			b, _ := h["buckets"].(map[string]any)
			if h["count"] != 1.0 || h["sum"] != want.sum || b[want.bucket] != 1.0 {
				t.Errorf("%s is %v, want one in bucket %s", key, h, want.bucket)
			}
			bounds := []string{"+Inf"}
			for i := 1; fmt.Sprint(i/2) != want.last; i *= 2 {
				bounds = append(bounds, fmt.Sprint(i))
			}
			for _, bound := range bounds {
				if _, ok := b[bound]; !ok {
					t.Errorf("%s has no bucket %s", key, bound)
				}
			}
			if len(b) != len(bounds) {
				t.Errorf("%s has %d buckets, want %d", key, len(b), len(bounds))
			}
			delete(got, key)
		}
		// Three rows were probed together.
		if h, _ := got["probe_us"].(map[string]any); h["count"] != 3.0 || h["sum"] != 90.0 ||
			h["buckets"].(map[string]any)["32"] != 3.0 {
			t.Errorf("probe_us is %v", h)
		}
		for _, empty := range []string{"inter_token_think_ms", "kv_restore_disk_ms", "kv_restore_fabric_ms"} {
			if h, _ := got[empty].(map[string]any); h["count"] != 0.0 {
				t.Errorf("%s is %v", empty, h)
			}
			delete(got, empty)
		}
		if h, _ := got["grammar_mask_us"].(map[string]any); h["count"] != 1.0 || h["sum"] != 40.0 ||
			h["buckets"].(map[string]any)["64"] != 1.0 {
			t.Errorf("grammar_mask_us is %v", h)
		}
		delete(got, "probe_us")
		delete(got, "grammar_mask_us")
		for key := range got {
			t.Errorf("%s is not looked at", key)
		}
	})
}

func sized(device, host, disk float64) map[string]any {
	return map[string]any{"device": device, "host": host, "disk": disk}
}

func outer(host, disk, fabric float64) map[string]any {
	return map[string]any{"host": host, "disk": disk, "fabric": fabric}
}

func tiers(device, host, disk, fabric float64) map[string]any {
	return map[string]any{"device": device, "host": host, "disk": disk, "fabric": fabric}
}

func TestSnapshotBeforeAnything(t *testing.T) {
	m := New(Build{})
	got := snapshot(t, m)
	if v, ok := got["model"]; v != nil || !ok {
		t.Errorf("model is %v before one is loaded, want null", v)
	}
	rec := httptest.NewRecorder()
	m.PrometheusHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if body := rec.Body.String(); rec.Code != 200 || strings.Contains(body, "uma_model_info") {
		t.Errorf("status %d: %s", rec.Code, body)
	}
	if v, ok := got["last_step_age_ms"]; v != nil || !ok {
		t.Errorf("last_step_age_ms is %v before the first step, want null", v)
	}
}

// TestPlannedNames: dashboards are built on the names of the design's metrics plan. Those of its prompt cache and paged
// KV begin with kv_; its resident bytes are kv_used_bytes (device) and kv_tier_bytes (host, disk).
func TestPlannedNames(t *testing.T) {
	got := snapshot(t, filled())
	for name := range strings.FieldsSeq(
		`tokens_generated_total prompts_total batch_calls_total decode_errors_total io_errors_total sessions_active
		last_batch_size decode_ms_last decode_ms_ewma budget_target budget_used
		prefill_tokens_merged_last decode_tokens_merged_last
		skipped_prefill_due_to_latency_total active_sessions ttft_ms inter_token_ms decode_ms
		batch_size ready_sessions queued_interactive queued_background avg_budget_target
		avg_budget_used accepted_total closed_total rx_bytes_total tx_bytes_total
		kv_lookups_total kv_hits_total kv_hit_ratio kv_snapshots_total kv_tier_evictions_total kv_bytes
		kv_pages_in_total kv_pages_out_total kv_used_bytes kv_tier_bytes`) {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestSchedulerRoundTrip(t *testing.T) {
	in := Scheduler{1, 2, 3, 4, 5, 6, 7, 8, 9, [2][4]int{{10, 11, 12, 13}, {14, 15, 16, 17}}, 36, 37,
		18, 2, 19, true, 20, 21,
		CostModel{22, 23, 24, 25.5, 25.75, 26, 27, 28}, [12]uint64{29, 30, 31, 32, 33, 34, 35},
		[5]uint64{40, 41, 42, 43, 44}}
	m := New(Build{})
	m.SetScheduler(in)
	if out := m.Scheduler(); out != in {
		t.Errorf("%+v, want %+v", out, in)
	}
}

func TestBucket(t *testing.T) {
	for i := range numBuckets {
		bound := uint64(durUnit) << i
		if got := bucket(bound, uint64(durUnit)); got != i {
			t.Errorf("%v falls into bucket %d, want %d", time.Duration(bound), got, i)
		}
		if got := bucket(bound+1, uint64(durUnit)); got != i+1 {
			t.Errorf("%v falls into bucket %d, want %d", time.Duration(bound+1), got, i+1)
		}
	}
	for v, want := range map[uint64]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 1 << 20: 20, math.MaxUint64: numBuckets} {
		if got := bucket(v, 1); got != want {
			t.Errorf("%d falls into bucket %d, want %d", v, got, want)
		}
	}
	var h Durations
	h.Observe(-time.Second)
	if h.b.n[0].Load() != 1 || h.b.sum.Load() != 0 {
		t.Error("a negative duration is not counted as 0")
	}
}

func TestEWMA(t *testing.T) {
	var e ewma
	if e.value() != 0 {
		t.Errorf("empty: %v", e.value())
	}
	e.add(0)
	e.add(5)
	if e.value() != 1 {
		t.Errorf("0, 5: %v, want 1", e.value())
	}
	for range 200 {
		e.add(3)
	}
	if math.Abs(e.value()-3) > 1e-9 {
		t.Errorf("after many 3: %v", e.value())
	}
}

func TestLabels(t *testing.T) {
	var l Labels
	for i := range 100 {
		l.Declare(fmt.Sprint(i), fmt.Sprint(i))
	}
	if len(l.values) != maxLabels+1 || l.values[maxLabels] != other {
		t.Fatalf("%d values: %v", len(l.values), l.values)
	}
	l.Inc("3")
	l.Inc("99")
	l.Inc(other)
	if l.Value("3") != 1 || l.Value("4") != 0 || l.Value(other) != 2 {
		t.Errorf("3: %d, 4: %d, other: %d", l.Value("3"), l.Value("4"), l.Value(other))
	}
}

func TestPrometheus(t *testing.T) {
	m := filled()
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "llamacpp:") { // llama-server's names
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	rec := httptest.NewRecorder()
	m.PrometheusHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body := rec.Body.String()
	for line := range strings.SplitSeq(strings.TrimSpace(`
# HELP uma_tokens_generated_total Tokens sampled.
# TYPE uma_time_to_first_token_seconds histogram
uma_time_to_first_token_seconds_bucket{le="0.064"} 0
uma_time_to_first_token_seconds_bucket{le="0.128"} 1
uma_time_to_first_token_seconds_bucket{le="131.072"} 1
uma_time_to_first_token_seconds_bucket{le="+Inf"} 1
uma_time_to_first_token_seconds_sum 0.1
uma_time_to_first_token_seconds_count 1
uma_batch_size_tokens_bucket{le="64"} 0
uma_batch_size_tokens_bucket{le="128"} 1
uma_batch_size_tokens_sum 100
uma_last_decode_seconds 0.02
uma_batch_tokens_total{kind="decode"} 4
uma_batch_tokens_total{kind="prefill"} 96
uma_requests_queued{class="background"} 2
uma_requests_finished_total{reason="other"} 1
uma_requests_rejected_total{reason="queue_full"} 1
uma_requests_refused_total{reason="displaced"} 1
uma_http_requests_refused_total{reason="uid"} 1
uma_connections_accepted_by_listener_total{listener="127.0.0.1:8737"} 5
uma_sessions_active 3
uma_kv_cells{use="live"} 60
uma_inter_token_latency_seconds_count{phase="output"} 1
uma_inter_token_latency_seconds_count{phase="think"} 0
uma_requests{class="background",phase="think"} 7
uma_guard_state{state="trim"} 1
uma_cost_model_seconds{term="step"} 0.0015
uma_probe_seconds_bucket{le="3.2e-05"} 3
uma_kv_hits_total{tier="host"} 1
uma_kv_restore_seconds_count{tier="host"} 1
uma_slo_violations_tbt_total 2
uma_compute_thread_changes_total{reason="taken"} 1
uma_cpus_taken 0.75
uma_cpu_stalled_seconds_total 3
uma_cpu_throttled_seconds_total 0
uma_energy_joules_total 12.5
meridian_budget_force_triggered_total 2
meridian_budget_force_reason_total{reason="hard_cap"} 1
meridian_queue_depth{queue="think"} 11
meridian_scheduler_batch_size_count{phase="output"} 1
meridian_schedule_batch_duration_seconds_count 1
meridian_phase_router_tracked_requests 4
meridian_think_tokens_per_request_sum 312
meridian_block_manager_used_bytes 1000
meridian_block_manager_evictions_total{reason="preempt",tier="output_critical"} 4
meridian_output_critical_eviction_total 4
meridian_vocab_fallback_total 1
meridian_disagg_blocks_offloaded_total{fabric="valkey"} 8
meridian_disagg_blocks_ingested_total{fabric="valkey"} 9
meridian_disagg_errors_total{reason="corrupt"} 2
uma_build_info{engine="llama.cpp abc",go="go1.26",version="v1.2.3"} 1
uma_model_info{architecture="llama",description="llama 1M Q8_0",name="tiny \"q\"\\\n\ufffd"} 1`), "\n") {
		line = strings.ReplaceAll(line, `\ufffd`, "\uFFFD")
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	// Units of the base system, one prefix.
	family := regexp.MustCompile(`^uma_[a-z_]+_(total|seconds|bytes|tokens|ratio|info|cells|nats|nats2|probes|second)$`)
	unitless := []string{"uma_requests_ready", "uma_requests_compiling", "uma_requests_paused", "uma_requests_queued",
		"uma_requests_running", "uma_sessions_active", "uma_requests", "uma_requests_parked",
		"uma_requests_ttft_at_risk", "uma_itl_target_infeasible", "uma_guard_state", "uma_kv_prefixes",
		"uma_kv_sequences", "uma_kv_tier_entries", "uma_disagg_queued", "uma_disagg_circuit_open", "uma_live_views",
		"uma_kv_events_subscribers", "uma_kv_events_blocks",
		"uma_compute_threads", "uma_compute_threads_most", "uma_cpus_taken", "uma_joules_per_token", "uma_on_battery"}
	for _, d := range m.decls {
		if d.prom == "" {
			if d.both == nil {
				t.Errorf("%s has no Prometheus name", d.json)
			}
			continue
		}
		if strings.HasPrefix(d.prom, "meridian_") { // meridian-core's names
			continue
		}
		if !family.MatchString(d.prom) && !slices.Contains(unitless, d.prom) {
			t.Errorf("%s: no unit at the end of its name", d.prom)
		}
		if (d.kind == counter) != strings.HasSuffix(d.prom, "_total") {
			t.Errorf("%s is a %s", d.prom, d.kind)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

// TestDocument holds docs/metrics.md against the declarations, both ways.
func TestDocument(t *testing.T) {
	path := filepath.Join("..", "docs", "metrics.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- metrics: written by go test ./metrics -rewrite -->\n", "<!-- end of metrics -->\n"
	from, to := bytes.Index(doc, []byte(begin)), bytes.Index(doc, []byte(end))
	if from < 0 || to < from {
		t.Fatalf("%s has no table between %q and %q", path, begin, end)
	}
	var table strings.Builder
	table.WriteString("| JSON | Prometheus | type | unit | labels | meaning | measured |\n" +
		"|---|---|---|---|---|---|---|\n")
	for _, d := range filled().decls {
		label := d.label
		if label != "" {
			label = "`" + label + "`"
		}
		unit := d.unit
		switch {
		case d.dur != nil || d.both != nil || d.scale == 1e-3 && d.size == nil:
			unit = "ms; s"
		case d.micros != nil:
			unit = "µs; s"
		case d.info != nil:
			unit = "text; 1"
		}
		prom := "`" + d.prom + "`"
		if d.prom == "" {
			prom = "–"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s | %s |\n", d.json, prom, d.kind, unit, label, d.help,
			d.where)
	}
	from += len(begin)
	if string(doc[from:to]) == table.String() {
		return
	}
	if !*rewrite {
		t.Fatalf("%s does not show what is declared; run go test ./metrics -rewrite\n%s", path, table.String())
	}
	if err := os.WriteFile(path, slices.Concat(doc[:from], []byte(table.String()), doc[to:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestConcurrent hammers everything while snapshots are taken; the race detector and the JSON decoder judge.
func TestConcurrent(t *testing.T) {
	m := filled()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if g == 0 {
					m.Step(Step{Took: time.Duration(i) * time.Microsecond, Tokens: i % 700, Prefill: 3, Decode: 2,
						Budget: i})
					m.SetScheduler(Scheduler{LiveCells: i, FreeCells: 1, BudgetTarget: i})
					m.SetKV(KV{Joins: uint64(i)})
					m.Lookup(Disk, i)
					continue
				}
				m.TokensGenerated.Inc()
				m.TTFT.Observe(time.Duration(i))
				m.Finished("length")
				m.SetModel(Model{Name: fmt.Sprint(i)})
				m.BindLoadProgress(func() float64 { return math.NaN() })
				m.BindIO(IO{})
				m.BindStore(func() Store { return Store{Snapshots: uint64(i)} })
				m.BindFabric(fmt.Sprint("f", i%3), []string{"timeout"}, func() FabricStats { return FabricStats{} })
			}
		})
	}
	scrapes := 60
	if testing.Short() {
		scrapes = 20
	}
	for range scrapes {
		got := snapshot(t, m)
		h := got["ttft_ms"].(map[string]any)
		sum := 0.0
		for _, n := range h["buckets"].(map[string]any) {
			sum += n.(float64)
		}
		if sum != h["count"] {
			t.Fatalf("buckets hold %v, count is %v", sum, h["count"])
		}
		m.PrometheusHandler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
	}
	close(stop)
	wg.Wait()
}

func TestUpdateAllocs(t *testing.T) {
	m := filled()
	s := Scheduler{LiveCells: 1}
	if n := testing.AllocsPerRun(1000, func() {
		m.TokensGenerated.Inc()
		m.TTFT.Observe(time.Millisecond)
		m.InterToken.Observe(true, time.Millisecond)
		m.TTOT.Observe(time.Millisecond)
		m.Step(Step{Took: time.Millisecond, Tokens: 4, Decode: 4, Think: 2, Predicted: 1, Scheduled: 1, Probed: 2,
			ProbeTime: 2})
		m.SetScheduler(s)
		m.SetKV(KV{Joins: 1})
		m.Lookup(Host, 5)
		m.Restored(Host, 5)
		m.ThoughtDone(Thought{Tokens: 5, Ended: "user"})
		m.Forced("user")
		m.ForceClosed(5)
		_ = m.Scheduler()
		m.Finished("stop")
		m.RequestDone(1, 2, time.Second, time.Second)
	}); n != 0 {
		t.Errorf("an update allocates %v times", n)
	}
	buf := make([]byte, 0, MaxJSON)
	if n := testing.AllocsPerRun(100, func() { buf = m.AppendJSON(buf[:0]) }); n > 2 {
		t.Errorf("a snapshot allocates %v times", n)
	}
}

// TestSizeBound: the snapshot stays bounded with every number at its longest and every text hostile.
func TestSizeBound(t *testing.T) {
	long := strings.Repeat("\x01", 1<<16)
	m := New(Build{Version: long, Engine: long, Go: long})
	m.SetModel(Model{long, long, long})
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("a_rather_long_reason_%d", i))
	}
	m.FinishReasons.Declare(many...)
	m.RejectReasons.Declare(many...)
	m.CacheMisses.Declare(many...)
	m.BindFabric(long, many[:16], func() FabricStats { return FabricStats{} })
	for _, l := range []*Labels{&m.FinishReasons, &m.RejectReasons, &m.CacheMisses} {
		for i := range l.n {
			l.n[i].v.Store(math.MaxUint64)
		}
	}
	for _, d := range m.decls {
		switch {
		case d.dur != nil:
			fill(&d.dur.b)
		case d.size != nil:
			fill(&d.size.b)
		case d.micros != nil:
			fill(&d.micros.b)
		case d.vec != nil:
			d.vec.get = func(int) float64 { return -math.MaxFloat64 }
		case d.value != nil:
			d.value = func() float64 { return -math.MaxFloat64 }
		}
	}
	if n := len(m.AppendJSON(nil)); n > MaxJSON {
		t.Errorf("%d bytes, the bound is %d", n, MaxJSON)
	}
	snapshot(t, m)
}

func fill(b *buckets) {
	for i := range b.n {
		b.n[i].Store(math.MaxUint64)
	}
	b.sum.Store(math.MaxUint64)
}

func BenchmarkStep(b *testing.B) {
	m := filled()
	b.ReportAllocs()
	for b.Loop() {
		m.Step(Step{Took: time.Millisecond, Tokens: 4})
	}
}

func BenchmarkToken(b *testing.B) {
	m := filled()
	b.ReportAllocs()
	for b.Loop() {
		m.TokensGenerated.Inc()
		m.InterToken.Observe(false, 9*time.Millisecond)
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	m := filled()
	buf := make([]byte, 0, MaxJSON)
	b.ReportAllocs()
	for b.Loop() {
		buf = m.AppendJSON(buf[:0])
	}
	b.SetBytes(int64(len(buf)))
	fmt.Fprint(io.Discard, buf)
}

// TestNamesOfLlamaServer: its dashboards find its names, with the values that ours have.
func TestNamesOfLlamaServer(t *testing.T) {
	m := New(Build{})
	m.TokensGenerated.Add(12)
	m.prefillTokens.Add(34)
	m.Lookup(Tier(0), 56)
	m.PrefillTime.Observe(2 * time.Second)
	m.RequestDone(30, 10, 3*time.Second, 4*time.Second)
	m.RequestDone(20, 2, 0, time.Second)
	m.Guessed(false, 0, 4, 3)
	m.Guessed(true, 2, 4, 0)
	m.SetScheduler(Scheduler{Prefilling: 1, Decoding: 2, QueuedInteractive: 3, QueuedBackground: 4})
	rec := httptest.NewRecorder()
	m.PrometheusHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{"llamacpp:tokens_predicted_total 12", "llamacpp:prompt_tokens_total 34",
		"llamacpp:prompt_tokens_cached_total 56", "llamacpp:prompt_seconds_total 2",
		"llamacpp:prompt_tokens_seconds 17", "llamacpp:predicted_tokens_seconds 4", "llamacpp:requests_processing 3",
		"llamacpp:n_tokens_max 40", "llamacpp:spec_decode_num_drafts_total 2",
		"llamacpp:spec_decode_num_draft_tokens_total 8", "llamacpp:requests_deferred 7",
		"llamacpp:n_decode_total 0", "llamacpp:n_busy_slots_per_decode 0"} {
		if !strings.Contains(rec.Body.String(), "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(string(m.AppendJSON(nil)), "llamacpp") {
		t.Error("the JSON has names of llama-server")
	}
	if m.Began() != fmt.Sprint(m.start.Unix()) {
		t.Errorf("%s", m.Began())
	}
}
