package daemon

import (
	"sync"
	"testing"
)

// TestLifecycle: a cancel is seen by who cancels, with the stage, or by the owner that enters the next stage, and it is
// counted once.
func TestLifecycle(t *testing.T) {
	var c lifecycle
	if c.stage() != stageReading || c.cancelled() || c.over() {
		t.Errorf("a new request is in stage %d", c.stage())
	}
	if c.enter(stageWaiting) || c.stage() != stageWaiting {
		t.Error("it was not cancelled, and waits")
	}
	if at, first := c.cancel(); at != stageWaiting || !first || !c.cancelled() {
		t.Errorf("cancelled in stage %d, the first time: %v", at, first)
	}
	when := c.cancelledAt.Load()
	if at, first := c.cancel(); at != stageWaiting || first || c.cancelledAt.Load() != when || when == 0 {
		t.Errorf("cancelled again in stage %d, the first time: %v", at, first)
	}
	for _, next := range []stage{stagePreparing, stageCompiling, stageWaiting, stageQueued, stageRunning} {
		if !c.enter(next) || c.stage() != next || !c.cancelled() || c.over() {
			t.Errorf("the cancel is lost in stage %d", next)
		}
	}
	if c.enter(stageEnding); !c.over() {
		t.Error("it is not over")
	}
}

// TestCancelCrossesHandOver: whatever the order in which a cancel and a hand-over come, one of the two sees the other.
func TestCancelCrossesHandOver(t *testing.T) {
	for range 5000 {
		var c lifecycle
		var wg sync.WaitGroup
		var at stage
		var seen bool
		wg.Add(2)
		go func() { defer wg.Done(); at, _ = c.cancel() }()
		go func() { defer wg.Done(); seen = c.enter(stageWaiting) }()
		wg.Wait()
		if seen != (at == stageReading) || !c.cancelled() || c.stage() != stageWaiting {
			t.Fatalf("cancelled in stage %d, and the next owner saw it: %v", at, seen)
		}
	}
}
