package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/trace"
)

func TestContextShiftGoesOnWhereTheContextIsFull(t *testing.T) {
	const nCtx = 256
	for _, shift := range []bool{false, true} {
		r := serve(t, fake.Config{}, "--ctx-size", fmt.Sprint(nCtx), "--parallel", "2",
			fmt.Sprintf("--context-shift=%v", shift))
		a := r.ask(r.dial(), func(q *wire.Request) {
			q.Messages, q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS = nil, "once upon a time", 1000, true
		})
		if a.err != nil || a.eos.Reason != wire.Length {
			t.Fatalf("shift %v: %v, ended by %q", shift, a.err, a.eos.Reason)
		}
		n := a.eos.Usage.CompletionTokens
		if want := 1000; shift && n != want {
			t.Errorf("with a shifting context %d tokens came, want %d", n, want)
		}
		if !shift && n != nCtx-a.eos.Usage.PromptTokens {
			t.Errorf("without it %d tokens came, want what the context has room for, %d", n,
				nCtx-a.eos.Usage.PromptTokens)
		}
		if shifts := r.metrics.ContextShift.Value(); (shifts > 0) != shift {
			t.Errorf("shift %v: %d shifts counted", shift, shifts)
		}
	}
}

func TestContextShiftBesideOthers(t *testing.T) {
	r := serve(t, fake.Config{}, "--ctx-size", "256", "--parallel", "4", "--context-shift", "--policy", "meridian")
	var all sync.WaitGroup
	for i := range 6 {
		c := r.dial()
		all.Go(func() {
			a := r.ask(c, func(q *wire.Request) {
				q.Messages, q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS = nil, fmt.Sprintf("story %d", i%3), 400, true
			})
			if a.err != nil || a.eos.Usage.CompletionTokens != 400 {
				t.Errorf("request %d: %v, %d tokens", i, a.err, a.eos.Usage.CompletionTokens)
			}
		})
	}
	all.Wait()
}

// TestTraceReplays: what --trace records is a run of the scheduler, to the last plan.
func TestTraceReplays(t *testing.T) {
	for _, policy := range sched.Policies() {
		t.Run(policy, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "trace")
			r := serve(t, fake.Config{}, "--ctx-size", "512", "--parallel", "3", "--policy", policy, "--trace", file)
			var all sync.WaitGroup
			for i := range 8 {
				c := r.dial()
				all.Go(func() {
					for turn := range 3 {
						r.ask(c, func(q *wire.Request) {
							q.Messages[0].Content = fmt.Sprintf("the same beginning of %d questions, and turn %d", i%4,
								turn)
							q.MaxTokens, q.Sampling.IgnoreEOS = 20+i*7, true
						})
					}
				})
			}
			all.Wait()
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			recorded, err := trace.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			steps := 0
			if err := recorded.Replay(func(*trace.Step, *sched.Plan) { steps++ }); err != nil {
				t.Fatal(err)
			}
			if steps < 100 {
				t.Errorf("only %d steps were recorded", steps)
			}
		})
	}
}
