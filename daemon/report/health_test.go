package report

import (
	"testing"
	"time"
)

// TestHealthStatus: a daemon that drains says so, and a decode loop that hangs is told in any state.
func TestHealthStatus(t *testing.T) {
	now := time.Unix(1000, 0)
	stalled := now.Add(-time.Minute)
	for _, c := range []struct {
		v        Vitals
		status   string
		progress float64
	}{
		{Vitals{Loaded: 0.5}, "loading", 0.5},
		{Vitals{Loaded: 0.5, Draining: true}, "draining", 0.5},
		{Vitals{Ready: true}, "ok", 1},
		{Vitals{Ready: true, Draining: true}, "draining", 1},
		{Vitals{Ready: true, Stalled: stalled}, "stalled", 1},
		{Vitals{Ready: true, Draining: true, Stalled: stalled}, "stalled", 1},
	} {
		h := Health(&c.v, now)
		if h.Status != c.status || float64(h.Progress) != c.progress || h.LastStepAgeMs != nil {
			t.Errorf("%+v: %+v", c.v, h)
		}
		if c.status == "stalled" && (h.StalledMs != 60_000 || h.StalledSince != "1970-01-01T00:15:40Z") {
			t.Errorf("%+v: %+v", c.v, h)
		}
	}
	v := Vitals{Ready: true, LastStep: now.Add(-2 * time.Second)}
	if h := Health(&v, now); h.LastStepAgeMs == nil || *h.LastStepAgeMs != 2000 {
		t.Errorf("%+v", h)
	}
}
