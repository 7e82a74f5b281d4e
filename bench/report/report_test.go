package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/bench/loadgen"
	"github.com/uma-serve/uma-serve/bench/workload"
)

// TestPercentile has the vectors of the reference harness (NumPy's default).
func TestPercentile(t *testing.T) {
	var hundred []float64
	for i := 100; i >= 1; i-- {
		hundred = append(hundred, float64(i))
	}
	for _, c := range []struct {
		xs      []float64
		p, want float64
	}{
		{[]float64{1, 2, 3, 4}, 50, 2.5}, {[]float64{4, 3, 2, 1}, 95, 3.85}, {[]float64{1, 2, 3, 4}, 99, 3.97},
		{[]float64{10, 20}, 95, 19.5},
		{hundred, 95, 95.05}, {[]float64{7}, 99, 7}, {[]float64{7, 9}, 0, 7}, {[]float64{7, 9}, 100, 9},
	} {
		if got := Percentile(c.xs, c.p); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("percentile %v of %v is %v, want %v", c.p, c.xs, got, c.want)
		}
	}
	if !math.IsNaN(Percentile(nil, 50)) {
		t.Error("a percentile of nothing must be NaN")
	}
}

func TestPercentileIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "xs")
		last := math.Inf(-1)
		for p := 0.0; p <= 100; p += 2.5 {
			v := Percentile(xs, p)
			if v < last-1e-6 {
				t.Fatalf("percentile %v of %v is %v, below %v", p, xs, v, last)
			}
			last = v
		}
	})
}

// TestWelch: variances of 1 and 4 over three values each have 2.9412 degrees of freedom, t(0.975) = 3.2187586 (by
// numerical integration of the density), and so 4 ± 4.1554.
func TestWelch(t *testing.T) {
	low, high, ok := welch([]float64{1, 2, 3}, []float64{4, 6, 8})
	if !ok || math.Abs(low-(4-4.15540)) > 1e-4 || math.Abs(high-(4+4.15540)) > 1e-4 {
		t.Errorf("%v … %v", low, high)
	}
	if low, high, ok := welch([]float64{1, 1}, []float64{3, 3}); !ok || low != 2 || high != 2 {
		t.Errorf("without scatter the interval is the difference: %v … %v", low, high)
	}
	if _, _, ok := welch([]float64{1}, []float64{3, 3}); ok {
		t.Error("one value has no interval")
	}
	ci := interval([]float64{1, 2, 3})
	if math.Abs(float64(ci.High-ci.Mean)-4.302653*1/math.Sqrt(3)) > 1e-4 { // t(0.975, 2) = 4.302653
		t.Errorf("interval of 1, 2, 3: %+v", ci)
	}
}

// measured is a report of made-up records: nothing but arithmetic.
func measured(t testing.TB, name, side string, scale float64, repeats int) *Report {
	t.Helper()
	reqs := []workload.Request{
		{ID: "a", Kind: workload.Chat, Measured: true, After: -1, Output: 4, X: 256, Group: "first"},
		{ID: "b", Kind: workload.Reasoning, Measured: true, After: -1, Think: 3, Output: 3, Answer: "1", X: 512,
			Group: "later"},
		{ID: "c", Kind: workload.Chat, After: -1, Output: 1, Group: "prompt"},
		{ID: "d", Kind: workload.Chat, Measured: true, After: -1, Output: 1},
		{ID: "e", Kind: workload.Chat, Measured: true, After: -1, Output: 1, Via: "http", Group: "http"},
	}
	var runs []Run
	for k := range repeats {
		f := func(ms float64) int64 { return int64(ms * 1e6 * scale * (1 + .01*float64(k))) }
		runs = append(runs, Run{Requests: reqs, Evictions: 0, ServerCPU: time.Second, Mark: time.Second,
			Result: &loadgen.Result{WallNs: 3e9, CPUNs: 1e7, Records: []*loadgen.Record{
				{Index: 0, Sent: 0, Output: []int64{f(10), f(20), f(30), f(41)}, Visible: f(10), End: f(41),
					Reason:       "stop",
					PromptTokens: 10, CompletionTokens: 4},
				{Index: 1, Sent: 0, Think: []int64{f(20), f(22), f(24)}, Output: []int64{f(30), f(40), f(50)},
					Visible: f(30), End: f(50), Reason: "stop", ThinkEnded: "hard_cap",
					PromptTokens: 10, CachedTokens: 5, CompletionTokens: 6, ThinkTokens: 3, Graded: true, Right: true},
				{Index: 2, Sent: 0, Output: []int64{f(900)}, End: f(900), PromptTokens: 100},
				{Index: 3, Err: "E_LIMIT_QUEUE: full"},
				{Index: 4, Skipped: "no HTTP"},
			}}})
	}
	r := &Report{Provenance: Measured, Mode: "real", ConfigName: name, Side: side, Workload: "storm", Target: "uma",
		Environment: Environment{Flags: map[string]string{"workload": "storm"}}}
	r.Measure(runs)
	return r
}

func TestMeasure(t *testing.T) {
	r := measured(t, "one", "uma", 1, 1)
	for key, want := range map[string]float64{"ttft_p50_ms": 15, "ttft_p95_ms": 19.5, "ttot_p50_ms": 6,
		"output_itl_p50_ms": 10, "output_itl_max_ms": 11,
		"think_tokens_avg": 3, "output_tokens_avg": 3.5, "budget_forced_pct": 100, "output_critical_eviction_events": 0,
		"accuracy_pct":      100,
		"prompt_cached_pct": 25, "client_cpu_pct_of_server": 1, "client_cpu_pct_of_core": 1e7 / 3e9 * 100,
		"output_tokens_per_s": 200} {
		if got := r.Value(key); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	for _, c := range []struct {
		streams int
		rate    Num
		want    bool
	}{{0, 8, false}, {4, 8, true}, {4, Num(math.NaN()), true}, {0, Num(math.NaN()), true}} {
		r := Report{Streams: c.streams, ArrivalRate: c.rate}
		if got := r.without(map[string]Num{"output_tokens_per_s": 200})["output_tokens_per_s"]; got.known() != c.want {
			t.Errorf("%d streams, %v arrivals per second: %v tokens/s", c.streams, c.rate, got)
		}
	}
	if r.NRequests != 2 || r.NChat != 1 || r.NReasoning != 1 || r.NErrors != 1 || r.NSkipped != 1 ||
		r.ForcedByReason["hard_cap"] != 1 || r.Accuracy.Right != 1 || r.MarkS != 1 {
		t.Errorf("%+v", r)
	}
	var names []string
	for _, g := range r.Groups {
		names = append(names, fmt.Sprint(g.Name, " ", g.Requests))
	}
	if got := strings.Join(names, ", "); got != "first 1, later 1, prompt 1, chat 0, http 0" {
		t.Errorf("groups: %s", got)
	}
}

// TestMark: where a workload disturbs, its numbers are those of the disturbance, a stall that began before it and one
// that never ended included; what was before is a separate group.
func TestMark(t *testing.T) {
	const s = int64(time.Second)
	r := &Report{Provenance: Measured, Mode: "real", ConfigName: "x"}
	r.Measure([]Run{{Mark: 2 * time.Second,
		Requests: []workload.Request{{Kind: workload.Chat, Group: "chat", Measured: true, After: -1}},
		Result: &loadgen.Result{WallNs: 10 * s,
			Records: []*loadgen.Record{{Sent: 0, Output: []int64{s / 2, s, 3 * s / 2, 3 * s, 4 * s}, Visible: s / 2,
				End: 10 * s, Cut: true}}}}})
	if got, before := r.Value("output_itl_max_ms"), r.Groups[1]; got != 6000 || r.Value("output_itl_p50_ms") != 1500 ||
		r.Value("ttft_p50_ms") != 500 || before.Name != "chat, before" || before.ITLp95 != 500 {
		t.Errorf("max %v, p50 %v, TTFT %v; before %+v", got, r.Value("output_itl_p50_ms"), r.Value("ttft_p50_ms"),
			before)
	}
}

// TestStorm: the table relates prompts to the first side and newcomers to those before the storm.
func TestStorm(t *testing.T) {
	const s = int64(time.Second)
	side := func(name string, gap, fifth int64, prefill float64) *Report {
		r := &Report{Provenance: Measured, Mode: "real", ConfigName: name, Side: name, Workload: "storm"}
		chat := &loadgen.Record{Sent: 0, End: 10 * s, Cut: true}
		for at := s; at < 5*s; at += s / 10 {
			chat.Output = append(chat.Output, at)
		}
		for at := 5*s - s/10 + gap; at < 10*s; at += gap {
			chat.Output = append(chat.Output, at)
		}
		r.Measure([]Run{{Mark: 5 * time.Second, Prefill: prefill,
			Requests: []workload.Request{{Kind: workload.Chat, Group: "chat", Measured: true, After: -1},
				{Kind: workload.Chat, Group: "newcomer-alone", After: -1},
				{Kind: workload.Chat, Group: "newcomer-storm", After: -1},
				{Kind: workload.Chat, Group: "prompt", After: -1}},
			Result: &loadgen.Result{WallNs: 10 * s,
				Records: []*loadgen.Record{chat, {Index: 1, Sent: s, End: s + s/5, Output: []int64{s + s/5}},
					{Index: 2, Sent: 6 * s, End: 6*s + fifth, Output: []int64{6*s + fifth}, Cut: fifth > s},
					{Index: 3, Sent: 5 * s, End: 9 * s, Output: []int64{9 * s}}}}}})
		return r
	}
	d, err := New([]*Report{side("stock", 8*s, 4*s, 200), side("meridian@50", s/2, s/4, 100)}, "meridian@50")
	if err != nil {
		t.Fatal(err)
	}
	got := d.StormTable()
	for _, want := range []string{"| stock | – | 100.0 / 100.0 / 100.0 | 5100.0 / 5100.0 / 5100.0 / 5100.0 | 200 | " +
		"1.00 | 200 → 4000 (20.00×) |\n",
		"| meridian | 50 | 100.0 / 100.0 / 100.0 | 500.0 / 500.0 / 500.0 / 500.0 | 100 | 0.500 | 200 → 250 (1.25×) " +
			"|\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %s in\n%s", want, got)
		}
	}
	if md := d.Markdown(); !strings.Contains(md, got) {
		t.Error("the Markdown has no storm")
	}
	if line := d.Reports["stock"].Line(); !strings.Contains(line, "in the storm p50 5100.0") {
		t.Error(line)
	}
	empty := &Report{Provenance: Measured, Mode: "real", ConfigName: "x", Workload: "storm"}
	empty.Measure([]Run{{Mark: time.Second, Result: &loadgen.Result{}}})
	if d, err = New([]*Report{empty}, "x"); err != nil || !strings.Contains(d.StormTable(), "| – / – / – |") {
		t.Errorf("%v %s", err, d.StormTable())
	}
	if measured(t, "x", "uma", 1, 1).MarkS != 1 ||
		(&Document{Reports: map[string]*Report{"x": {Workload: "chat"}}}).StormTable() != "" {
		t.Error("another workload has a storm")
	}
}

// TestStrictJSON: what is not known is null, keys are sorted, and what was written is read back the same.
func TestStrictJSON(t *testing.T) {
	r := &Report{Provenance: Measured, Mode: "real", ConfigName: "empty"}
	r.Measure([]Run{{Requests: nil, Result: &loadgen.Result{}, Evictions: math.NaN()}})
	for _, r := range []*Report{r, measured(t, "full", "uma", 1, 3)} {
		b, err := JSON(r)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("NaN")) || !json.Valid(b) || !bytes.Contains(b, []byte("\n    \"accuracy\"")) {
			t.Errorf("not strict: %s", b)
		}
		path := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		c, err := JSON(again)
		if err != nil || !bytes.Equal(b, c) {
			t.Errorf("%v: read back it differs:\n%s\n%s", err, b, c)
		}
		var flat map[string]any
		json.Unmarshal(b, &flat)
		for _, key := range strings.Fields("config_name duration_s arrival_rate_rps n_requests n_reasoning n_chat " +
			"ttft_p50_ms ttft_p95_ms ttot_p50_ms ttot_p95_ms output_itl_p50_ms output_itl_p95_ms output_itl_p99_ms " +
			"think_tokens_avg think_tokens_p95 output_tokens_avg budget_forced_pct budget_forced_by_reason " +
			"output_critical_eviction_events") {
			if _, ok := flat[key]; !ok {
				t.Errorf("%s is missing", key)
			}
		}
	}
}

func TestNeverMixed(t *testing.T) {
	a, b := measured(t, "a", "uma", 1, 1), measured(t, "b", "uma", 1, 1)
	b.Provenance, b.Mode = Synthetic, "replay"
	if _, err := New([]*Report{a, b}, "a"); err == nil || !strings.Contains(err.Error(), "cannot be compared") {
		t.Errorf("mixed: %v", err)
	}
	b.Provenance = Measured // a replay that claims to be measured
	if _, err := New([]*Report{b}, "b"); err == nil || !strings.Contains(err.Error(), "replays are synthetic") {
		t.Errorf("claimed: %v", err)
	}
	for want, text := range map[string]string{"schema": `{"schema":"x/2"}`, "provenance": `{"schema":"` + Schema +
		`","provenance":"guessed"}`, "under_test": `{"schema":"` + DocumentSchema + `","under_test":"x"}`,
		"cannot": `[]`} {
		path := filepath.Join(t.TempDir(), "r.json")
		os.WriteFile(path, []byte(text), 0o600)
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", text, want, err)
		}
	}
}

// TestCompare: flags as the A/B report has them, and a regression only where the interval is clear of 0.
func TestCompare(t *testing.T) {
	base := measured(t, "base", "stock", 1, 3)
	for _, c := range []struct {
		scale    float64
		flag     string
		failures bool
	}{{1, "FLAT", false}, {.5, "WIN", false}, {1.02, "loss", false}, {.98, "win", false}, {1.3, "LOSS", true}} {
		u := measured(t, "under", "uma", c.scale, 3)
		d, err := New([]*Report{base, u}, "under")
		if err != nil {
			t.Fatal(err)
		}
		if v := d.verdict("base", Metrics[0]); v.Flag != c.flag {
			t.Errorf("scale %v: %s, want %s", c.scale, v, c.flag)
		}
		if got := d.Regressions(5); (len(got) > 0) != c.failures {
			t.Errorf("scale %v: regressions %v", c.scale, got)
		}
	}
	// 6 % slower, but the repeats scatter by 20 %: noise.
	a, b := measured(t, "base", "stock", 1, 3), measured(t, "under", "uma", 1.06, 3)
	for i, r := range a.Repeats {
		r["ttft_p50_ms"] = Num(10 + 2*float64(i))
		b.Repeats[i]["ttft_p50_ms"] = Num(10.7 + 2*float64(i))
	}
	d, _ := New([]*Report{a, b}, "under")
	for _, s := range d.Regressions(5) {
		if strings.HasPrefix(s, "TTFT p50") {
			t.Errorf("noise is called a regression: %s", s)
		}
	}
	// An eviction of an answer where there was none; accuracy that falls; a metric that went missing.
	u := measured(t, "under", "uma", 1, 1)
	u.Values["output_critical_eviction_events"], u.Values["accuracy_pct"], u.Values["ttot_p50_ms"] = 2, 50,
		Num(math.NaN())
	d, _ = New([]*Report{measured(t, "base", "stock", 1, 1), u}, "under")
	got := strings.Join(d.Regressions(5), "\n")
	for _, want := range []string{"OutputCritical evictions is 2; it was 0", "accuracy % went from 100.0 to 50.0",
		"TTOT p50 ms is missing"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q among\n%s", want, got)
		}
	}
}

func TestPageAndMarkdown(t *testing.T) {
	var reports []*Report
	for i, side := range []string{"stock", "uma", "eat=0.01", "eat=0.1"} {
		r := measured(t, side, side, 1+.1*float64(i), 2)
		r.ITLOverTime = []Point{{.5, 10, 9, 11, 4}, {1.5, 12, 9, Num(20 + float64(i)), 4}, {2.5, 11, 9, 30, 4}}
		r.TTFTByX = []Curve{{"first", []Point{{256, 10, 9, 11, 3}, {512, 20, 19, 21, 3}}}}
		r.Streams = 1
		reports = append(reports, r)
	}
	more := measured(t, "uma-c4", "uma", 1, 2)
	more.Streams = 4
	d, err := New(append(reports, more), "uma")
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := d.HTML(&page); err != nil {
		t.Fatal(err)
	}
	html := page.String()
	for _, want := range []string{"MEASURED", "Output inter-token latency over time", "Time to first token by length",
		"Generated tokens by streams", "Accuracy by thinking", "<svg"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, no := range []string{"<script", "http-equiv", "src=", "@import", "url(", "<link"} {
		if strings.Contains(html, no) {
			t.Errorf("the page fetches something: %q", no)
		}
	}
	svg, err := d.ITLPicture()
	for _, want := range []string{"<svg", "eat=0.1", "longest gap between tokens, ms"} {
		if err != nil || !strings.Contains(string(svg), want) {
			t.Errorf("the picture: %v; it lacks %q", err, want)
		}
	}
	if none, err := New([]*Report{more}, more.ConfigName); err != nil {
		t.Fatal(err)
	} else if _, err := none.ITLPicture(); err == nil {
		t.Error("a picture of no times")
	}
	if a, b := d.family("eat=0.01"), d.family("eat=0.1:ema_alpha=0.5"); a != "eat" || b != "eat ema_alpha=0.5" {
		t.Errorf("curves are called %s and %s", a, b)
	}
	md := d.Markdown()
	for _, want := range []string{"| TTFT p50 ms |", "Δ% vs stock ×1", "uma ×1 (under test)", "hard_cap 2",
		"### measured"} {
		if !strings.Contains(md, want) {
			t.Errorf("the Markdown lacks %q:\n%s", want, md)
		}
	}
	if strings.Contains(md, "Δ% vs uma ×4") {
		t.Error("another number of streams is no baseline")
	}
}

// FuzzRead: whatever a file holds is an error, or a report whose page and tables can be made.
func FuzzRead(f *testing.F) {
	r := measured(f, "full", "uma", 1, 2)
	r.ITLOverTime = []Point{{.5, 10, 9, 11, 4}, {1.5, 12, 9, 20, 4}, {2.5, 11, 9, 30, 4}}
	b, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema":"uma-bench/report/1","provenance":"measured","mode":"real","config_name":"x",` +
		`"ttft_p95_ms":1e308,"itl_over_time":[{"x":1,"p50":1e308},{"x":1,"p50":-1e308},{"x":1}]}`))
	f.Add([]byte(`{"schema":"uma-bench/report/1","provenance":"measured","mode":"real","config_name":"x",` +
		`"itl_over_time":[{"x":1,"p50":1,"low":1,"high":1e308},{"x":2,"p50":1,"low":1,"high":1},{"x":3,"p50":1,` +
		`"low":1,"high":1e9}]}`))
	f.Add([]byte(`{"schema":"uma-bench/ab-report/1","under_test":"x","reports":{"x":null}}`))
	path := filepath.Join(f.TempDir(), "r.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Read(path)
		if err != nil {
			return
		}
		other := measured(t, r.ConfigName+"'", "uma", 1, 2)
		other.Provenance, other.Mode, other.Streams = r.Provenance, r.Mode, r.Streams
		d, err := New([]*Report{other, r}, r.ConfigName)
		if err != nil {
			return
		}
		d.Regressions(5)
		if d.Markdown() == "" {
			t.Error("no Markdown")
		}
		if err := d.HTML(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
		if _, err := JSON(d); err != nil {
			t.Error(err)
		}
	})
}
