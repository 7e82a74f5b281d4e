package daemon

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched/price"
)

// priced serves an engine of which each prompt token takes a millisecond, with prices.
func priced(t *testing.T, args ...string) *running {
	t.Helper()
	return serveOverridden(t, slog.New(slog.DiscardHandler), fake.Config{Cost: fake.Cost{PrefillMs: 1},
		Advance: func(d time.Duration) { <-time.After(d) }},
		overrides{price: new(true)}, args...)
}

// TestPricesAreToldAndCounted: prefixes that do not fit into the pool together come back from memory, because their
// cells take far longer to compute; why and the metrics say so.
func TestPricesAreToldAndCounted(t *testing.T) {
	r := priced(t, "--cache-ram", "64MiB", "-c", "600")
	for pass := range 3 {
		for i := range 4 {
			a := r.ask(r.dial(), raw(unlike(i, 200), 2))
			if a.err != nil || pass > 0 && a.eos.Usage.CacheTier != wire.TierHost {
				t.Errorf("pass %d, prompt %d: %+v", pass, i, a)
			}
		}
	}
	if n := r.counter("kv_priced_total.host/restore"); n < 8 {
		t.Errorf("%v restores were counted", n)
	}
	if n := r.counter("kv_priced_total.host/copy"); n == 0 {
		t.Error("no copy was counted")
	}
	// The pool of 600 cells is the longest prompt that info tells of.
	if got := r.info().Prices; len(got) != 1 || got[0].Tier != wire.TierHost || got[0].Tokens != 600 ||
		!got[0].Used || got[0].RestoreMs <= 0 || got[0].ComputeMs <= got[0].RestoreMs {
		t.Errorf("info says %+v", got)
	}
	rep, err := r.dial().Why(context.Background(), wire.WhyQuestion{Last: 1})
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, d := range rep.Requests[0].Decisions {
		if d.Reason == "cells_restore" {
			found = d.Text
		}
	}
	if !strings.HasPrefix(found, "Restores ") || !strings.Contains(found, "that the host tier has: ") ||
		!strings.Contains(found, " are predicted, ") {
		t.Errorf("why says %q of %+v", found, rep.Requests[0].Decisions)
	}
}

// TestQueuedRequestsReadAhead: while a request is queued its cells are read from memory, and it starts with them.
func TestQueuedRequestsReadAhead(t *testing.T) {
	var held atomic.Bool
	step := make(chan struct{})
	r := serve(t, fake.Config{Advance: func(time.Duration) {
		if held.Load() {
			<-step
		}
	}}, "--cache-ram", "64MiB", "-c", "600", "--parallel", "1")
	c := r.dial()
	for i := range 4 { // the first one's cells are evicted
		if a := r.ask(c, raw(unlike(i, 200), 2)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	held.Store(true)
	ended := make(chan answer, 2)
	go func() { ended <- r.ask(r.dial(), raw(unlike(9, 20), 300)) }()
	step <- struct{}{} // it runs
	go func() { ended <- r.ask(r.dial(), raw(unlike(0, 200), 2)) }()
	eventually(t, "its cells are read", func() bool {
		select {
		case step <- struct{}{}:
		default:
		}
		return r.metrics.ReadAheads.Value() > 0
	})
	held.Store(false)
	close(step)
	for range 2 {
		a := waitfor.Recv(t, "both answer", ended)
		if a.err != nil {
			t.Error(a.err)
		}
		if a.eos.Usage.PromptTokens > 100 && a.eos.Usage.CacheTier != wire.TierHost {
			t.Errorf("the queued one's cells: %+v", a.eos.Usage)
		}
	}
	if n := r.counter("kv_read_ahead_total"); n != 1 {
		t.Errorf("%v restores were read ahead", n)
	}
}

// TestSlowFabricIsNotWaitedFor: no piece is waited for longer than computing it takes. The fabric falls silent; a
// prompt that takes 100 ms to compute is not held up for as long as a piece may take otherwise.
func TestSlowFabricIsNotWaitedFor(t *testing.T) {
	url, stall := stalls(t)
	r := priced(t, "--cache-ram", "64MiB", "--fabric", url, "--shutdown-timeout", "1s")
	c := r.dial()
	for i := range 9 { // so that computing is known
		if a := r.ask(c, raw(text(i, 40), 2)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	stall()
	var patience time.Duration
	ask := raw(text(50, 100), 2)
	want := solo(t, ask)
	if a := r.ask(c, ask); a.err != nil || a.text != want.text {
		t.Errorf("%+v, want %q", a, want.text)
	}
	r.inLoop(func(l *loop) { patience = l.core.Scheduler().ComputeTime(0, 32) })
	if patience == 0 || patience > 400*time.Millisecond { // tiers.TestPullLimit has the wait
		t.Errorf("computing a piece takes %v: the test shows nothing", patience)
	}
	eventually(t, "the fabric has been asked, and not answered in time",
		func() bool { return r.counter("disagg_errors_total.timeout") > 0 })
}

// TestPricedSeries: each tier and way has its own series.
func TestPricedSeries(t *testing.T) {
	m := metrics.New(metrics.Build{})
	for tier := metrics.Host; tier <= metrics.Fabric; tier++ {
		for way := price.WayRestore; way <= price.WayCompute; way++ {
			m.Priced(tier, int(way))
		}
	}
	m.Priced(metrics.Host, int(price.WayCopy))
	m.Priced(metrics.Host, int(price.WayDiscard))
	n := 0
	m.Visit(func(s metrics.Series) {
		if s.Key != "kv_priced_total" {
			return
		}
		n++
		if s.Value() != 1 {
			t.Errorf("%s is %v, want 1", s.Label, s.Value())
		}
	})
	if n != 11 {
		t.Errorf("%d series, want 11", n)
	}
}
