//go:build !otlp

package telemetry

import (
	"context"
	"errors"

	"github.com/uma-serve/uma-serve/metrics"
)

// Built reports whether the program can export.
const Built = false

// parentSpan is empty in this build.
type parentSpan struct{}

// Exporter sends nothing in this build.
type Exporter struct{}

// Start fails.
func Start(Config, *metrics.Metrics) (*Exporter, error) {
	return nil, errors.New("this program is built without OTLP")
}

// Begin returns nil: nothing is traced.
func (*Exporter) Begin(string) *Request { return nil }

// Ended does nothing.
func (*Exporter) Ended(*Request) {}

// Stats returns zeros.
func (*Exporter) Stats() metrics.Telemetry { return metrics.Telemetry{} }

// Close does nothing.
func (*Exporter) Close(context.Context) error { return nil }
