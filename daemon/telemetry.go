package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/tiers"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/telemetry"
)

// The daemon's side of [telemetry]: what a trace says of a request.

// startTelemetry starts the export to --telemetry-endpoint; nil without it.
func (s *Server) startTelemetry(model string) (*telemetry.Exporter, error) {
	if s.cfg.Telemetry == "" {
		return nil, nil
	}
	e, err := telemetry.Start(telemetry.Config{
		Endpoint: s.cfg.Telemetry, Interval: s.cfg.TelemetryInterval, Sample: s.cfg.TelemetrySample,
		Service: "uma-serve", Version: buildinfo.Version, Model: model, Log: s.log,
	}, s.metrics)
	if err != nil {
		return nil, fmt.Errorf("--telemetry-endpoint: %w", err)
	}
	s.metrics.BindTelemetry(e.Stats)
	return e, nil
}

// closeTime is the maximum time for a last export at the end.
const closeTime = 3 * time.Second

// closeTelemetry exports what waits.
func (l *loop) closeTelemetry(by time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), earlier(by, time.Now().Add(closeTime)))
	defer cancel()
	if err := l.tel.Close(ctx); err != nil {
		l.log.Warn("telemetry: not everything was exported", "error", err)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// trace gives the record of an ended request to the exporter. failure is the message of an error, "" after an eos.
func (l *loop) trace(r *request, ended, failure string, now time.Time) {
	t := r.trace
	if t == nil {
		return
	}
	r.trace = nil
	u := r.usage()
	t.ID, t.Class, t.Ended, t.Error = r.wireID, r.Class.String(), ended, failure
	t.Arrived, t.Started, t.First, t.Last, t.End = r.arrived, r.at.Started, r.at.First, r.at.Last, now
	t.Think, t.Thought, t.Answer = r.at.Opened, r.at.Thought, r.at.Answered
	t.PromptTokens, t.CachedTokens, t.CacheTier = u.PromptTokens, u.CachedTokens, u.CacheTier.String()
	t.ThinkTokens, t.CompletionTokens = u.ThinkTokens, u.CompletionTokens
	l.tel.Ended(t)
}

// metricsTierName is a tier's name in traces and metrics.
func metricsTierName(t core.Tier) string { return tiers.Wire[t].String() }
