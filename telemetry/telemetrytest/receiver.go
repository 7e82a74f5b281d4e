//go:build otlp

// Package telemetrytest is an OpenTelemetry collector for tests: it keeps what it gets by OTLP over gRPC or HTTP, and
// can refuse, hang or die.
package telemetrytest

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Receiver is a collector.
type Receiver struct {
	URL string // for the exporter

	kill func()

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each arrival
	spans   []*tracepb.Span
	metrics map[string]*metricspb.Metric // the newest by name
	refuse  bool
	hang    chan struct{} // nil: it answers at once
	exports int
}

// GRPC starts a collector over gRPC, HTTP one over HTTP. They end with the test.
func GRPC(t testing.TB) *Receiver {
	t.Helper()
	r := newReceiver(t)
	ln := listen(t)
	s := grpc.NewServer()
	coltrace.RegisterTraceServiceServer(s, traces{r: r})
	colmetrics.RegisterMetricsServiceServer(s, meters{r: r})
	go s.Serve(ln)
	r.URL, r.kill = "grpc://"+ln.Addr().String(), sync.OnceFunc(s.Stop)
	t.Cleanup(r.Kill)
	return r
}

// HTTP is GRPC over HTTP.
func HTTP(t testing.TB) *Receiver {
	t.Helper()
	r := newReceiver(t)
	ln := listen(t)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, q *http.Request) {
		serve(w, q, &coltrace.ExportTraceServiceRequest{}, r.takeTraces)
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, q *http.Request) {
		serve(w, q, &colmetrics.ExportMetricsServiceRequest{}, r.takeMetrics)
	})
	s := &http.Server{Handler: mux}
	go s.Serve(ln)
	r.URL, r.kill = "http://"+ln.Addr().String(), sync.OnceFunc(func() { s.Close() })
	t.Cleanup(r.Kill)
	return r
}

func newReceiver(t testing.TB) *Receiver {
	r := &Receiver{changed: make(chan struct{}), metrics: map[string]*metricspb.Metric{}}
	t.Cleanup(r.Answer) // before the server ends, which waits for its calls
	return r
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// Kill ends the collector: connections break, and the port is closed.
func (r *Receiver) Kill() {
	r.Answer()
	r.kill()
}

// Refuse makes the collector answer that it is unavailable.
func (r *Receiver) Refuse() { r.set(true, nil) }

// Hang makes the collector accept exports and not answer.
func (r *Receiver) Hang() { r.set(false, make(chan struct{})) }

// Answer ends Refuse and Hang.
func (r *Receiver) Answer() { r.set(false, nil) }

func (r *Receiver) set(refuse bool, hang chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hang != nil {
		close(r.hang)
	}
	r.refuse, r.hang = refuse, hang
}

// Spans returns the spans that have arrived, in order.
func (r *Receiver) Spans() []*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Metric returns the newest value of a metric; nil = it has not arrived.
func (r *Receiver) Metric(name string) *metricspb.Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.metrics[name]
}

// Until waits until ok holds, which is asked again at each arrival, or ctx ends.
func (r *Receiver) Until(ctx context.Context, ok func() bool) bool {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if ok() {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ok()
		}
	}
}

// Exports returns the number of exports that were tried, refused ones included.
func (r *Receiver) Exports() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exports
}

// record counts an export, and waits or refuses as the test wants it.
func (r *Receiver) record(ctx context.Context) error {
	r.mu.Lock()
	r.exports++
	refuse, hang := r.refuse, r.hang
	r.arrived()
	r.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return status.Error(codes.Unavailable, "the receiver did not answer")
	}
	if refuse {
		return status.Error(codes.Unavailable, "the receiver refuses exports")
	}
	return nil
}

// arrived wakes Until. Caller holds mu.
func (r *Receiver) arrived() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Receiver) takeTraces(ctx context.Context, q *coltrace.ExportTraceServiceRequest) (proto.Message, error) {
	if err := r.record(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range q.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
	r.arrived()
	return &coltrace.ExportTraceServiceResponse{}, nil
}

func (r *Receiver) takeMetrics(ctx context.Context, q *colmetrics.ExportMetricsServiceRequest) (proto.Message, error) {
	if err := r.record(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rm := range q.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				r.metrics[m.Name] = m
			}
		}
	}
	r.arrived()
	return &colmetrics.ExportMetricsServiceResponse{}, nil
}

type traces struct {
	coltrace.UnimplementedTraceServiceServer
	r *Receiver
}

func (s traces) Export(ctx context.Context, q *coltrace.ExportTraceServiceRequest,
) (*coltrace.ExportTraceServiceResponse, error) {
	m, err := s.r.takeTraces(ctx, q)
	if err != nil {
		return nil, err
	}
	return m.(*coltrace.ExportTraceServiceResponse), nil
}

type meters struct {
	colmetrics.UnimplementedMetricsServiceServer
	r *Receiver
}

func (s meters) Export(ctx context.Context, q *colmetrics.ExportMetricsServiceRequest,
) (*colmetrics.ExportMetricsServiceResponse, error) {
	m, err := s.r.takeMetrics(ctx, q)
	if err != nil {
		return nil, err
	}
	return m.(*colmetrics.ExportMetricsServiceResponse), nil
}

// serve answers an export over HTTP.
func serve[T proto.Message](w http.ResponseWriter, q *http.Request, in T,
	take func(context.Context, T) (proto.Message, error),
) {
	body, err := io.ReadAll(q.Body)
	if err == nil {
		err = proto.Unmarshal(body, in)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := take(q.Context(), in)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	b, _ := proto.Marshal(out)
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(b)
}
