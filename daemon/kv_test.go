package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// The join of scheduler, prefix tree and engine, seen from a client. The fake engine's output is a function of exactly
// the cells a sequence holds, so an answer that equals the one of a daemon with room for everything proves that
// sharing, eviction, restores and preemption left every cell in its place.

// taskFunc is a function as a task.
type taskFunc func(l *loop)

func (f taskFunc) run(l *loop, _ time.Time) { f(l) }

// inLoop runs fn on the decode loop, between two steps.
func (r *running) inLoop(fn func(l *loop)) {
	r.t.Helper()
	done := make(chan struct{})
	if !r.loop.Load().mail.Put(command{kind: cmdTask, task: taskFunc(func(l *loop) { fn(l); close(done) })}) {
		r.t.Fatal("the loop has ended")
	}
	<-done
}

// settled waits until ended chats have become cached prefixes, restores are over and copies are made, and holds the
// books against each other.
func (r *running) settled() {
	r.t.Helper()
	r.nothingLeft()
	eventually(r.t, "ended chats are cached", func() (ok bool) {
		r.inLoop(func(l *loop) {
			// A request's end is told before the step in which it gives its sequence up.
			ok = l.core.Quiet() && l.core.Tree().Stats().Runs == 0
		})
		return ok
	})
	r.inLoop(func(l *loop) {
		if st := l.core.Tree().Stats(); st.Runs != 0 {
			r.t.Errorf("%d sequences run with nothing running", st.Runs)
		}
		if c := l.core.Tree().Cells(); c.Own != 0 || c.Shared != 0 {
			r.t.Errorf("cells without an owner: %+v", c)
		}
		if len(l.requests) != 0 || l.stalled != 0 {
			r.t.Errorf("left over: %d requests, %d stalled", len(l.requests), l.stalled)
		}
		if err := l.core.Tree().Check(); err != nil {
			r.t.Error(err)
		}
		if used, c := r.engine.Used(), l.core.Tree().Cells(); used != l.model.caps.ContextTokens-c.Free {
			r.t.Errorf("the engine holds %d cells, the tree %d", used, l.model.caps.ContextTokens-c.Free)
		}
	})
}

// counter reads numbers of the metrics snapshot; path is "a" or "a.b".
func (r *running) counter(path string) float64 {
	r.t.Helper()
	var m map[string]any
	if err := json.Unmarshal(r.metrics.AppendJSON(nil), &m); err != nil {
		r.t.Fatal(err)
	}
	var v any = m
	for _, k := range strings.Split(path, ".") {
		t, ok := v.(map[string]any)
		if !ok {
			r.t.Fatalf("%s: no such number", path)
		}
		v = t[k]
	}
	f, ok := v.(float64)
	if !ok {
		r.t.Fatalf("%s is %v", path, v)
	}
	return f
}

// text makes n bytes (tokens, on the fake engine) that differ from seed to seed from the first one on.
func text(seed, n int) string {
	rng := rand.New(rand.NewPCG(uint64(seed), 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	return string(b)
}

// unlike is text that differs from that of each other i below 26 from its first byte on.
func unlike(i, n int) string { return string(rune('A'+i)) + text(100+i, n-1) }

// raw makes a request of a raw prompt.
func raw(prompt string, tokens int) func(*wire.Request) {
	return func(q *wire.Request) { q.Messages, q.Prompt, q.MaxTokens = nil, prompt, tokens }
}

// keepsThinking is a template that renders past thinking; ChatML, the default, drops it.
const keepsThinking = `{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\n' }}` +
	`{%- if message['reasoning_content'] %}{{- '<think>' + message['reasoning_content'] + '</think>' }}{%- endif %}` +
	`{{- message['content'] + '<|im_end|>\n' }}{%- endfor %}` +
	`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

func TestSecondTurnIsWarm(t *testing.T) {
	script := []fake.Script{{Emit: "<think>let me see, a thought</think>It is 42."}}
	for name, c := range map[string]struct {
		template string
		cached   func(first wire.Usage) int
	}{
		"past thinking is dropped": {"", func(u wire.Usage) int { return u.PromptTokens }},
		// The token that ended the answer was sampled, not computed.
		"past thinking is kept": {keepsThinking, func(u wire.Usage) int {
			return u.PromptTokens + u.CompletionTokens -
				1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, fake.Config{Scripts: script, Template: c.template})
			cl := r.dial()
			first := r.ask(cl, nil)
			if first.err != nil || first.eos.Usage.CachedTokens != 0 || first.eos.Usage.CacheTier != wire.TierNone ||
				first.eos.Usage.CacheMiss == "" {
				t.Fatalf("first turn: %+v", first)
			}
			r.settled()
			second := r.ask(cl, func(q *wire.Request) {
				q.Messages = append(q.Messages,
					wire.Message{Role: "assistant", Content: first.text, ReasoningContent: first.think},
					wire.Message{Role: "user", Content: "and then?"})
			})
			u := second.eos.Usage
			if want := c.cached(first.eos.Usage); second.err != nil || u.CachedTokens != want ||
				u.CacheTier != wire.TierDevice {
				t.Errorf("second turn: %d tokens cached in %v, want %d on the device; %+v", u.CachedTokens, u.CacheTier,
					want, second)
			}
			if second.text != first.text || second.think != first.think {
				t.Errorf("second turn said %q / %q", second.think, second.text)
			}
			// The same prompt again is all there but the token whose logits are wanted.
			again := r.ask(cl, nil)
			if u := again.eos.Usage; u.CachedTokens != u.PromptTokens-1 || u.CacheMiss != "" {
				t.Errorf("the first turn again: %+v", u)
			}
			r.settled()
		})
	}
}

func TestMissSaysWhere(t *testing.T) {
	r := serve(t, fake.Config{})
	c := r.dial()
	common := text(1, 100)
	r.ask(c, raw(common+"xxxxxxxxxxxxxxxxxxxxxxxx", 1))
	a := r.ask(c, raw(common+"yyyyyyyyyyyyyyyyyyyyyyyy", 1))
	if u := a.eos.Usage; u.CachedTokens != 100 || u.CacheTier != wire.TierDevice ||
		u.CacheMiss != "diverged at token 100 of 124" {
		t.Errorf("%+v", u)
	}
	r.settled()
}

// 16 requests that share a prefix, 4 at a time: it is computed once, by the first of them; the three beside it wait.
func TestSharedPrefixIsComputedOnce(t *testing.T) {
	const prefix, unique, n = 512, 32, 16
	r := serve(t, fake.Config{}, "--parallel", "4", "-b", "64", "-c", "8192")
	shared := text(1, prefix)
	ask := func(c *wireclient.Client, i int) answer { return r.ask(c, raw(shared+unlike(i, unique), 4)) }
	// One by one, each on a new daemon, with the expected answer.
	alone := serve(t, fake.Config{}, "--no-prefix-cache")
	var wg sync.WaitGroup
	var mu sync.Mutex
	next, computed := 0, 0
	h := r.hold() // until the first four are there
	for range 4 {
		c, c2 := r.dial(), alone.dial()
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				got := ask(c, i)
				want := alone.ask(c2, raw(shared+unlike(i, unique), 4))
				if got.err != nil || got.text != want.text {
					t.Errorf("request %d: %+v, alone %+v", i, got, want)
				}
				mu.Lock()
				computed += got.eos.Usage.PromptTokens - got.eos.Usage.CachedTokens
				mu.Unlock()
			}
		})
	}
	h.arrived(4)
	h.release()
	wg.Wait()
	r.settled()
	if want := prefix + n*unique; computed != want {
		t.Errorf("the requests say that %d prompt tokens were computed, want %d", computed, want)
	}
	if got := r.counter("prefill_tokens_merged_total"); got != prefix+n*unique {
		t.Errorf("%v prompt tokens were computed, want %d", got, prefix+n*unique)
	}
	if got := r.counter("kv_joins_total"); got != 3 {
		t.Errorf("%v requests waited for the first one's prompt, want 3", got)
	}
}

// Those who wait for a prompt that another request computes go on whatever becomes of it.
func TestOwnerOfAJoinedPromptGoes(t *testing.T) {
	shared := text(1, 2000)
	want := func() string {
		r := serve(t, fake.Config{}, "--no-prefix-cache")
		return r.ask(r.dial(), raw(shared+"tail", 8)).text
	}()
	ask := func(r *running, wg *sync.WaitGroup) {
		for range 2 {
			c := r.dial()
			wg.Go(func() {
				if a := r.ask(c, raw(shared+"tail", 8)); a.err != nil || a.text != want {
					t.Errorf("a joiner: %+v, want %q", a, want)
				}
			})
		}
	}
	// join returns with the loop held, in the middle of the owner's prompt.
	join := func(r *running, h *held, wg *sync.WaitGroup) {
		ask(r, wg)
		h.arrived(2)
		h.steps("both wait", func() bool { h.loop.publish(); return r.counter("kv_joins_total") >= 2 })
	}
	start := func(r *running, c *wireclient.Client, id string) (*wireclient.Stream, *held) {
		h := r.hold()
		before := r.counter("prefill_tokens_merged_total")
		q := wire.DefaultRequest()
		q.ID, q.Prompt, q.MaxTokens, q.Progress = id, shared+"owner", 8, true
		st, err := c.Stream(context.Background(), &q)
		if err != nil {
			t.Fatal(err)
		}
		h.arrived(1)
		h.steps("it computes", func() bool { return r.counter("prefill_tokens_merged_total") > before })
		return st, h
	}
	t.Run("cancelled", func(t *testing.T) {
		r := serve(t, fake.Config{}, "-b", "16")
		c := r.dial()
		st, h := start(r, c, "owner")
		var wg sync.WaitGroup
		join(r, h, &wg)
		c.Cancel(t.Context(), "owner")
		h.mailed("the cancel has come", cmdCancel, 1)
		h.release()
		wg.Wait()
		if a := collect(st); a.eos.Reason != wire.Cancelled {
			t.Errorf("the owner: %+v", a)
		}
		r.settled()
		if got := r.counter("prefill_tokens_merged_total"); got > 2*2010 {
			t.Errorf("%v prompt tokens were computed: what the owner had was lost", got)
		}
	})
	t.Run("its client vanishes", func(t *testing.T) {
		r := serve(t, fake.Config{}, "-b", "16")
		c := r.dial()
		_, h := start(r, c, "owner")
		var wg sync.WaitGroup
		join(r, h, &wg)
		c.Close()
		h.mailed("its end cancels", cmdCancel, 1)
		h.release()
		wg.Wait()
		r.settled()
	})
	// The owner's client stops reading while they wait.
	t.Run("stalled", func(t *testing.T) {
		r := serve(t, fake.Config{}, "-b", "16")
		st, h := start(r, r.dial(), "owner")
		var wg sync.WaitGroup
		join(r, h, &wg)
		waiting := 0
		for _, o := range h.loop.requests {
			if o.Waiting() {
				waiting++
			}
		}
		for _, o := range h.loop.requests {
			if o.wireID == "owner" {
				h.loop.handle(core.Input{Kind: core.Pause, Req: o.ID}, time.Now())
			}
		}
		for _, o := range h.loop.requests {
			if o.Waiting() || waiting != 2 {
				t.Errorf("%d waited, and %s still waits for the stalled request: %v", waiting, o.wireID, o.Waiting())
			}
		}
		h.release()
		wg.Wait()
		r.inLoop(func(l *loop) {
			for _, o := range l.requests {
				l.handle(core.Input{Kind: core.Resume, Req: o.ID}, time.Now())
			}
		})
		collect(st)
		r.settled()
	})
	// The owner's client reads nothing: its progress event finds no room and it is paused within its prompt.
	t.Run("paused", func(t *testing.T) {
		r := serve(t, fake.Config{}, "-b", "16", "-c", "1000000", "--stall-timeout", "1h")
		c := r.dial()
		flood := wire.DefaultRequest()
		flood.ID, flood.Prompt, flood.Sampling.Logprobs = "flood", "endless", 20
		if _, err := c.Stream(context.Background(), &flood); err != nil {
			t.Fatal(err)
		}
		eventually(t, "nothing more fits into the connection", func() bool { return r.metrics.Scheduler().Paused == 1 })
		_, h := start(r, c, "owner")
		h.steps("the owner is paused", func() bool {
			for _, o := range h.loop.requests {
				if o.wireID == "owner" {
					o.lastProgress = time.Time{} // an event a step, until one finds no room
					return o.paused
				}
			}
			return false
		})
		var wg sync.WaitGroup
		ask(r, &wg)
		h.arrived(2)
		h.release()
		wg.Wait() // an hour, if the joiners waited for the owner
		c.Close()
		r.settled()
	})
	// Decodes that fail take the owner's cells with them.
	t.Run("failed", func(t *testing.T) {
		r := serve(t, fake.Config{}, "-b", "16")
		st, h := start(r, r.dial(), "owner")
		var wg sync.WaitGroup
		join(r, h, &wg)
		r.engine.failStep(2, fmt.Errorf("device lost"))
		h.release()
		wg.Wait()
		if a := collect(st); a.code() != wire.RuntimeDecode {
			t.Errorf("the owner: %+v", a)
		}
		r.settled()
	})
}

func TestNoPrefixCache(t *testing.T) {
	r := serve(t, fake.Config{}, "--no-prefix-cache")
	c := r.dial()
	for range 3 {
		if a := r.ask(c, raw(text(1, 200), 4)); a.err != nil || a.eos.Usage.CachedTokens != 0 ||
			a.eos.Usage.CacheTier != wire.TierNone {
			t.Errorf("%+v", a)
		}
	}
	r.settled()
	if got := r.counter("prefill_tokens_merged_total"); got != 600 {
		t.Errorf("%v prompt tokens were computed, want 600", got)
	}
	if used := r.engine.Used(); used != 0 {
		t.Errorf("%d cells stay in use", used)
	}
}

// Memory that cannot be cut: a conversation that only grows is continued, everything else is computed.
func TestWholeSequencesOnly(t *testing.T) {
	script := []fake.Script{{Emit: "<think>hm hm hm</think>It is 42."}}
	r := serve(t, fake.Config{NoRanges: true, Scripts: script, Template: keepsThinking}, "-c", "600")
	c := r.dial()
	q := func(q *wire.Request) { q.Messages[0].Content = text(1, 100) }
	first := r.ask(c, q)
	r.settled()
	second := r.ask(c, func(w *wire.Request) {
		q(w)
		w.Messages = append(w.Messages, wire.Message{Role: "assistant", Content: first.text,
			ReasoningContent: first.think}, wire.Message{Role: "user", Content: "and then?"})
	})
	if u, want := second.eos.Usage, first.eos.Usage.PromptTokens+
		first.eos.Usage.CompletionTokens-1; second.err != nil || u.CachedTokens != want ||
		u.CacheTier != wire.TierDevice {
		t.Errorf("the next turn: %+v, want %d cached", u, want)
	}
	r.settled()
	// It cannot be shared in parts, nor twice at once; nothing goes wrong all the same.
	alone := serve(t, fake.Config{Scripts: script, Template: keepsThinking}, "--no-prefix-cache")
	c2 := alone.dial()
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			edit := func(w *wire.Request) { w.Messages[0].Content = text(1, 100) + text(i%3, 40) }
			got, want := r.ask(c, edit), alone.ask(c2, edit)
			if got.err != nil || got.text != want.text {
				t.Errorf("request %d: %+v, alone %+v", i, got, want)
			}
		})
	}
	wg.Wait()
	r.settled()
}

// Two users see nothing of each other: neither cells, nor that they exist.
func TestNamespaces(t *testing.T) {
	const stranger = 54321
	for _, kind := range []string{"off", "system", "off, states", "system, states"} {
		t.Run(kind, func(t *testing.T) {
			share, _, states := strings.Cut(kind, ", ")
			r := serve(t, fake.Config{NoRanges: states}, "--share-prefixes", share, "-c", "2000")
			c := r.dial()
			system := text(1, 100)
			a := r.ask(c, func(q *wire.Request) {
				q.Messages = []wire.Message{{Role: "system", Content: system}, {Role: "user", Content: text(2, 100)}}
				q.MaxTokens = 3
			})
			if a.err != nil {
				t.Fatal(a.err)
			}
			r.settled()
			m := r.model.Load()
			_, tokens, bad := m.Render(0, &wire.Request{Messages: []wire.Message{
				{Role: "system", Content: system}, {Role: "user", Content: text(2, 100)}}}, nil)
			if bad != nil {
				t.Fatal(bad)
			}
			want := 0
			if share == "system" {
				want = len("(system\n") + len(system) + len(")\n") // a marker is one token
			}
			r.inLoop(func(l *loop) {
				got := l.core.Tree().Lookup(&kvsnap.Prompt{Req: 1 << 40, NS: stranger, Tokens: tokens})
				if got.Len != want {
					t.Errorf("a stranger shares %d tokens, want %d: %+v", got.Len, want, got)
				}
				if want == 0 && (got.Reason != kvsnap.ReasonNothing || got.Ahead != 0) {
					t.Errorf("a stranger learns of it: %+v", got)
				}
				now := time.Now()
				if rep := l.kvReport(true, stranger, now); len(rep.Entries) != 0 ||
					strings.Contains(rep.Tree, "tokens") {
					t.Errorf("kv shows a stranger %+v", rep)
				}
				if rep := l.why(wire.WhyQuestion{Last: 10}, stranger, now); len(rep.Requests) != 0 {
					t.Errorf("why tells a stranger %+v", rep)
				}
				before := l.core.Tree().Stats().Entries
				for _, op := range []wire.KVOp{wire.KVDrop, wire.KVPin, wire.KVSave} {
					if done, _, err := l.stores.Command(wire.KVQuestion{Op: op, Target: "all"}, stranger); err != nil ||
						done.Done != 0 {
						t.Errorf("%v by a stranger: %+v, %v", op, done, err)
					}
				}
				if l.core.Tree().Stats().Entries != before || before == 0 {
					t.Errorf("%d of %d prefixes are left", l.core.Tree().Stats().Entries, before)
				}
			})
			if again := r.ask(c, func(q *wire.Request) {
				q.Messages = []wire.Message{{Role: "system", Content: system}, {Role: "user", Content: text(2, 100)}}
			}); again.eos.Usage.CachedTokens != again.eos.Usage.PromptTokens-1 && !states ||
				again.eos.Usage.CachedTokens < again.eos.Usage.PromptTokens-len("\n(assistant\n") {
				t.Errorf("its owner: %+v", again.eos.Usage)
			}
			r.settled()
		})
	}
}

// What is dropped is dropped in memory and on disk too, and what others begin with stays; a stored part has a name too.
func TestDropTakesTheCopies(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "kv")
	r := serve(t, fake.Config{}, "-c", "2000", "--cache-ram", "16MiB", "--cache-dir", dir)
	c := r.dial()
	a, b := text(0, 200)+unlike(0, 200), text(0, 200)+unlike(1, 200)
	names := func(kind string) (out []string) {
		rep, err := c.KV(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range rep.Entries {
			if e.Kind == kind {
				out = append(out, e.Name)
			}
		}
		return out
	}
	r.ask(c, raw(a, 2))
	r.settled()
	first := names("prefix")
	r.ask(c, raw(b, 2))
	r.settled()
	if done, err := c.KVDo(ctx, wire.KVSave, "all"); err != nil || done.Done != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	eventually(t, "both are on disk", func() bool { return len(files(t, dir)) == len(names("snapshot")) })
	before := len(names("snapshot"))
	if done, err := c.KVDo(ctx, wire.KVDrop, first[0]); err != nil || done.Done != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if left := len(names("snapshot")); left == 0 || left >= before {
		t.Errorf("of %d stored parts %d are left", before, left)
	}
	eventually(t, "its files are gone", func() bool { return len(files(t, dir)) == len(names("snapshot")) })
	r.evictAll()
	// From b's copies.
	if got := r.ask(c, raw(a, 2)); got.err != nil || got.eos.Usage.CachedTokens != 200 ||
		got.eos.Usage.CacheTier != wire.TierHost {
		t.Errorf("what was dropped: %+v", got.eos.Usage)
	}
	r.settled()
	if got := r.ask(c, raw(b, 2)); got.err != nil || got.eos.Usage.CachedTokens < 384 {
		t.Errorf("what was not dropped: %+v", got.eos.Usage)
	}
	r.settled()

	name := names("snapshot")[0] // the beginning of both
	for _, op := range []wire.KVOp{wire.KVPin, wire.KVUnpin, wire.KVSave, wire.KVDrop} {
		if done, err := c.KVDo(ctx, op, name); err != nil || done.Done != 1 || done.Tokens == 0 {
			t.Errorf("%v of a stored part: %+v, %v", op, done, err)
		}
	}
	eventually(t, "nothing is stored", func() bool { return len(names("snapshot")) == 0 && len(files(t, dir)) == 0 })
	if _, err := c.KVDo(ctx, wire.KVDrop, name); err == nil {
		t.Error("a stored part was dropped twice")
	}
}

// kv and why over the wire.
func TestInsideOverTheWire(t *testing.T) {
	ctx := context.Background()
	r := serve(t, fake.Config{}, "-c", "2000", "--cache-ram", "16MiB")
	c := r.dial()
	for i := range 3 {
		r.ask(c, raw(text(i, 200), 2))
	}
	r.settled()
	rep, err := c.KV(ctx, true)
	if err != nil || len(rep.Entries) != 3 || rep.Cells.Cached != 3*201 || rep.Cells.Total != 2000 || rep.Tree == "" ||
		len(rep.Tiers) < 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if c := rep.Cells; c.Own+c.Shared+c.Cached+c.Pinned+c.Free != c.Total {
		t.Errorf("%+v", c)
	}
	eventually(t, "the metrics say the same", func() bool {
		return r.counter("kv_cells_cached") == 3*201 && r.counter("kv_cells_live") == 0 &&
			r.counter("kv_cells_total") == 2000
	})
	name := rep.Entries[1].Name
	for _, step := range []struct {
		op     wire.KVOp
		target string
		done   int
		pinned int
		left   int
	}{
		{wire.KVPin, name, 1, 201, 3},
		{wire.KVUnpin, name, 1, 0, 3},
		{wire.KVSave, name, 1, 0, 3},
		{wire.KVPin, name, 1, 201, 3},
		{wire.KVDrop, name, 1, 0, 2},
		{wire.KVDrop, "all", 2, 0, 0},
	} {
		done, err := c.KVDo(ctx, step.op, step.target)
		if err != nil || done.Done != step.done || done.Tokens != 201*step.done {
			t.Errorf("%v %s: %+v, %v", step.op, step.target, done, err)
		}
		rep, err := c.KV(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, e := range rep.Entries {
			if e.Kind == "prefix" {
				left++
			}
		}
		if rep.Cells.Pinned != step.pinned || left != step.left {
			t.Errorf("after %v %s: %+v, %d prefixes, want %d pinned and %d", step.op, step.target, rep.Cells, left,
				step.pinned, step.left)
		}
	}
	if _, err := c.KVDo(ctx, wire.KVDrop, "beef1234"); err == nil || !strings.Contains(err.Error(), "uma-cli kv") {
		t.Errorf("dropping what is not there: %v", err)
	}
	// A drop of all takes the snapshot too: a dropped prompt is computed again.
	if rep, err := c.KV(ctx, false); err != nil || len(rep.Entries) != 0 {
		t.Errorf("after a drop of all: %+v, %v", rep, err)
	}
	if a := r.ask(c, raw(text(1, 200), 2)); a.eos.Usage.CachedTokens != 0 {
		t.Errorf("after the drop: %+v", a.eos.Usage)
	}
	q := wire.DefaultRequest()
	q.ID, q.Prompt, q.MaxTokens = "mine", text(1, 200), 4
	st, err := c.Stream(ctx, &q)
	if err != nil {
		t.Fatal(err)
	}
	collect(st)
	r.settled()
	why, err := c.Why(ctx, wire.WhyQuestion{Request: "mine"})
	if err != nil || len(why.Requests) != 1 {
		t.Fatalf("%+v, %v", why, err)
	}
	if w := why.Requests[0]; w.State != "done" || w.Ended != "length" || w.Usage.CachedTokens != 199 ||
		w.Usage.CacheTier != "device" || len(w.Decisions) == 0 {
		t.Errorf("%+v", w)
	}
	if why, err := c.Why(ctx, wire.WhyQuestion{Last: 2}); err != nil || len(why.Requests) != 2 ||
		why.Requests[0].Request != "mine" {
		t.Errorf("%+v, %v", why, err)
	}
}

// A pinned prefix stays under pressure, and gives way only where nothing could run at all.
func TestPinnedPrefixGivesWayLast(t *testing.T) {
	ctx := context.Background()
	r := serve(t, fake.Config{}, "-c", "600", "--cache-ram", "0")
	c := r.dial()
	r.ask(c, raw(text(0, 200), 1))
	r.settled()
	rep, err := c.KV(ctx, false)
	if err != nil || len(rep.Entries) != 1 {
		t.Fatalf("%+v %v", rep, err)
	}
	if _, err := c.KVDo(ctx, wire.KVPin, rep.Entries[0].Name); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if a := r.ask(c, raw(text(1+i, 300), 20)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	if a := r.ask(c, raw(text(0, 200), 1)); a.eos.Usage.CachedTokens != 199 {
		t.Errorf("the pinned prompt was evicted: %+v", a.eos.Usage)
	}
	if a := r.ask(c, raw(text(9, 500), 50)); a.err != nil || a.tokens != 50 {
		t.Errorf("the only request, which needs the pinned cells: %+v", a)
	}
	r.settled()
}

// oversubscribe runs sessions that want several times the pool at once, and holds every answer against the one of a
// daemon that has room.
func oversubscribe(t *testing.T, sessions, cells int, args ...string) *running {
	const turn = "<|im_end|>\n<|im_start|>assistant\n"
	script := []fake.Script{{After: "think" + turn, Emit: "<think>" + thoughts(120) + "</think>" + text(78, 60)},
		{After: "plain" + turn, Emit: text(79, 150)}}
	edit := func(i int) func(*wire.Request) {
		return func(q *wire.Request) {
			q.Messages[0].Content = text(i, 60+i%7*10) + [...]string{"think", "plain", ""}[i%3]
			q.MaxTokens = 200
			if i%5 == 4 {
				q.Priority = wire.PriorityBackground
			}
		}
	}
	reference := serve(t, fake.Config{Scripts: script}, "--no-prefix-cache", "-c", "8192")
	rc := reference.dial()
	want := make([]answer, sessions)
	for i := range want {
		want[i] = reference.ask(rc, edit(i))
		if thinks := i%3 == 0; thinks != (want[i].think != "") {
			t.Fatalf("session %d: %+v", i, want[i])
		}
	}
	r := serve(t, fake.Config{Scripts: script}, append([]string{"-c", fmt.Sprint(cells), "--parallel", "32"},
		args...)...)
	c := r.dial()
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			if got := r.ask(c, edit(i)); got.err != nil || got.text != want[i].text || got.think != want[i].think {
				t.Errorf("session %d: %+v, with room for all %+v", i, got, want[i])
			}
		})
	}
	wg.Wait()
	r.settled()
	return r
}

// Three times as many live tokens as cells: all complete, none is wrong, under every policy.
func TestOversubscription(t *testing.T) {
	for _, policy := range sched.Policies() {
		t.Run(policy, func(t *testing.T) {
			r := oversubscribe(t, 32, 32*280/3, "--policy", policy, "--cache-ram", "64MiB")
			r.inLoop(func(l *loop) {
				b := l.core.Ledger().Evictions()
				t.Logf("%v preemptions; evicted by tier: %v; output-critical %d", r.counter("preemptions_total"),
					b.Blocks, b.Answers)
				if l.core.Avoidable() != 0 {
					t.Errorf("%d blocks of answers were taken while others had cells to give", l.core.Avoidable())
				}
			})
		})
	}
}

// Random requests, cancels, vanishing clients and failures in a pool that is far too small: every request is finalised
// once, the books agree, and nothing is left when all is quiet.
func TestRandomLife(t *testing.T) {
	for n, policy := range sched.Policies() {
		for round := range 2 {
			seed := uint64(n*10 + round)
			t.Run(fmt.Sprintf("%s seed %d", policy, seed), func(t *testing.T) {
				args := []string{"--policy", policy, "-c", "400", "--parallel", "6", "-b", "48", "--cache-ram",
					[]string{"0", "1MiB"}[round], "--stall-timeout", "1s", "--max-queue", "100"}
				r := serve(t, fake.Config{EndEvery: 60, Seed: seed, NoRanges: n%3 == 2 && round == 1}, args...)
				var finals sync.Map
				r.inLoop(func(l *loop) {
					inner := l.finalised
					l.finalised = func(q *request) {
						if _, twice := finals.LoadOrStore(q.ID, true); twice {
							t.Errorf("request %d was finalised twice", q.ID)
						}
						inner(q)
					}
				})
				var wg sync.WaitGroup
				for w := range 6 {
					rng := rand.New(rand.NewPCG(seed, uint64(w)))
					wg.Go(func() {
						c := r.dial()
						for i := range 25 {
							q := wire.DefaultRequest()
							q.ID = fmt.Sprintf("%d-%d", w, i)
							q.Prompt = text(rng.IntN(3), 20+rng.IntN(150)) + text(rng.IntN(5), rng.IntN(60))
							q.MaxTokens = 1 + rng.IntN(120)
							q.Progress = rng.IntN(2) == 0
							if rng.IntN(3) == 0 {
								q.Priority = wire.PriorityBackground
							}
							st, err := c.Stream(context.Background(), &q)
							if err != nil {
								t.Errorf("seed %d: %v", seed, err)
								return
							}
							switch rng.IntN(6) {
							case 0:
								st.Cancel()
							case 1: // read a little, then vanish
								for range rng.IntN(5) {
									if ev, err := st.Next(); err != nil || ev.Kind == wire.EventEOS {
										break
									}
								}
								c.Close()
								c = r.dial()
								continue
							}
							if a := collect(st); a.err != nil && a.code() == "" {
								t.Errorf("seed %d: %v", seed, a.err)
								return
							}
						}
					})
				}
				wg.Wait()
				r.settled()
				count := 0
				finals.Range(func(any, any) bool { count++; return true })
				r.inLoop(func(l *loop) {
					if int(l.lastID) != count {
						t.Errorf("%d requests came, %d were finalised", l.lastID, count)
					}
				})
			})
		}
	}
}
