//go:build otlp

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/uma-serve/uma-serve/metrics"
)

// Built reports whether the program can export.
const Built = true

type parentSpan = trace.SpanContext

const (
	queue         = 256              // ended requests that wait to become spans
	spanQueue     = 2048             // spans that wait for their export
	exportTimeout = 10 * time.Second // of one export
	batchTimeout  = time.Second      // after which fewer spans than a batch are exported
	retryFor      = 20 * time.Second // an export that fails; then its spans are lost and counted
)

// Exporter sends telemetry to one collector. A nil Exporter does nothing. Its methods are safe from any goroutine.
type Exporter struct {
	cfg     Config
	queue   chan *Request
	done    sync.WaitGroup
	tracer  trace.Tracer
	traces  *sdktrace.TracerProvider
	meters  *sdkmetric.MeterProvider
	spans   counting
	metrics countingMetrics
	dropped atomic.Uint64
	closed  atomic.Bool
}

// Start begins to export m and the requests to come. It does not wait for the collector.
func Start(cfg Config, m *metrics.Metrics) (*Exporter, error) {
	end, err := ParseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	e := &Exporter{cfg: cfg, queue: make(chan *Request, queue)}
	if e.spans.SpanExporter, err = end.spans(ctx); err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	if e.metrics.Exporter, err = end.metrics(ctx); err != nil {
		return nil, fmt.Errorf("open the exporter of metrics: %w", err)
	}
	// The SDK reports failed exports to one handler of the process.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { cfg.Log.Debug("telemetry", "error", err) }))
	res := resource.NewSchemaless(attribute.String("service.name", cfg.Service),
		attribute.String("service.version", cfg.Version), attribute.String("gen_ai.request.model", cfg.Model))
	e.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithBatcher(&e.spans, sdktrace.WithBlocking(), sdktrace.WithMaxQueueSize(spanQueue),
			sdktrace.WithBatchTimeout(batchTimeout), sdktrace.WithExportTimeout(retryFor+exportTimeout)))
	e.tracer = e.traces.Tracer("github.com/uma-serve/uma-serve")
	e.meters = sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(
		sdkmetric.NewPeriodicReader(&e.metrics, sdkmetric.WithInterval(cfg.Interval),
			sdkmetric.WithTimeout(exportTimeout), sdkmetric.WithProducer(producer{m}))))
	e.done.Go(func() {
		for r := range e.queue {
			e.emit(r)
		}
	})
	return e, nil
}

// Begin returns the record of a request that is to be traced, or nil. traceparent is the client's, of the W3C's Trace
// Context; "" or a malformed one is none.
func (e *Exporter) Begin(traceparent string) *Request {
	if e == nil {
		return nil
	}
	parent, ok := parseParent(traceparent)
	if ok && !parent.IsSampled() || !ok && rand.Float64() >= e.cfg.Sample {
		return nil
	}
	return &Request{parent: parent}
}

// Ended takes the record of a request that has ended; r may be nil. It never waits: when the exporter is behind, the
// record is dropped and counted.
func (e *Exporter) Ended(r *Request) {
	if e == nil || r == nil || e.closed.Load() {
		return
	}
	select {
	case e.queue <- r:
	default:
		e.dropped.Add(1)
	}
}

// Stats are counters since the start.
func (e *Exporter) Stats() metrics.Telemetry {
	return metrics.Telemetry{Exported: e.spans.exported.Load(), Failed: e.spans.failed.Load(),
		Dropped: e.dropped.Load(), MetricExports: e.metrics.exported.Load(), MetricFailures: e.metrics.failed.Load()}
}

// Close exports what waits, until ctx ends. No call of Ended may run or follow.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil || e.closed.Swap(true) {
		return nil
	}
	close(e.queue)
	emitted := make(chan struct{})
	go func() { e.done.Wait(); close(emitted) }()
	select {
	case <-emitted:
	case <-ctx.Done(): // Shutdown below ends the goroutine's wait for room
	}
	err := errors.Join(e.traces.Shutdown(ctx), e.meters.Shutdown(ctx))
	if err != nil { // the spans that still wait are lost, and no export will count them
		e.dropped.Add(uint64(len(e.queue)))
		e.spans.failed.Store(e.spans.made.Load() - e.spans.exported.Load())
	}
	return err
}

// counting counts the spans that an exporter has delivered or lost.
type counting struct {
	sdktrace.SpanExporter
	made, exported, failed atomic.Uint64
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.failed.Add(uint64(len(spans)))
	} else {
		c.exported.Add(uint64(len(spans)))
	}
	return err
}
