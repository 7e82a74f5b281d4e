//go:build !otlp

package config

import (
	"strings"
	"testing"
)

// TestTelemetryNeedsItsTag: a program without the exporter does not start where telemetry is asked for, and says how
// to get one.
func TestTelemetryNeedsItsTag(t *testing.T) {
	c, err := load(t, []string{"--telemetry-endpoint", "http://127.0.0.1:4318"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckHere(); err == nil || !strings.Contains(err.Error(), "make TAGS=otlp") {
		t.Error(err)
	}
}
