package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestLimits: each value of --limits refuses the request above it with its name and a time, counts it by its reason,
// and holds for one user or connection without touching another.
func TestLimits(t *testing.T) {
	const one, two = 1001, 1002
	background := func(q *wire.Request) { q.Priority = wire.PriorityBackground }
	for _, c := range []struct {
		limits, reason string
		sends          int // accepted before the one that is refused
		edit           func(*wire.Request)
	}{
		{"session_requests=2", admission.RefusedSession, 2, nil},
		{"user_requests=2", admission.RefusedUser, 2, nil},
		{"user_cells=200", admission.RefusedCells, 2, nil}, // prompts of five tokens, then one of 195
		{"interactive_queue=2", "class_queue_full", 3, nil},
		{"background_queue=1", "class_queue_full", 2, background},
	} {
		t.Run(c.limits, func(t *testing.T) {
			r := serve(t, fake.Config{}, "--parallel", "1", "--limits", c.limits)
			h := r.hold()
			mine, all := r.as(one), c.sends
			for i := range c.sends {
				mine.send(fmt.Sprint(i), c.edit)
				h.arrived(max(1, i)) // all but the first stay in the mailbox
				if i == 0 {          // it runs, and the others wait
					h.steps("the first runs", func() bool {
						st := h.loop.core.Scheduler().Stats()
						return st.Prefilling+st.Decoding == 1
					})
				}
			}
			mine.send("over", func(q *wire.Request) {
				if c.reason == admission.RefusedCells {
					q.Prompt = strings.Repeat("x", 195)
				}
				if c.edit != nil {
					c.edit(q)
				}
			})
			if c.reason != admission.RefusedSession && c.reason != admission.RefusedUser {
				h.arrived(c.sends)
				h.steps("the last is judged", func() bool { return r.metrics.Refusals.Value(c.reason) > 0 })
			}
			ev := mine.end("over")
			if e := ev.Error; ev.Kind != wire.EventError || e.Code != wire.QueueLimit || e.RetryAfter <= 0 ||
				!strings.Contains(e.Message, "--limits") {
				t.Errorf("%+v", ev)
			}
			if n := r.metrics.Refusals.Value(c.reason); n != 1 {
				t.Errorf("%d refused for %s, want 1", n, c.reason)
			}
			other := r.as(two)
			if !strings.Contains(c.limits, "queue") {
				other.send("other", func(q *wire.Request) { q.MaxTokens = 1 })
				h.arrived(1)
			}
			h.release()
			for i := range all {
				mine.Cancel(fmt.Sprint(i))
			}
			if !strings.Contains(c.limits, "queue") {
				if ev := other.end("other"); ev.Kind != wire.EventEOS {
					t.Errorf("another user: %+v", ev.Error)
				}
			}
		})
	}
}

// TestTokensPerMinute: a user that has overdrawn its minute waits; a prompt above user_cells is too large for ever.
func TestTokensPerMinute(t *testing.T) {
	r := serve(t, fake.Config{}, "--limits", "user_tokens_per_minute=20,user_cells=100")
	c := r.as(1001)
	send := func(id string, edit func(*wire.Request)) *wire.Event {
		c.send(id, edit)
		ev := c.end(id)
		return &ev
	}
	if ev := send("0", func(q *wire.Request) { q.MaxTokens = 30 }); ev.Kind != wire.EventEOS {
		t.Fatalf("%+v", ev.Error)
	}
	eventually(t, "its tokens are counted", func() bool { return r.room.Count() == 0 })
	if ev := send("1", nil); ev.Kind != wire.EventError || ev.Error.Code != wire.QueueLimit ||
		ev.Error.RetryAfter.Seconds() < 30 || !strings.Contains(ev.Error.Message, "user_tokens_per_minute") {
		t.Errorf("%+v", ev)
	}
	if n := r.metrics.Refusals.Value(admission.RefusedTokens); n != 1 {
		t.Errorf("%d refused for their tokens, want 1", n)
	}
	other := r.as(1002)
	other.send("2", func(q *wire.Request) { q.Prompt = strings.Repeat("long ", 30) })
	if ev := other.end("2"); ev.Kind != wire.EventError || ev.Error.Code != wire.PromptTooLarge ||
		!strings.Contains(ev.Error.Message, "user_cells") {
		t.Errorf("%+v", ev)
	}
	other.send("3", func(q *wire.Request) { q.MaxTokens = 1 })
	if ev := other.end("3"); ev.Kind != wire.EventEOS {
		t.Errorf("%+v", ev.Error)
	}
	r.nothingLeft()
}
