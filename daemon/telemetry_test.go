//go:build otlp

package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/telemetry/telemetrytest"
)

const (
	traceA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceB = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
)

// TestTelemetry: a thinking request leaves its trace, under the traceparent of a framed field or of an HTTP header, and
// the metrics arrive.
func TestTelemetry(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *telemetrytest.Receiver{"gRPC": telemetrytest.GRPC,
		"HTTP": telemetrytest.HTTP} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>let me see</think>It is 42."}}},
				"--telemetry-endpoint", c.URL, "--telemetry-interval", "1s", "--telemetry-sample", "0")
			if a := r.ask(r.dial(), func(q *wire.Request) { q.Traceparent = traceA }); a.err != nil {
				t.Fatal(a.err)
			}
			q, err := http.NewRequest("POST", "http://uma/v1/chat/completions", strings.NewReader(
				`{"messages":[{"role":"user","content":"question"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("traceparent", traceB)
			resp, err := r.web().Do(q)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			resp.Body.Close()
			if a := r.ask(r.dial(), nil); a.err != nil { // not sampled
				t.Fatal(a.err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			spans := func(trace string) map[string]*tracepb.Span {
				m := map[string]*tracepb.Span{}
				for _, s := range c.Spans() {
					if fmt.Sprintf("%x", s.TraceId) == trace[3:35] {
						m[s.Name] = s
					}
				}
				return m
			}
			for _, trace := range []string{traceA, traceB} {
				if !c.Until(ctx, func() bool { return len(spans(trace)) == 6 }) {
					t.Errorf("%s: %v", trace, spans(trace))
					continue
				}
				for _, name := range []string{"request", "queued", "prefill", "prefill.chunk", "think", "answer"} {
					if s := spans(trace)[name]; s == nil || s.EndTimeUnixNano < s.StartTimeUnixNano {
						t.Errorf("%s: %v", name, s)
					}
				}
			}
			for _, s := range c.Spans() {
				if id := fmt.Sprintf("%x", s.TraceId); id != traceA[3:35] && id != traceB[3:35] {
					t.Errorf("a request that was not sampled has a span: %v", s)
				}
			}
			tokens := func() float64 {
				d := c.Metric("tokens_generated_total").GetSum().GetDataPoints()
				if len(d) == 0 {
					return 0
				}
				return d[0].GetAsDouble()
			}
			if !c.Until(ctx, func() bool { return tokens() > 0 && r.reads("telemetry_spans_total", "exported") > 0 }) {
				t.Error("no metrics came")
			}
		})
	}
}

// TestCollectorIsKilled: answers do not wait for the collector, whether it hangs or is gone, nor does the stop for
// longer than closeTime; what is lost is counted.
func TestCollectorIsKilled(t *testing.T) {
	for name, spoil := range map[string]func(*telemetrytest.Receiver){"hangs": (*telemetrytest.Receiver).Hang,
		"killed": (*telemetrytest.Receiver).Kill} {
		t.Run(name, func(t *testing.T) {
			c := telemetrytest.GRPC(t)
			r := serve(t, fake.Config{}, "--telemetry-endpoint", c.URL, "--telemetry-interval", "1s")
			conn := r.dial()
			spoil(c)
			for range 300 {
				if a := r.ask(conn, func(q *wire.Request) { q.MaxTokens = 1 }); a.err != nil {
					t.Fatal(a.err)
				}
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			if lost := r.reads("telemetry_spans_total", "failed") + r.reads("telemetry_dropped_total", ""); lost == 0 {
				t.Error("nothing was counted as lost")
			}
		})
	}
}
