package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// seen has every series of the metrics that a test of this package has seen, and whether it was ever other than 0.
var seen = struct {
	sync.Mutex
	series map[[2]string]bool
}{series: map[[2]string]bool{}}

// look reads the series of m into seen. During a test it leaves those out that metrics reads from the tiers at a
// scrape: it keeps them for a while, and the test that scrapes next would get old ones.
func look(m *metrics.Metrics, during bool) {
	seen.Lock()
	defer seen.Unlock()
	m.Visit(func(s metrics.Series) {
		if during && (strings.HasPrefix(s.Key, "kv_") || strings.HasPrefix(s.Key, "disagg_")) {
			return
		}
		id := [2]string{s.Key, s.Label}
		if slices.Contains([]string{"memory", "mooncake", "nixl-synth", "valkey"}, s.Label) {
			id[1] = "" // one series, whose label names the fabric of a daemon
		}
		if !seen.series[id] {
			seen.series[id] = s.Value() > 0
		}
	})
}

// elsewhere are the series that these daemons do not drive, by key, label or key/label, with the test that does or the
// reason why none can.
var elsewhere = map[string]string{
	"reaped_total":                   "a defect when above 0: metrics.TestSnapshot",
	"output_critical_avoidable":      "a defect when above 0: metrics.TestSnapshot",
	"E_INTERNAL":                     "a defect when above 0: metrics.TestSnapshot",
	"kv_tier_errors_total/host":      "a defect when above 0: metrics.TestSnapshot",
	"probe_fallbacks_total":          "entropy that is not finite, three times: meridian.TestProbeFailures",
	"probe_dropped_total":            "entropy that is not finite: meridian.TestProbeFailures",
	"overthinking":                   "meridian.TestRPDICloses",
	"soft_cap":                       "meridian.TestSoftCap",
	"force_reason_total/stalled":     "meridian.TestEATCloses",
	"think_ended_total/stalled":      "meridian.TestEATCloses",
	"telemetry_metric_exports_total": "daemon.TestTelemetry, with the tag otlp",
	"telemetry_spans_total":          "daemon.TestTelemetry, with the tag otlp",
	"kv_events_removed_total":        "of an evicted prefix: kvevents.TestSlowSubscriber",
	"kv_events_dropped_total":        "of a subscriber that does not read: kvevents.TestSlowSubscriber",
	"kv_events_subscribers":          "of a subscriber: kvevents.TestServer",
	"weights_bytes":                  "of a model's file: smoke",
	"load_progress":                  "of a model's file: smoke",
	"repacked_bytes":                 "of a model's file: daemon.TestRepackedCopyIsInTheLedger",
	"rpdi_index_milli":               "a script's rows have no entropy: meridian.TestWatchedSignals",
	"think_signals_total/stalled":    "meridian.TestEATCloses",
	"telemetry_dropped_total":        "telemetry.TestSilentCollector",
	"device_graphs_total":            "of a device besides the processor: daemon.TestDeviceGraphs",
	"device_logits_bytes_total":      "of a device besides the processor: daemon.TestDeviceProbes",
	"device_probes_total":            "of a device besides the processor: daemon.TestDeviceProbes",
	"device_held_ms_total":           "of a front's engine processes: front.TestModelsComputeInTurn",
	"device_lease_faults_total":      "of a front's engine processes: lease.TestHolderThatDoesNotReturn",
	"device_leases_contended_total":  "of a front's engine processes: front.TestModelsComputeInTurn",
	"device_leases_total":            "of a front's engine processes: front.TestModelsComputeInTurn",
	"device_wait_ms":                 "of a front's engine processes: front.TestModelsComputeInTurn",
	"device_yields_total": "of a front's engine processes: " +
		"front.TestPromptsOfOneModelMakeWayForAnswersOfAnother",
	"accepted_tokens_total/think/head": "of a head that guesses thoughts: daemon.TestHeadChangesNothing",
	"graphs_reused_total":              "of a real engine: llama.TestGraphsAreReused",
	"image_encode_ms_total":            "of a real projector, which takes milliseconds: metrics.TestSnapshot",
	"barrier_sleeps_total":             "of a real engine: metrics.TestSnapshot",
	"compute_thread_changes_total":     "of other processes on the machine: metrics.TestSnapshot",
	"compute_wait_share":               "of other processes on the machine: metrics.TestSnapshot",
	"cpu_stalled_ms_total":             "of other processes on the machine: metrics.TestSnapshot",
	"cpu_throttled_ms_total":           "of a control group with a quota: metrics.TestSnapshot",
	"involuntary_switches_total":       "of other processes on the machine: metrics.TestSnapshot",
	"cpus_taken":                       "of other processes on the machine: metrics.TestSnapshot",
	"disagg_errors_total/cancelled":    "fabric.TestGuardCounts",
	"speculation_decisions_total":      "by reason: sched.TestGuessesKeepTheTarget, sched.TestWrongGuessesCostNothing",
	"step_bytes_total/weights":         "of a model: daemon.TestTraffic",
	"think_held_total":                 "of the machine's speed: sched.TestThinkingUnderITLTarget",
	"itl_limited_total":                "by reason: account.TestLimitReasonsAgree; in all: daemon.TestSeriesOfTargets",
	"io_errors_total":                  "ipc.TestVanish",
	"closed_by_cause/answered":         "ipc.TestNewlineMetricsClose",
	"closed_by_cause/idle":             "ipc.TestIdleTimeout",
	"closed_by_cause/io_error":         "ipc.TestVanish",
	"closed_by_cause/not_reading":      "ipc.TestRepliesUnread",
	"closed_by_cause/displaced":        "ipc.TestIdleConnectionsMakeWayFirst",
	"closed_by_cause/handed_back":      "ipc.TestPassedConnectionIsServedByTheOtherLoop",
	"closed_by_cause/engine_ended":     "ipc.TestOrphans",
	"refused_by_reason/descriptors":    "ipc.TestRefusalWithoutDescriptors",
	"refused_by_reason/sessions":       "ipc.TestMaxSessions",
	"E_PROTO_DUPLICATE_ID":             "ipc.TestDuplicateID",
	"E_PROTO_FRAME_TOO_LARGE":          "ipc.TestOversizeFrame",
	"E_PROTO_INVALID_JSON":             "ipc.TestBadMessageLeavesTheConnection",
	"E_LIMIT_PROMPT_TOO_LARGE":         "wire.TestParsePromptLimit",
	"E_LIMIT_SESSIONS":                 "daemon.TestDisplacedCompletionIsToldWhy",
	"E_MODEL_LOADING":                  "daemon.TestHealthWhileLoading",
	"E_MODEL_NOT_FOUND":                "front.TestNamesFindTheirProcesses",
	"E_MODEL_TOO_LARGE":                "front.TestModelLargerThanMemory",
	"E_ENGINE_CRASHED":                 "front.TestCrashIsContained",
	"disagg_queued":                    "fabric.TestOffloaderPullsPassPushes",
	"disagg_errors_total/too_large":    "fabric.TestGuardCounts",
	"disagg_errors_total/bad_key":      "fabric.TestGuardCounts",
	"disagg_errors_total/queue_full":   "fabric.TestOffloaderNeverWaits",
	"disagg_pushes_retried_total":      "fabric.TestPushesArrive",
	"kv_priced_total":                  "daemon.TestPricedSeries",
	"kv_read_ahead_total":              "daemon.TestQueuedRequestsReadAhead",
	"disagg_errors_total/corrupt":      "fabric.TestGuardCounts",
	"kv_block_bytes/think_active":      "blocks.TestStates",
	"kv_tier_evictions_total/disk":     "snapshot.TestDiskCap",
	"disagg_tier_offloaded_total":      "of a preempted request's cells: metrics.TestSnapshot",
	"disagg_tier_ingested_total":       "of a preempted request's cells: metrics.TestSnapshot",
	"kv_block_evictions_total":         "blocks.TestEvictionsAreCounted",
	"requests_refused_total/draining":  "sched.TestScripts: a request that crosses the drain",
}

// spelled are the syntaxes of tool calls, each with a model's texts in package model/toolcall.
func spelled(key, label string) bool {
	if key == "tool_calls_malformed_total" {
		return slices.ContainsFunc(toolcall.Reasons, func(r toolcall.Reason) bool { return string(r) == label })
	}
	return key == "tool_calls_total"
}

// TestMain fails a complete run in which a declared series stayed 0: a dashboard would show a number that means
// nothing.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && wholeRun() {
		for _, s := range slices.SortedFunc(maps.Keys(seen.series), func(a, b [2]string) int {
			return strings.Compare(a[0]+a[1], b[0]+b[1])
		}) {
			key, label := s[0], s[1]
			_, known := elsewhere[key]
			for _, k := range []string{label, key + "/" + label} {
				_, ok := elsewhere[k]
				known = known || ok && label != ""
			}
			if !seen.series[s] && !known && label != "other" && !spelled(key, label) {
				fmt.Printf("metrics: no test drives the series %s %s away from 0: let one do it, or name in elsewhere "+
					"why none can\n", key, label)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// wholeRun reports whether every test of the package has run.
func wholeRun() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz", "test.bench"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return goruntime.GOOS == "linux" && !testing.Short()
}

// reads are the values of the series that a daemon shows now.
func (r *running) reads(key, label string) (got float64) {
	r.metrics.Visit(func(s metrics.Series) {
		if s.Key == key && s.Label == label {
			got = s.Value()
		}
	})
	return got
}

// TestSeriesOfTargets: what the metrics say of ITL and TTFT targets that cannot be met, while answers, thoughts and a
// prompt share the steps.
func TestSeriesOfTargets(t *testing.T) {
	thinks := fake.Script{After: "think\n", Emit: "<think>" + strings.Repeat("so ", 400) + "</think>yes"}
	brief := fake.Script{After: "brief\n", Emit: "<think>so</think>yes"}
	r := serve(t, fake.Config{Scripts: []fake.Script{thinks, brief}, Cost: fake.Cost{BaseMs: 0.2, PrefillMs: 0.2,
		DecodeMs: 1},
		Advance: spin}, "--policy", "meridian", "--itl-target-ms", "1", "-c", "16384")
	c := r.dial()
	first := make(chan struct{})
	var done, lasting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func(wg *sync.WaitGroup, ctx context.Context, i int, prompt string, edit func(*wire.Request)) {
		wg.Go(func() {
			req := wire.DefaultRequest()
			req.ID, req.Prompt, req.MaxTokens, req.Sampling.Temperature = fmt.Sprint("r", i), prompt, 60, 0
			edit(&req)
			st, err := c.Stream(ctx, &req)
			if err != nil {
				t.Error(err)
				return
			}
			for {
				ev, err := st.Next()
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if i == 0 && ev.Kind == wire.EventToken && first != nil {
					close(first)
					first = nil
				}
				if ev.Kind == wire.EventEOS {
					return
				}
			}
		})
	}
	begun := first
	run(&lasting, ctx, 0, "an answer", func(q *wire.Request) { q.MaxTokens = 8000 }) // until the others have ended
	<-begun
	for i, other := range []struct {
		prompt string
		edit   func(*wire.Request)
	}{
		{"think\n", func(*wire.Request) {}},
		{"think\n", func(q *wire.Request) { q.Priority = wire.PriorityBackground }},
		{"brief\n", func(q *wire.Request) { q.TargetTTOT = time.Microsecond }},
		{strings.Repeat("a long prompt ", 100), func(q *wire.Request) { q.TargetTTFT = time.Millisecond }},
		{strings.Repeat("in the background ", 100), func(q *wire.Request) { q.Priority = wire.PriorityBackground }},
	} {
		run(&done, t.Context(), 1+i, other.prompt, other.edit)
	}
	done.Wait()
	cancel()
	lasting.Wait()
	for _, key := range []string{"slo_violations_ttft_total", "slo_violations_tbt_total",
		"slo_violations_ttot_total"} {
		if r.reads(key, "") == 0 {
			t.Errorf("%s is 0", key)
		}
	}
	if r.counter("itl_limited_total.prefill_held")+r.counter("itl_limited_total.prefill_floor") == 0 {
		t.Error("no prompt was limited")
	}
	seen.Lock()
	defer seen.Unlock()
	for _, s := range [][2]string{{"guard", "hold"}, {"itl_target_infeasible", ""}, {"ttft_at_risk", ""},
		{"queue_depth_think", ""}, {"requests_by_phase", "background/think"},
		{"requests_by_phase", "background/prefill"}} {
		if !seen.series[s] {
			t.Errorf("%v stayed 0", s)
		}
	}
}

// TestStrictTargets: a strict request that cannot meet its target is refused at once, with what is predicted; one that
// can is answered, in both protocols.
func TestStrictTargets(t *testing.T) {
	r := serve(t, fake.Config{Cost: fake.Cost{BaseMs: 1, PrefillMs: 1}, Advance: spin}, "--policy", "meridian", "-c",
		"16384", "--no-prefix-cache")
	c := r.dial()
	text := strings.Repeat("words ", 60)
	for range 10 { // the cost model learns what steps take
		if a := r.ask(c, func(q *wire.Request) { q.Messages[0].Content, q.MaxTokens = text, 4 }); a.err != nil {
			t.Fatal(a.err)
		}
	}
	for _, edit := range []func(*wire.Request){
		func(q *wire.Request) { q.TargetTTFT = 10 * time.Millisecond },
		func(q *wire.Request) { q.TargetITL = 100 * time.Microsecond },
		func(q *wire.Request) { q.TargetTTOT = 100 * time.Microsecond },
	} {
		a := r.ask(c, func(q *wire.Request) { q.Messages[0].Content, q.Strict = text, true; edit(q) })
		var e *wireclient.ServerError
		if !errors.As(a.err, &e) || e.Code != wire.QueueLimit || e.Predicted <= 0 || e.RetryAfter <= 0 ||
			!strings.Contains(e.Message, "are predicted; slo.strict asks for a refusal then") {
			t.Errorf("%+v", a)
		}
		if a := r.ask(c, func(q *wire.Request) {
			q.Messages[0].Content, q.Strict, q.MaxTokens = text, true, 4
			q.TargetTTFT, q.TargetITL, q.TargetTTOT = time.Minute, time.Minute, time.Minute
		}); a.err != nil {
			t.Error(a.err)
		}
		if a := r.ask(c, func(q *wire.Request) {
			q.Messages[0].Content, q.MaxTokens = text,
				4
			edit(q)
		}); a.err != nil {
			t.Errorf("without strict: %v", a.err)
		}
	}
	for _, reason := range []string{"ttft", "itl", "ttot"} {
		if r.reads("requests_refused_total", reason) != 1 {
			t.Errorf("%s: %v refused", reason, r.reads("requests_refused_total", reason))
		}
	}
	resp, err := r.web().Post("http://uma/v1/chat/completions", "application/json", strings.NewReader(
		`{"messages":[{"role":"user","content":"`+text+`"}],"slo":{"target_ttft_ms":5,"strict":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body),
		`"predicted_ms":`) {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// spin lets a step of the fake engine take its time.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}
