package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestClaimAfterAStepThatGaveNothing: what another model on the device reads of this one's answers. Their next tokens
// are due one target after the end of a step that gave them tokens, and one target after the begin of a step that was
// given up.
func TestClaimAfterAStepThatGaveNothing(t *testing.T) {
	r := serve(t, fake.Config{}, "--tick-budget-ms", "5", "-b", "32", "-c", "1000000")
	table, err := lease.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	seats := make([]lease.Seat, 2)
	for i, name := range []string{"this", "other"} {
		if seats[i], err = table.Enter(name); err != nil {
			t.Fatal(err)
		}
	}
	h := r.hold()
	t.Cleanup(func() { h.release(); r.stop() }) // before the table ends
	h.loop.takeSeat(table, seats[0])
	other := table.Lease(seats[1], h.loop.model.caps.Devices)
	c := r.dial()
	r.begin(c, func(q *wire.Request) { q.ID, q.Messages, q.Prompt = "answer", nil, "endless" })
	h.arrived(1)
	h.steps("the answer has begun", func() bool { return !r.engine.begun.IsZero() })
	for range 3 {
		h.step()
	}
	r.begin(c, func(q *wire.Request) { q.ID, q.Messages[0].Content = "prompt", strings.Repeat("long ", 2000) })
	h.arrived(1)

	// due is relative to the begin of the newest decode, without the target. Where the answer's own step takes all of
	// the target, on a machine that stands still, the limit that it is read from follows the step: ok is false.
	due := func() (d time.Duration, ok bool) {
		o := h.loop.core.Scheduler().Outlook()
		if o.Target == 0 || o.Due != 0 {
			t.Fatalf("the answer got no place in the step: %+v", o)
		}
		at := r.engine.begun.Add(o.Target)
		limit, ok := other.Limit(at)
		if !ok {
			t.Fatal("nothing limits the other model's steps")
		}
		return limit + o.Step, o.Step < o.Target/2
	}
	const late = "late_steps_total"
	given := 0
	for range 100 {
		before := r.counter(late)
		r.engine.failStep(1, runtime.ErrLate)
		h.step()
		if r.counter(late) == before {
			r.engine.after.Store(0)
			h.step()
			continue
		}
		d, ok := due()
		if !ok {
			continue
		}
		given++
		if d > 0 {
			t.Errorf("a step was given up: the answer is due %v later than one target after its begin", d)
		}
		h.step()
		if d, ok := due(); ok && d <= 0 {
			t.Errorf("a step gave a token: the answer is due %v before one target after its begin", -d)
		}
	}
	if given == 0 {
		t.Error("no step was given up")
	}
}
