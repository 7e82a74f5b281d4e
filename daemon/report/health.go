package report

import (
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Vitals are a daemon's signs of life.
type Vitals struct {
	Uptime   time.Duration
	Listen   []string // URLs
	Loaded   float64  // share of the model, 0…1
	Ready    bool     // the model is loaded
	Draining bool
	Requests int64     // live, queued ones included
	LastStep time.Time // end of the newest decode; zero: none yet
	Stalled  time.Time // newest progress of a decode loop that makes none; zero: it makes progress, or has no work
}

// Health returns the health report at now.
func Health(v *Vitals, now time.Time) reports.Health {
	h := reports.Health{Type: "health", Status: "ok", Progress: 1, UptimeMs: v.Uptime.Milliseconds(), Listen: v.Listen,
		Requests: v.Requests}
	if !v.Ready {
		h.Status, h.Progress = "loading", v.Loaded
	}
	if !v.LastStep.IsZero() {
		age := now.Sub(v.LastStep).Milliseconds()
		h.LastStepAgeMs = &age
	}
	if v.Draining {
		h.Status = "draining"
	}
	// "stalled" overrides "draining": a drain that hangs never ends, and a service manager must see that.
	if !v.Stalled.IsZero() {
		h.Status, h.StalledSince = "stalled", v.Stalled.UTC().Format(time.RFC3339)
		h.StalledMs = now.Sub(v.Stalled).Milliseconds()
	}
	return h
}
