package account

import (
	"testing"

	"github.com/uma-serve/uma-serve/metrics"
)

func TestLimitReasonsAgree(t *testing.T) {
	for i, name := range metrics.LimitReasons() {
		if got := limitReasons[i].String(); got != name {
			t.Errorf("reason %d is %s in the scheduler and %s in the metrics", i, got, name)
		}
	}
}

// TestLimitedIsToldOnce: one limited prompt is no news, nor are several in a few steps; several in 100 steps are, once.
func TestLimitedIsToldOnce(t *testing.T) {
	var l Limited
	var s metrics.Scheduler
	for _, c := range []struct {
		held, late uint64
		steps      uint64
		atOnce     float64
	}{
		{0, 0, 99, 0},         // nothing
		{900, 0, 99, 0},       // of too few steps
		{0, 150, 100, 0},      // 1.5 at once
		{500, 0, 199, 0},      // of too few steps
		{500, 300, 300, 3.25}, // 650 in 200 steps
		{9999, 0, 900, 0},     // it is known
	} {
		s.Limited[2], s.Limited[3] = c.held, c.late
		if got, tell := l.Tell(&s, c.steps); tell != (c.atOnce > 0) || tell && got != c.atOnce {
			t.Errorf("%+v: %v, %v", c, got, tell)
		}
	}
	if n := testing.AllocsPerRun(10, func() { new(Limited).Tell(&s, 1000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
