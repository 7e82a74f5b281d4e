//go:build otlp

package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The SDK's exporters by protocol. None of them connects before its first export.

const (
	retryFirst = time.Second
	retryMost  = 5 * time.Second
)

func (e Endpoint) spans(ctx context.Context) (sdktrace.SpanExporter, error) {
	if e.GRPC {
		opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(e.Host), otlptracegrpc.WithTimeout(exportTimeout),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: retryFirst,
				MaxInterval: retryMost, MaxElapsedTime: retryFor})}
		if !e.TLS {
			opts = append(opts, otlptracegrpc.WithInsecure())
		}
		return otlptracegrpc.New(ctx, opts...)
	}
	opts := []otlptracehttp.Option{otlptracehttp.WithEndpoint(e.Host), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithURLPath(e.Path + "/v1/traces"),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: retryFirst,
			MaxInterval: retryMost, MaxElapsedTime: retryFor})}
	if !e.TLS {
		opts = append(opts, otlptracehttp.WithInsecure())
	}
	return otlptracehttp.New(ctx, opts...)
}

// metrics does not retry: the next interval has newer values.
func (e Endpoint) metrics(ctx context.Context) (sdkmetric.Exporter, error) {
	if e.GRPC {
		opts := []otlpmetricgrpc.Option{otlpmetricgrpc.WithEndpoint(e.Host), otlpmetricgrpc.WithTimeout(exportTimeout),
			otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{})}
		if !e.TLS {
			opts = append(opts, otlpmetricgrpc.WithInsecure())
		}
		return otlpmetricgrpc.New(ctx, opts...)
	}
	opts := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpoint(e.Host), otlpmetrichttp.WithTimeout(exportTimeout),
		otlpmetrichttp.WithURLPath(e.Path + "/v1/metrics"), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})}
	if !e.TLS {
		opts = append(opts, otlpmetrichttp.WithInsecure())
	}
	return otlpmetrichttp.New(ctx, opts...)
}

// countingMetrics counts the exports of metrics that were delivered or lost.
type countingMetrics struct {
	sdkmetric.Exporter
	exported, failed atomic.Uint64
}

// Export implements sdkmetric.Exporter.
func (c *countingMetrics) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	err := c.Exporter.Export(ctx, rm)
	if err != nil {
		c.failed.Add(1)
	} else {
		c.exported.Add(1)
	}
	return err
}
