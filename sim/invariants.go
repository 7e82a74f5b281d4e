package sim

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

// checked turns the invariants into checks after every event (build tag invariants). Those that need more than one
// server's state are tests: INV-6 (same bytes), INV-7 (fresh routing signals, package cluster), INV-9 (the true output
// length decides nothing), INV-10 and INV-11 (sessions, package workload), INV-13 (run, export, replay).
const checked = invariants.Enabled

// newChecker returns the check of an engine's invariants, with what it has to remember between two events.
func newChecker(e *Engine) func() error {
	type seen struct {
		gen   uint32
		state State
	}
	before := map[int32]seen{}
	lastSteps := 0
	return func() error {
		// INV-1, counted apart from the metrics: every arrival is alive or has ended.
		var alive int64
		for _, r := range e.live.slots {
			if r.state == NotArrived { // free slots are
				continue
			}
			alive++
			// INV-2: a life goes arrival → queue → batch; only a preemption leads back.
			old, known := before[r.Slot]
			if known && old.gen == r.gen && old.state != r.state {
				ok := old.state == Delayed && (r.state == Queued || r.state == Running) || old.state == Queued &&
					r.state == Running || old.state == Running && r.state == Queued
				if !ok {
					return fmt.Errorf("sim: INV-2: %s went from %v to %v", r.Spec.ID(), old.state, r.state)
				}
			}
			before[r.Slot] = seen{r.gen, r.state}
		}
		if e.arrived != alive+e.ended {
			return fmt.Errorf("sim: INV-1: %d requests arrived, %d are alive and %d have ended", e.arrived, alive,
				e.ended)
		}
		if n := int64(e.formation.Waiting() + len(e.formation.Running())); n > alive {
			return fmt.Errorf("sim: INV-1: %d requests wait or run, %d are alive", n, alive)
		}
		// INV-4, a walk over all blocks: after every event while the cache is small, else now and then.
		if alive > 0 && (e.cfg.KVBlocks < 500 || e.steps%64 == 0 && e.steps != lastSteps) {
			lastSteps = e.steps
			if err := e.formation.checkBlocks(); err != nil {
				return err
			}
		}
		return e.conserves()
	}
}

// conserves is INV-8: no request waits or runs while no step is planned. A step is in the heap; that of an engine that
// shares its device may come with its turn instead.
func (e *Engine) conserves() error {
	waiting, running := e.formation.Waiting(), len(e.formation.Running())
	planned := e.device != nil && e.stepDue
	if e.stepDue && !planned {
		planned = slices.ContainsFunc(e.events.ev, func(ev event) bool { return ev.kind() == stepDue })
	}
	switch {
	case e.stepDue && !planned:
		return fmt.Errorf("sim: INV-8: a step is due and none is planned; %d requests wait, %d run", waiting, running)
	case !planned && waiting+running > 0 && !e.formation.waits():
		return fmt.Errorf("sim: INV-8: %d requests wait, %d run, and no step is planned", waiting, running)
	}
	return nil
}

// checkEnd verifies INV-5 of a request that completed: arrival ≤ enqueue ≤ schedule ≤ completion.
func (e *Engine) checkEnd(r *request) {
	scheduled := r.Spec.Arrival + r.delay
	if r.Spec.Arrival > r.enqueued || r.enqueued > scheduled || scheduled > r.left {
		panic(fmt.Sprintf("sim: INV-5: %s arrived at %d, was queued at %d, scheduled at %d and done at %d us",
			r.Spec.ID(), r.Spec.Arrival, r.enqueued, scheduled, r.left))
	}
}
