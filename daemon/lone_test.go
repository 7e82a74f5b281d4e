//go:build cgo && (llama_engine || llama_system)

package daemon

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// slowModel computes a prompt of some thousand tokens in seconds on one thread.
func slowModel() ggufgen.Config {
	c := ggufgen.Tiny()
	c.Name, c.Type, c.Embedding, c.Layers, c.Heads, c.KVHeads, c.FFN, c.Context = "ggufgen-slow", ggufgen.F16, 512, 12,
		8, 2, 2048, 8192
	return c
}

// computed is the processor time that this process used so far: what a wait would be on a machine that has nothing else
// to do, where one thread computes.
func computed(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestLonePromptShowsLife: a prompt that is computed alone, the first one after the first start, tells how far it is
// within 500 ms of computing and from then on, to a streaming client that did not ask for it; and a cancel ends it
// within 250 ms. Under stock, whose steps are as long as the batch, the first event comes before the step, and a cancel
// breaks it off.
func TestLonePromptShowsLife(t *testing.T) {
	path := ggufgen.Cached(t, slowModel())
	for _, policy := range []string{"meridian", "uma", "stock"} {
		t.Run(policy, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing was learned yet
			r := serveModel(t, path, "-c", "8192", "--policy", policy, "--cache-ram", "0")
			c := r.dial()
			for _, what := range []string{"first", "second"} {
				q := wire.DefaultRequest()
				q.ID, q.Prompt, q.MaxTokens = what, strings.Repeat(what+" words of a long text. ", 280), 1
				begin := computed(t)
				st, err := c.Stream(context.Background(), &q)
				if err != nil {
					t.Fatal(err)
				}
				var seen []wire.Progress
				var first time.Duration
				for len(seen) == 0 || policy != "stock" && len(seen) < 3 {
					ev, err := st.Next()
					if err != nil || ev.Kind != wire.EventProgress {
						t.Fatalf("after %d progress events: %+v %v; is the model still slow?", len(seen), ev, err)
					}
					if seen = append(seen, ev.Progress); first == 0 {
						first = computed(t) - begin
					}
				}
				for i, p := range seen {
					if p.Total < 2000 || p.Processed >= p.Total || i > 0 &&
						(p.Processed <= seen[i-1].Processed || p.Processed-seen[i-1].Processed > p.Total/4) {
						t.Errorf("%s prompt, progress %d: %+v after %+v", what, i, p, seen[max(0, i-1)])
					}
				}
				begin = computed(t)
				if err := st.Cancel(); err != nil {
					t.Fatal(err)
				}
				a := collect(st)
				took := computed(t) - begin
				if a.err != nil || a.eos.Reason != wire.Cancelled {
					t.Errorf("%+v", a)
				}
				t.Logf("%s prompt of %d tokens: first progress after %v, cancelled in %v", what, seen[0].Total, first,
					took)
				if first > 500*time.Millisecond || took > 250*time.Millisecond {
					t.Errorf("%s prompt: first progress after %v, cancelled in %v", what, first, took)
				}
			}
			// What was broken off is in the way of nothing.
			if _, u := r.rows("a short one", 3); u.CompletionTokens != 3 {
				t.Errorf("%+v", u)
			}
			r.nothingLeft()
		})
	}
}

// A client says that it wants no progress events and gets none.
func TestProgressOptOut(t *testing.T) {
	r := serveModel(t, ggufgen.Cached(t, slowModel()), "-c", "8192", "--cache-ram", "0")
	q := wire.DefaultRequest()
	q.Prompt, q.MaxTokens, q.NoProgress = strings.Repeat("words of a long text. ", 120), 1, true
	st, err := r.dial().Stream(context.Background(), &q)
	if err != nil {
		t.Fatal(err)
	}
	for {
		ev, err := st.Next()
		switch {
		case err != nil || ev.Kind == wire.EventProgress:
			t.Fatalf("%+v %v", ev, err)
		case ev.Kind == wire.EventEOS:
			return
		}
	}
}

// BenchmarkLonePrompt prints how fast a prompt of 4,000 tokens is computed alone in the steps of meridian, and
// of-stock, as a share of the speed in those of stock. The model is shaped like SmolLM-135M.
func BenchmarkLonePrompt(b *testing.B) {
	const prompt, cells = 4000, 4096
	e, err := llama.Open(runtime.Options{ModelPath: ggufgen.Cached(b, ggufgen.Bench135M()), ContextTokens: cells,
		Batch: 2048, MicroBatch: 512, Sequences: 8, GPULayers: -1,
		FlashAttn: "auto", KVTypeK: "f16", KVTypeV: "f16"})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	type side struct {
		s     *sched.Scheduler
		now   sched.Instant
		next  sched.ReqID
		took  time.Duration
		steps int
	}
	newSide := func(policy string) *side {
		s, err := sched.New(sched.Config{Policy: policy, MaxRunning: 4, Cells: cells, MaxBatch: 2048, MaxQueue: 4,
			FirstPrefill: sched.DefaultFirstPrefill, SoloBudget: opening.SoloBudget, SoloLimit: opening.SoloLimit})
		if err != nil {
			b.Fatal(err)
		}
		return &side{s: s}
	}
	run := func(d *side) (took time.Duration) {
		d.next++
		events := []sched.Event{sched.EvArrive{Req: d.next, Spec: &sched.Spec{Prompt: prompt, MaxTokens: 1}}}
		for {
			plan := d.s.Step(d.now, sched.List(events...))
			if len(plan.Batch) != 1 {
				b.Fatalf("%+v", plan)
			}
			sl := plan.Batch[0]
			batch := e.Batch()
			batch.Reset()
			for i := range sl.N {
				batch.Add(runtime.Token(300+(sl.Start+i)*7%150), runtime.Pos(sl.Start+i), 0, i == sl.N-1 && sl.Row >= 0)
			}
			begin := time.Now()
			if err := e.Decode(); err != nil {
				b.Fatal(err)
			}
			step := time.Since(begin)
			took += step
			d.steps++
			d.now = d.now.Add(step)
			events = append(events[:0], sched.EvStep{Took: step})
			if sl.Row >= 0 {
				d.s.Step(d.now, sched.List(append(events,
					sched.EvFinish{Req: d.next, Reason: reason.Stop})...))
				e.SeqRemove(0, 0, -1)
				return took
			}
		}
	}
	meridian, stock := newSide("meridian"), newSide("stock")
	run(meridian) // it learns the machine
	run(stock)
	meridian.steps, stock.steps = 0, 0
	for b.Loop() {
		// By turns, so that a machine that becomes slower is so for both.
		meridian.took += run(meridian)
		stock.took += run(stock)
	}
	n := float64(b.N)
	b.ReportMetric(prompt*n/meridian.took.Seconds(), "tokens/s")
	b.ReportMetric(stock.took.Seconds()/meridian.took.Seconds(), "of-stock")
	b.ReportMetric(float64(meridian.took.Milliseconds())/float64(meridian.steps), "ms/step")
	b.ReportMetric(float64(meridian.steps)/n, "steps")
}
