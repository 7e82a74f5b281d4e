package daemon

import (
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// thinker is the script of an engine that thinks about some questions and answers others at once.
var thinker = []fake.Script{
	{After: "think<|im_end|>\n<|im_start|>assistant\n", Emit: "<think>" + thoughts(120) + "</think>" + text(78, 100)},
	{Emit: text(79, 150)},
}

func asks(content string, tokens int) func(*wire.Request) {
	return func(q *wire.Request) { q.Messages[0].Content, q.MaxTokens = content, tokens }
}

// arrived waits until a command of this kind is in the loop's mailbox, or the loop has taken the second request.
func (r *running) arrived(kind commandKind) {
	r.t.Helper()
	l := r.loop.Load()
	eventually(r.t, "the command is in the mailbox, or the loop has it", func() bool {
		here := l.state.requests.Load() > 1
		l.mail.Each(func(c *command) { here = here || c.kind == kind })
		return here
	})
}

// TestThoughtGoesOutAndComesBack: the thought of a background request is pushed when it ends, in one batch of frames.
// An interactive request takes its place: the thought's cells go, the answer's stay. Then the thought is pulled back,
// and the answer goes on as if nothing had happened. In memory and on a fabric.
func TestThoughtGoesOutAndComesBack(t *testing.T) {
	question := asks(text(1, 60)+"think", 220)
	whole := serve(t, fake.Config{Scripts: thinker}, "-c", "4096")
	want := whole.ask(whole.dial(), question)
	if want.think == "" || want.text == "" || want.err != nil {
		t.Fatalf("%+v", want)
	}
	mr := miniredis.RunT(t)
	for _, c := range []struct {
		where string
		args  []string
	}{{"memory", nil}, {"fabric", []string{"--fabric", "redis://" + mr.Addr()}}} {
		t.Run(c.where, func(t *testing.T) {
			advance, more, release := paced(t, 0)
			r := serve(t, fake.Config{Scripts: thinker, Advance: advance},
				append([]string{"-c", "340", "--parallel", "1", "--cache-ram", "64MiB", "--think-evict", "offload",
					"--speculate", "off", // more(n) is n tokens
					"--policy", "uma"},
					c.args...)...)
			t.Cleanup(release)
			begun := r.begin(r.dial(), func(q *wire.Request) { question(q); q.Priority = wire.PriorityBackground })
			first, second := make(chan answer, 1), make(chan answer, 1)
			go func() { first <- collect(begun) }()
			more(150) // its prompt, its thought, some of its answer
			frames := r.loop.Load().stores.Thoughts
			eventually(t, "the thought is pushed", func() bool {
				n, _ := frames.Moved(mrdn.ThinkComplete)
				return n == 121/16
			})
			if c.where == "memory" { // the loop waits: it could not answer kv
				host := r.loop.Load().stores.Tiers()[0]
				if host.Entries == 0 || host.Bytes == 0 || host.PagesOut != 112 || host.CapBytes != 64<<20 {
					t.Errorf("the host tier is said to hold %+v", host)
				}
			}
			other := r.begin(r.dial(), asks("hi", 150)) // a longer prompt would be asked of the fabric first
			go func() { second <- collect(other) }()
			r.arrived(cmdArrive)
			release()
			if got := <-second; got.err != nil || got.tokens != 150 {
				t.Errorf("the interactive request: %+v", got)
			}
			if got := <-first; got.err != nil || got.text != want.text || got.think != want.think {
				t.Errorf("%+v, alone %+v", got, want)
			}
			if n := r.counter("thought_ingests_total"); n != 1 {
				t.Errorf("%v thoughts came back, want 1", n)
			}
			r.inLoop(func(l *loop) {
				e := l.core.Ledger().Evictions()
				if e.Cells[blocks.ThinkComplete][blocks.Pressure] == 0 ||
					e.Cells[blocks.OutputCritical][blocks.Pressure] > 0 {
					t.Errorf("evicted for want of cells: %v", e.Cells)
				}
				// On a fabric prompts travel under the same tier.
				if _, in := l.stores.Thoughts.Moved(mrdn.ThinkComplete); in < 121/16 ||
					l.core.Ledger().Offloaded() != 0 {
					t.Errorf("%d blocks were pulled, %d cells are outside", in, l.core.Ledger().Offloaded())
				}
			})
			if c.where == "fabric" {
				out := r.counter("disagg_tier_offloaded_total.think_complete")
				if in := r.counter("disagg_tier_ingested_total.think_complete"); out == 0 || in == 0 {
					t.Errorf("%v blocks pushed and %v pulled, by the tier on their frames", out, in)
				}
			}
			r.nothingLeft()
		})
	}
}

// TestThoughtsUnderPressure: 32 sessions that want three times the pool, with their thoughts offloaded: every answer
// is the one with room for all, and no block of an answer goes while lower tiers have any.
func TestThoughtsUnderPressure(t *testing.T) {
	for _, policy := range sched.Policies() {
		r := oversubscribe(t, 32, 32*280/3, "--policy", policy, "--cache-ram", "64MiB", "--think-evict", "offload")
		r.inLoop(func(l *loop) {
			t.Logf("%s: %v preemptions; evicted for want of cells: %v; %v thoughts came back", policy,
				r.counter("preemptions_total"), l.core.Ledger().Evictions().Cells, l.m.ThoughtIngests.Value())
			if l.core.Avoidable() != 0 {
				t.Errorf("%s: %d blocks of answers were taken while others had cells to give", policy,
					l.core.Avoidable())
			}
		})
	}
}

// TestDroppedThought: with --think-evict drop a finished thought leaves the context when cells run low. The answer
// goes on without it and has its length; the rest of the history keeps its order, and nothing of it is cached for a
// next turn beyond what stands before the thought.
func TestDroppedThought(t *testing.T) {
	for _, evict := range []string{core.KeepThoughts, core.DropThoughts} {
		r := serve(t, fake.Config{Scripts: thinker, Template: keepsThinking}, "-c", "280", "--parallel", "2",
			"--think-evict", evict)
		a := r.ask(r.dial(), asks(text(1, 40)+"think", 200))
		if a.err != nil || a.think != thoughts(120)[:len(a.think)] || a.eos.Reason != wire.Length ||
			a.eos.Usage.CompletionTokens != 200 {
			t.Fatalf("%s: %+v", evict, a)
		}
		r.nothingLeft()
		kept, prompt := 0, a.eos.Usage.PromptTokens
		r.inLoop(func(l *loop) {
			for _, e := range l.core.Tree().Entries(nil) {
				kept = max(kept, e.Tokens)
			}
		})
		if evict == core.DropThoughts {
			if kept < prompt || kept > prompt+1 {
				t.Errorf("drop: %d tokens are cached behind a prompt of %d", kept, prompt)
			}
		} else if kept < prompt+190 {
			t.Errorf("%s: %d tokens are cached behind a prompt of %d and 200 of an answer", evict, kept, prompt)
		}
	}
}
