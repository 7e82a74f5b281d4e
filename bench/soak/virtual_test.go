package soak

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sim"
)

var hour = VirtualConfig{Length: time.Hour, Sample: time.Minute, PerMinute: 12, Seed: 3}

// TestVirtual: an hour of the mixture passes, and all of it has happened.
func TestVirtual(t *testing.T) {
	res, err := Virtual(t.Context(), hour)
	if err != nil {
		t.Fatal(err)
	}
	if !res.Passed() {
		t.Errorf("%q", res.Failures)
	}
	for k := range Kinds {
		if res.Events[k.String()] == 0 {
			t.Errorf("there was no %v", k)
		}
	}
	for _, what := range []string{"requests completed", "requests timed_out", "rows compared", "unloads of other",
		"tokens restored from host", "tokens restored from disk", "preemptions"} {
		if res.Counts[what] == 0 {
			t.Errorf("%s: 0 in %v", what, res.Counts)
		}
	}
	if len(res.Rows) < 15 || res.Hours < 0.95 || res.Hours > 1.2 {
		t.Errorf("%d series over %.2f hours", len(res.Rows), res.Hours)
	}
}

// TestVirtualFinds: what a soak test is for is found.
func TestVirtualFinds(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		spoil func(v *virtual)
		watch func(s *server, e *sim.Engine, now int64)
		want  string
	}{
		"wrong answers": {rate: 2, spoil: func(v *virtual) {
			f := v.servers[0].engineConfig()
			f.Seed++
			v.servers[0].alone = fake.New(f)
		}, want: "wrong answers: "},
		"stuck": {rate: 2, watch: func(_ *server, e *sim.Engine, now int64) {
			if at := 20 * time.Minute.Microseconds(); now == at {
				e.Stop(at + 2*stuckAfter.Microseconds())
			}
		}, want: "got no further for 1"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := hour
			cfg.PerMinute = c.rate
			v := newVirtual(t.Context(), cfg)
			if c.spoil != nil {
				c.spoil(v)
			}
			if c.watch != nil {
				v.also = c.watch
			}
			res, err := v.run()
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(res.Failures, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("%q is not among %q", c.want, all)
			}
		})
	}
}

// TestVirtualLeaks: requests that are left at the end are a leak.
func TestVirtualLeaks(t *testing.T) {
	v := newVirtual(t.Context(), hour)
	of := func(queued, running int64) *sim.Report {
		return &sim.Report{Metrics: &sim.Metrics{StillQueued: queued, StillRunning: running,
			Engines: []sim.EngineTotals{{Clock: 7}}}}
	}
	v.drained([]*sim.Report{of(1, 2), of(0, 0)})
	if res := v.rep.Finish(time.Hour); len(res.Failures) != 1 || res.Failures[0] != "1 leaks: 3 requests of steady" {
		t.Errorf("%q", res.Failures)
	}
}

// TestVirtualEndsEarly: a run that is ended has a report until then.
func TestVirtualEndsEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := Virtual(ctx, hour)
	if err != nil || res.Hours > 0.1 || !res.Passed() {
		t.Errorf("%+v, %v", res, err)
	}
}
