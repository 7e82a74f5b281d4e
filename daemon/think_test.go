package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/testutil/race"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// Thinking through the daemon, on an engine that follows a script: what ends it, and what a client is told.

// thoughts is a think block of n bytes (tokens, here) in short paragraphs, without an end.
func thoughts(n int) string {
	return strings.Repeat("So it may be.\nBut wait.\n\n", n/25+1)[:n]
}

// thinking follows a request token by token.
type thinking struct {
	answer
	opened, closed int // tags among its tokens
	inside         int // tokens between them
}

// think asks and reads to the end; begun, when there is one, has the stream before the first event is read.
func (r *running) think(edit func(*wire.Request), begun func(*wireclient.Stream)) (th thinking) {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	v := r.model.Load().Vocab.(interface{ Find(string) runtime.Token })
	open, end := v.Find("<think>"), v.Find("</think>")
	q := wire.DefaultRequest()
	// every token has an event
	q.Messages, q.Sampling.Temperature, q.Sampling.Logprobs = []wire.Message{{Role: "user", Content: "question"}}, 0, 1
	edit(&q)
	st, err := c.Stream(context.Background(), &q)
	if err != nil {
		th.err = err
		return th
	}
	if begun != nil {
		begun(st)
	}
	for {
		ev, err := st.Next()
		if err != nil {
			th.err = err
			return th
		}
		switch ev.Kind {
		case wire.EventToken:
			th.tokens++
			switch tok := ev.Token.TokenID; {
			case tok == open:
				th.opened++
			case tok == end:
				th.closed++
			case th.opened > th.closed:
				th.inside++
			}
			if ev.Token.Phase == wire.Thinking {
				th.think += string(ev.Token.Text)
			} else {
				th.text += string(ev.Token.Text)
			}
		case wire.EventEOS:
			th.eos = ev.EOS
			return th
		}
	}
}

// A thousand requests that would think for ever, with budgets from one token on: each block is closed, once, and never
// late.
func TestForcedCloses(t *testing.T) {
	n := 1000
	if testing.Short() || race.Enabled {
		n = 200
	}
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>" + thoughts(400) + "</think>"}}}, "-c", "3000",
		"--policy", "meridian")
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for i := range n / 8 {
				budget := 1 + rng.IntN(80)
				answer := 1 + rng.IntN(20)
				th := r.think(func(q *wire.Request) {
					q.Messages[0].Content = fmt.Sprint("question ", w, i)
					q.Think.BudgetTokens, q.MaxTokens = budget, budget+2+answer
					if rng.IntN(3) == 0 {
						q.Think.AnswerCue = "\nSo:"
						q.MaxTokens += 5
					}
					if rng.IntN(4) == 0 {
						q.Think.SoftBudgetTokens = max(1, budget/2)
					}
				}, nil)
				u, sum := th.eos.Usage, th.eos.Thought
				if th.err != nil || th.opened != 1 || th.closed != 1 || th.inside > budget || sum.Tokens > budget {
					t.Errorf("budget %d: opened %d times, closed %d times after %d tokens, eos says %d; %v %+v", budget,
						th.opened, th.closed, th.inside, sum.Tokens, th.err, th.eos)
					return
				}
				if sum.Tokens != th.inside || (sum.Ended != "hard_cap" && sum.Ended != "soft_cap") ||
					u.CompletionTokens != th.tokens || th.eos.Reason != wire.Length {
					t.Errorf("budget %d: %d tokens of thought, eos %+v", budget, th.inside, th.eos)
					return
				}
			}
		})
	}
	wg.Wait()
	r.settled()
	if got := r.counter("force_triggered_total"); got != float64(n/8*8) {
		t.Errorf("%v closes were counted, want %d", got, n/8*8)
	}
}

func TestEndThink(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>" + thoughts(2000) + "</think>"}}}, "-c", "4000")
	h := r.hold()
	th := r.think(func(q *wire.Request) { q.MaxTokens = 3000 }, func(st *wireclient.Stream) {
		h.arrived(1)
		h.steps("it thinks", func() bool {
			for _, o := range h.loop.requests {
				return o.Generated() >= 20
			}
			return false
		})
		st.EndThink()
		h.mailed("the wish has come", cmdEndThink, 1)
		h.release()
	})
	if th.err != nil || th.closed != 1 || th.eos.Thought.Ended != "user" || th.inside < 15 || th.inside >= 200 ||
		th.text == "" {
		t.Errorf("%d tokens of thought, closed %d times, eos %+v %v", th.inside, th.closed, th.eos, th.err)
	}
	r.settled()
	if got := r.counter("force_reason_total.user"); got != 1 {
		t.Errorf("%v closes by users", got)
	}
}

// What an eos says of thinking that ended by itself, that never was, and that the token limit cut off.
func TestThinkOfAnEOS(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{After: "none", Emit: "no thought"},
		{Emit: "<think>a thought of 23 bytes</think>It is 42."}}})
	raw := func(s string, n int) func(*wire.Request) {
		return func(q *wire.Request) { q.Messages, q.Prompt, q.MaxTokens = nil, s, n }
	}
	chat := func(stream bool, n int) func(*wire.Request) {
		return func(q *wire.Request) { q.Stream, q.MaxTokens = stream, n }
	}
	for _, c := range []struct {
		name   string
		edit   func(*wire.Request)
		ended  string
		tokens int
	}{
		{"natural", chat(true, 0), "natural", 21},
		{"not streamed", chat(false, 0), "natural", 21},
		{"cut off", chat(true, 10), "length", 9},
		{"never", raw("none", 20), "", 0},
	} {
		a := r.ask(r.dial(), c.edit)
		th := a.eos.Thought
		if a.err != nil || th.Tokens != c.tokens || (c.ended != "" && th.Ended != c.ended) {
			t.Errorf("%s: %+v %v", c.name, a.eos, a.err)
		}
		if c.tokens > 0 && th.Time <= 0 {
			t.Errorf("%s: it took %v", c.name, th.Time)
		}
	}
	r.settled()
}

// Probes fork a sequence, look at a row and leave nothing behind; they change no answer that they do not end.
func TestProbeForks(t *testing.T) {
	const end = "</think>It is 42."
	script := []fake.Script{{Emit: "<think>" + thoughts(350) + end}}
	eat := []string{"--early-exit", "eat", "--meridian", "eat_probe_interval_tokens=8", "--meridian",
		"eat_warmup_probes=3", "--meridian", "min_think_tokens=16"}
	for name, c := range map[string]struct {
		args   []string
		cfg    fake.Config
		probes bool
		ended  string
	}{
		"never settles": {append(eat, "--meridian", "eat_ema_variance_threshold=0"), fake.Config{Scripts: script}, true,
			"natural"},
		"settles": {append(eat, "--meridian", "eat_ema_variance_threshold=100", "--meridian", "eat_stalled_entropy=0",
			"--max-tokens", "400"), fake.Config{Scripts: script}, true, "converged"},
		"settles, with a state": {append(eat, "--meridian", "eat_ema_variance_threshold=100", "--meridian",
			"eat_stalled_entropy=0", "--max-tokens", "400"), fake.Config{Scripts: script, NoRanges: true}, true,
			"converged"},
		"off": {[]string{"--early-exit", "off"}, fake.Config{Scripts: script}, false, "natural"},
	} {
		t.Run(name, func(t *testing.T) {
			// Cells for everybody: a fork is refused for want of a scratch sequence only, and then comes next.
			r := serve(t, c.cfg, append(c.args, "-c", "4000")...)
			var wg sync.WaitGroup
			for range 2 * core.MaxForks { // in step: at each blank line half of them are refused a fork
				wg.Go(func() {
					th := r.think(func(*wire.Request) {}, nil)
					sum := th.eos.Thought
					if th.err != nil || th.closed != 1 || sum.Ended != c.ended || (sum.Probes > 0) != c.probes {
						t.Errorf("closed %d times; %+v %v", th.closed, th.eos, th.err)
					}
					if c.ended == "natural" && (th.think != thoughts(350) || th.text != "It is 42.") {
						t.Errorf("%q / %q", th.think, th.text)
					}
				})
			}
			wg.Wait()
			r.settled()
			if got := r.counter("eat_probes_total"); (got > 0) != c.probes {
				t.Errorf("%v probes", got)
			}
		})
	}
}

// Forks in a pool without room, with preemptions around them.
func TestProbeForksUnderPressure(t *testing.T) {
	r := oversubscribe(t, 12, 1200, "--early-exit", "eat", "--meridian", "eat_probe_interval_tokens=4", "--meridian",
		"eat_ema_variance_threshold=0", "--meridian", "min_think_tokens=4")
	if r.counter("eat_probes_total") == 0 {
		t.Error("nothing was probed: the test shows nothing")
	}
}

// TestSignalsAreSeen: with watch_signals every thought leaves what the early-exit signals measured, in why, as
// histograms and in the trace, also one that the model ends.
func TestSignalsAreSeen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>" + thoughts(60) + "</think>It is 42."}}},
		"--trace", file, "--meridian", "watch_signals=both", "--meridian", "eat_probe_interval_tokens=4", "--meridian",
		"min_think_tokens=4", "--meridian", "rpdi_window=8", "-c", "16384")
	c := r.dial()
	a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 4000 })
	if a.err != nil || a.eos.Thought.Ended != "natural" || a.eos.Thought.Probes == 0 {
		t.Fatalf("%+v", a)
	}
	rep, err := c.Why(context.Background(), wire.WhyQuestion{Last: 1})
	if err != nil || len(rep.Requests) != 1 || rep.Requests[0].Signals == nil {
		t.Fatalf("%+v, %v", rep, err)
	}
	s := rep.Requests[0].Signals
	if s.Probes != a.eos.Thought.Probes || s.Entropy <= 0 || s.Mean <= 0 {
		t.Errorf("%+v", s)
	}
	for _, key := range []string{"think_probes", "eat_entropy_mnats", "eat_mean_mnats", "eat_variance_unats2"} {
		if n := r.reads(key, ""); n != 1 {
			t.Errorf("%s has %v values", key, n)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	trace, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(trace), "\n#probe "); n != s.Probes {
		t.Errorf("%d probes in the trace, %d were made", n, s.Probes)
	}
	if !strings.Contains(string(trace), fmt.Sprintf("\n#thought %d tokens=%d ended=natural probes=%d ",
		rep.Requests[0].Number, a.eos.Thought.Tokens, s.Probes)) {
		t.Errorf("the trace has no line of the thought:\n%.2000s", trace)
	}
	if _, err := core.Replay(trace); err != nil {
		t.Errorf("the trace does not replay: %v", err)
	}
}
