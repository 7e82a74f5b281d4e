package stage

import (
	"sync"
	"testing"
)

// TestLife: a cancel is seen by who cancels, with the stage, or by the owner that enters the next stage, and it is
// counted once.
func TestLife(t *testing.T) {
	var c Life
	if c.Stage() != Reading || c.Cancelled() || c.Over() {
		t.Errorf("a new request is in stage %d", c.Stage())
	}
	if c.Enter(Waiting) || c.Stage() != Waiting {
		t.Error("it was not cancelled, and waits")
	}
	if at, first := c.Cancel(); at != Waiting || !first || !c.Cancelled() {
		t.Errorf("cancelled in stage %d, the first time: %v", at, first)
	}
	when := c.cancelledAt.Load()
	if at, first := c.Cancel(); at != Waiting || first || c.cancelledAt.Load() != when || when == 0 {
		t.Errorf("cancelled again in stage %d, the first time: %v", at, first)
	}
	for _, next := range []Stage{Preparing, Compiling, Waiting, Queued, Running} {
		if !c.Enter(next) || c.Stage() != next || !c.Cancelled() || c.Over() {
			t.Errorf("the cancel is lost in stage %d", next)
		}
	}
	if c.Enter(Ending); !c.Over() {
		t.Error("it is not over")
	}
}

// TestCancelCrossesHandOver: whatever the order in which a cancel and a hand-over come, one of the two sees the other.
func TestCancelCrossesHandOver(t *testing.T) {
	for range 5000 {
		var c Life
		var wg sync.WaitGroup
		var at Stage
		var seen bool
		wg.Add(2)
		go func() { defer wg.Done(); at, _ = c.Cancel() }()
		go func() { defer wg.Done(); seen = c.Enter(Waiting) }()
		wg.Wait()
		if seen != (at == Reading) || !c.Cancelled() || c.Stage() != Waiting {
			t.Fatalf("cancelled in stage %d, and the next owner saw it: %v", at, seen)
		}
	}
}
