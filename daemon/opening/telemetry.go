package opening

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/kvevents"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/telemetry"
)

// Telemetry starts the export to --telemetry-endpoint; nil without it.
func Telemetry(c *config.Config, model string, m *metrics.Metrics, log *slog.Logger) (*telemetry.Exporter, error) {
	if c.Telemetry == "" {
		return nil, nil
	}
	e, err := telemetry.Start(telemetry.Config{
		Endpoint: c.Telemetry, Interval: c.TelemetryInterval, Sample: c.TelemetrySample,
		Service: "uma-serve", Version: buildinfo.Version, Model: model, Log: log,
	}, m)
	if err != nil {
		return nil, fmt.Errorf("--telemetry-endpoint: %w", err)
	}
	m.BindTelemetry(e.Stats)
	return e, nil
}

// Events opens the publisher of --kv-events, and sets the option to its address.
func Events(c *config.Config, m *metrics.Metrics, log *slog.Logger) (*kvevents.Publisher, error) {
	at, err := c.KVEventsAddress()
	if err != nil {
		return nil, err
	}
	p, err := kvevents.Open(at, c.Privileged, log)
	if err != nil {
		return nil, err
	}
	c.KVEvents = p.Endpoint()
	p.Bind(m)
	return p, nil
}

// closeTime is the maximum time for a last export at the end.
const closeTime = 3 * time.Second

// CloseTelemetry exports what waits.
func CloseTelemetry(e *telemetry.Exporter, by time.Time, log *slog.Logger) {
	if last := time.Now().Add(closeTime); last.Before(by) {
		by = last
	}
	ctx, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		log.Warn("telemetry: not everything was exported", "error", err)
	}
}
