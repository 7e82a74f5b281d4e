package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestQuestionsBesideALongStep: kv and why are answered while a step is computed, and tell of requests that wait for
// its end.
func TestQuestionsBesideALongStep(t *testing.T) {
	computing, gate := make(chan struct{}, 64), make(chan struct{})
	r := serve(t, fake.Config{Advance: func(time.Duration) {
		computing <- struct{}{}
		<-gate
	}})
	ended := make(chan answer, 2)
	ask := func(id string) {
		c := r.dial()
		go func() { ended <- r.ask(c, func(q *wire.Request) { q.ID, q.MaxTokens = id, 1 }) }()
	}
	ask("first")
	waitfor.Recv(t, "a step is computed", computing)
	ask("second")
	l := r.loop.Load()
	waitfor.True(t, "the second request waits for the loop", func() bool { return len(l.arriving()) == 1 })

	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Limit)
	defer cancel()
	c := r.dial()
	why, err := c.Why(ctx, wire.WhyQuestion{Last: 10})
	if err != nil || len(why.Requests) != 2 || why.Requests[0].Request != "second" ||
		why.Requests[0].Decisions[0].Reason != "step_running" || why.Requests[1].Request != "first" ||
		why.Requests[1].State != "prefill" {
		t.Errorf("why: %+v, %v", why, err)
	}
	kv, err := c.KV(ctx, true)
	if err != nil || kv.Cells.Total == 0 || len(kv.Entries) != 1 || kv.Entries[0].Request != "first" || kv.Tree == "" {
		t.Errorf("kv: %+v, %v", kv, err)
	}
	if len(ended) > 0 {
		t.Error("a request has ended before its step")
	}
	close(gate)
	for range 2 {
		if a := waitfor.Recv(t, "an answer", ended); a.err != nil {
			t.Error(a.err)
		}
	}
	why, err = c.Why(ctx, wire.WhyQuestion{Request: "second"})
	if err != nil || len(why.Requests) != 1 || why.Requests[0].Number == 0 {
		t.Errorf("between two steps: %+v, %v", why, err)
	}
	r.nothingLeft()
}
