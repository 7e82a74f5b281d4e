//go:build otlp

package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/telemetry/telemetrytest"
)

const client = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func start(t *testing.T, endpoint string, m *metrics.Metrics) *Exporter {
	t.Helper()
	e, err := Start(Config{Endpoint: endpoint, Interval: time.Hour, Sample: 1, Service: "uma-serve", Version: "v1",
		Model: "tiny", Log: slog.New(slog.DiscardHandler)}, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(canceled()) })
	return e
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// within is the time that a test waits for what must come.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// ended is a request in which everything happened, at the seconds after t0.
func ended(e *Exporter, t0 time.Time, parent string) *Request {
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	r := e.Begin(parent)
	if r == nil {
		return nil
	}
	r.ID, r.Class, r.Ended, r.CacheTier = "r1", "interactive", "stop", "host"
	r.Arrived, r.Started, r.First, r.Think, r.Thought = at(0), at(1), at(4), at(4), at(7)
	r.Answer, r.Last, r.End = at(8), at(11), at(12)
	r.PromptTokens, r.CachedTokens, r.ThinkTokens, r.CompletionTokens = 100, 40, 30, 50
	r.Add(Span{Name: "restore", From: at(0), To: at(1), Tokens: 40, Tier: "host"})
	r.Add(Span{Name: "prefill.chunk", From: at(1), To: at(2), Tokens: 20})
	r.Preempted(at(2))
	r.Resumed(at(3))
	r.Add(Span{Name: "prefill.chunk", From: at(3), To: at(4), Tokens: 40})
	return r
}

// TestEverythingArrives: each span with its times, parent, link and attributes, and every metric under its name in the
// seeds, over both protocols.
func TestEverythingArrives(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *telemetrytest.Receiver{"gRPC": telemetrytest.GRPC,
		"HTTP": telemetrytest.HTTP} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			m := metrics.New(metrics.Build{})
			m.TokensGenerated.Add(42)
			m.TTFT.Observe(100 * time.Millisecond)
			m.SetKV(metrics.KV{OutputCriticalEvictions: 3})
			m.SetScheduler(metrics.Scheduler{ByState: [2][4]int{{0, 0, 5, 6}, {}}})
			m.Step(metrics.Step{Took: time.Millisecond, Tokens: 1, Decode: 1, Scheduled: 3 * time.Microsecond})
			m.Forced("converged")
			e := start(t, c.URL, m)
			t0 := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
			e.Ended(ended(e, t0, client))
			failed := e.Begin("")
			failed.Arrived, failed.End, failed.Ended, failed.Error = t0, t0.Add(time.Second), "E_LIMIT_QUEUE", "full"
			e.Ended(failed)
			if err := e.Close(within(t)); err != nil {
				t.Fatal(err)
			}
			checkSpans(t, c.Spans(), t0)
			checkMetrics(t, c, m)
			if s := e.Stats(); s.Exported != 11 || s.Failed+s.Dropped+s.MetricFailures != 0 || s.MetricExports == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func checkSpans(t *testing.T, spans []*tracepb.Span, t0 time.Time) {
	t.Helper()
	var root, refused, prefill *tracepb.Span
	for _, s := range spans {
		switch {
		case s.Name == "request" && s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR:
			refused = s
		case s.Name == "request":
			root = s
		case s.Name == "prefill":
			prefill = s
		}
	}
	if root == nil || refused == nil || prefill == nil {
		t.Fatalf("%v", spans)
	}
	if got := fmt.Sprintf("%x %x", root.TraceId, root.ParentSpanId); got != client[3:35]+" "+client[36:52] ||
		len(root.Links) != 1 || fmt.Sprintf("%x", root.Links[0].SpanId) != client[36:52] {
		t.Errorf("the root's trace and parent are %s, its links %v", got, root.Links)
	}
	if refused.Status.Message != "full" || len(refused.Links) != 0 || len(refused.ParentSpanId) != 0 {
		t.Errorf("%v", refused)
	}
	want := map[string][3]int{ // from, to, tokens (0 = none)
		"queued": {0, 1, 0}, "prefill": {1, 4, 0}, "think": {4, 7, 30}, "answer": {8, 11, 20}, "restore": {0, 1, 40},
		"preempted": {2, 3, 0},
	}
	chunks := 0
	for _, s := range spans {
		parent, w := root, want[s.Name]
		switch s.Name {
		case "request":
			continue
		case "prefill.chunk":
			parent, w = prefill, [3]int{1 + 2*chunks, 2 + 2*chunks, 20 + 20*chunks}
			chunks++
		case "queued":
			if string(s.ParentSpanId) == string(refused.SpanId) {
				continue // the refused request was queued until its end
			}
		}
		delete(want, s.Name)
		at := func(n uint64) int { return int(time.Unix(0, int64(n)).Sub(t0) / time.Second) }
		if at(s.StartTimeUnixNano) != w[0] || at(s.EndTimeUnixNano) != w[1] ||
			string(s.ParentSpanId) != string(parent.SpanId) || string(s.TraceId) != string(root.TraceId) {
			t.Errorf("%s: %d…%d s under %x, want %v under %x", s.Name, at(s.StartTimeUnixNano), at(s.EndTimeUnixNano),
				s.ParentSpanId, w, parent.SpanId)
		}
		tokens := 0
		for _, a := range s.Attributes {
			if a.Key == "tokens" {
				tokens = int(a.Value.GetIntValue())
			}
		}
		if tokens != w[2] {
			t.Errorf("%s: %d tokens, want %d", s.Name, tokens, w[2])
		}
	}
	if len(want) > 0 || chunks != 2 {
		t.Errorf("%d chunks; missing: %v", chunks, want)
	}
	var attrs []string
	for _, a := range root.Attributes {
		attrs = append(attrs, a.Key+"="+a.Value.GetStringValue()+fmt.Sprint(a.Value.GetIntValue()))
	}
	for _, a := range []string{"uma.request.id=r10", "uma.class=interactive0", "gen_ai.usage.input_tokens=100",
		"gen_ai.usage.output_tokens=50", "uma.usage.cached_tokens=40", "uma.cache.tier=host0"} {
		if !slices.Contains(attrs, a) {
			t.Errorf("%s is missing in %q", a, attrs)
		}
	}
}

func checkMetrics(t *testing.T, c *telemetrytest.Receiver, m *metrics.Metrics) {
	t.Helper()
	for _, f := range m.Families() {
		if n, _, _ := name(&f); c.Metric(n) == nil && len(f.Points) > 0 {
			t.Errorf("%s did not arrive", n)
		}
	}
	if v := c.Metric("tokens_generated_total").GetSum(); v == nil || !v.IsMonotonic ||
		v.DataPoints[0].GetAsDouble() != 42 {
		t.Errorf("%v", v)
	}
	h := c.Metric("ttft_ms").GetHistogram().GetDataPoints()
	if len(h) != 1 || h[0].Count != 1 || h[0].GetSum() != 100 || len(h[0].BucketCounts) != len(h[0].ExplicitBounds)+1 ||
		h[0].BucketCounts[slices.Index(h[0].ExplicitBounds, 128)] != 1 {
		t.Errorf("%v", h)
	}
	if h := c.Metric("meridian.schedule_batch.duration_ns").GetHistogram().GetDataPoints(); len(h) != 1 ||
		h[0].GetSum() != 3000 || h[0].BucketCounts[slices.Index(h[0].ExplicitBounds, 4000)] != 1 {
		t.Errorf("%v", h)
	}
	depth := map[string]float64{}
	for _, p := range c.Metric("meridian.queue_depth").GetGauge().GetDataPoints() {
		depth[p.Attributes[0].Value.GetStringValue()] = p.GetAsDouble()
	}
	if !maps.Equal(depth, map[string]float64{"think": 5, "output": 6}) {
		t.Errorf("%v", depth)
	}
	if v := c.Metric("meridian.output_critical_eviction").GetSum().GetDataPoints(); len(v) != 1 ||
		v[0].GetAsDouble() != 3 {
		t.Errorf("%v", v)
	}
	if c.Metric("meridian.budget_force_reason").GetUnit() != "{closes}" || c.Metric("rss_bytes").GetUnit() != "By" {
		t.Errorf("%v", c.Metric("meridian.budget_force_reason"))
	}
}

// TestSeedNames: every metric of Meridian's has its dotted name, and no name is left over.
func TestSeedNames(t *testing.T) {
	left := maps.Clone(meridianNames)
	for _, f := range metrics.New(metrics.Build{}).Families() {
		if strings.HasPrefix(f.Prom, "meridian_") && meridianNames[f.Prom] == "" {
			t.Errorf("%s has no name in OTLP", f.Prom)
		}
		delete(left, f.Prom)
	}
	if len(left) > 0 {
		t.Errorf("no metric has these names: %v", left)
	}
}

// TestSilentCollector: while the collector hangs, refuses or is gone, Ended never waits, what does not fit is counted,
// and Close ends in its time.
func TestSilentCollector(t *testing.T) {
	for name, spoil := range map[string]func(*telemetrytest.Receiver){
		"hangs": (*telemetrytest.Receiver).Hang, "refuses": (*telemetrytest.Receiver).Refuse,
		"killed": (*telemetrytest.Receiver).Kill,
	} {
		for protocol, open := range map[string]func(testing.TB) *telemetrytest.Receiver{"gRPC": telemetrytest.GRPC,
			"HTTP": telemetrytest.HTTP} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				c := open(t)
				e := start(t, c.URL, metrics.New(metrics.Build{}))
				e.Ended(ended(e, time.Now(), client))
				waitfor.True(t, "the first spans are delivered", func() bool { return e.Stats().Exported == 9 })
				spoil(c)
				const n = 4000
				for range n { // if one of these waited, none would be dropped
					e.Ended(ended(e, time.Time{}, client))
				}
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				if err := e.Close(ctx); err == nil {
					t.Error("everything was exported, to a collector that takes nothing")
				}
				s := e.Stats()
				if s.Dropped == 0 || s.Exported != 9 || s.Dropped > n || s.Failed == 0 {
					t.Errorf("%+v", s)
				}
				e.Ended(ended(e, time.Time{}, client)) // after the end: ignored
			})
		}
	}
}

// TestCollectorComesBack: spans that the collector refused at first arrive when it answers.
func TestCollectorComesBack(t *testing.T) {
	c := telemetrytest.HTTP(t)
	c.Refuse()
	e := start(t, c.URL, metrics.New(metrics.Build{}))
	e.Ended(ended(e, time.Now(), ""))
	if !c.Until(within(t), func() bool { return c.Exports() > 0 }) {
		t.Fatal("nothing was tried")
	}
	c.Answer()
	if !c.Until(within(t), func() bool { return len(c.Spans()) == 9 }) {
		t.Errorf("%d spans came", len(c.Spans()))
	}
}

// TestEndedAllocatesNothing: what the decode loop pays at the end of a request.
func TestEndedAllocatesNothing(t *testing.T) {
	e := &Exporter{queue: make(chan *Request, 1)}
	r := &Request{}
	if n := testing.AllocsPerRun(100, func() { e.Ended(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for range 200 {
		r.Add(Span{Name: "prefill.chunk"})
	}
	if len(r.spans) != maxSpans || r.dropped != 200-maxSpans {
		t.Errorf("%d parts, %d dropped", len(r.spans), r.dropped)
	}
	var none *Exporter
	none.Ended(none.Begin(client))
	if err := none.Close(context.Background()); err != nil {
		t.Error(err)
	}
	var untraced *Request
	untraced.Add(Span{})
	untraced.Preempted(time.Now())
	untraced.Resumed(time.Now())
}

func TestSampling(t *testing.T) {
	e := &Exporter{cfg: Config{Sample: 0}}
	if e.Begin("") != nil || e.Begin(client) == nil || e.Begin(client[:53]+"00") != nil {
		t.Error("without a traceparent the share decides, with one its flag")
	}
	e.cfg.Sample = 1
	if e.Begin("") == nil || e.Begin("garbage") == nil || e.Begin(client[:53]+"00") != nil {
		t.Error("a malformed traceparent is none")
	}
}

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"http://127.0.0.1:4318": {Host: "127.0.0.1:4318"},
		"http://collector":      {Host: "collector:4318"},
		"https://h:1/otlp/":     {TLS: true, Host: "h:1", Path: "/otlp"},
		"grpc://[::1]":          {GRPC: true, Host: net.JoinHostPort("::1", "4317")},
		"grpcs://collector:443": {GRPC: true, TLS: true, Host: "collector:443"},
	} {
		if got, err := ParseEndpoint(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                  "must begin with http://",
		"127.0.0.1:4318":    "",
		"ftp://h":           "must begin with http://",
		"http://":           "names no host",
		"grpc://h/path":     "gRPC has none",
		"http://u:secret@h": "OTEL_EXPORTER_OTLP_HEADERS",
		"http://h?x=1":      "must be a scheme, a host and a port",
	} {
		if _, err := ParseEndpoint(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") && want == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzTraceparent: a text from outside is refused or read, and what is read has both ids.
func FuzzTraceparent(f *testing.F) {
	for _, s := range []string{client, "", "00-", client[:54], strings.ToUpper(client), "01" + client[2:],
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, ok := parseParent(s); ok && (!c.IsValid() || s != fmt.Sprintf("00-%s-%s-%s", c.TraceID(), c.SpanID(),
			s[53:])) {
			t.Errorf("%q is read as %v", s, c)
		}
	})
}
