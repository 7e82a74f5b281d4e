package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// testDevice is the time of an engine that computes beside the host, on the test's clock or the machine's.
type testDevice struct {
	now   func() time.Duration
	until func(time.Duration) // waits
	end   time.Duration       // of the batch that is computed
}

func (d *testDevice) begin(took time.Duration) { d.end = d.now() + took }
func (d *testDevice) wait(time.Duration)       { d.until(d.end) }

// busyClient is a client whose every token costs the host some time.
type busyClient struct {
	work func()
	mu   sync.Mutex
	text strings.Builder
	n    int
	done chan struct{}
}

func (*busyClient) ID() uint64             { return 1 << 60 }
func (*busyClient) UID() uint32            { return 1000 }
func (*busyClient) Flush()                 {}
func (*busyClient) ReplyEvent(*wire.Event) {}
func (*busyClient) Close()                 {}
func (c *busyClient) Done(string)          { close(c.done) }

func (c *busyClient) SendEvent(ev *wire.Event) ipc.SendResult {
	if ev.Kind == wire.EventToken {
		c.work()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.text.Write(ev.Token.Text)
		c.n++
	}
	return ipc.Sent
}

// generateBusy has s generate n tokens for a client that costs work a token, and returns their text.
func generateBusy(t testing.TB, s *Server, n int, work func()) string {
	t.Helper()
	c := &busyClient{work: work, done: make(chan struct{})}
	q := wire.DefaultRequest()
	q.ID, q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS, q.NoProgress = "a", "count", n, true, true
	q.Sampling.Temperature, q.Stream = 0, true
	s.Request(c, &q)
	waitfor.Recv(t, "the answer ends", c.done)
	if c.n != n {
		t.Fatalf("%d tokens, want %d", c.n, n)
	}
	return c.text.String()
}

// TestStepsOverlap: with an engine that computes 5 ms beside the host, and 4 ms of work of the host on the output of a
// step, steps take 5 ms instead of 9, and the tokens are the same. The clock is the test's: only the engine and the
// work take time.
func TestStepsOverlap(t *testing.T) {
	const tokens, step, work = 200, 5 * time.Millisecond, 4 * time.Millisecond
	cost := fake.Cost{BaseMs: 5}
	var texts [2]string
	for i, want := range []time.Duration{step + work, step} {
		var clock time.Duration // the loop's
		d := testDevice{now: func() time.Duration { return clock }}
		d.until = func(end time.Duration) { clock = max(clock, end) }
		cfg := fake.Config{Seed: 3, Cost: cost, Advance: func(took time.Duration) { clock += took }}
		if i == 1 {
			cfg.Begin, cfg.Advance = d.begin, d.wait
		}
		if i == 0 && *overlaps {
			t.Skip("all engines of this run compute beside the host")
		}
		r := serve(t, cfg)
		texts[i] = generateBusy(t, r.Server, tokens, func() { clock += work })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		each := clock / tokens
		t.Logf("overlap %v: %v a step", i == 1, each)
		if slack := step / 10; each < want-slack || each > want+slack {
			t.Errorf("overlap %v: %v a step, want %v", i == 1, each, want)
		}
		if n := r.counter("step_overlap_us.count"); i == 1 && n < tokens-1 || i == 0 && n > 0 {
			t.Errorf("overlap %v: %v steps had work of the one before", i == 1, n)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("the tokens differ:\n%q\n%q", texts[0], texts[1])
	}
}

// BenchmarkOverlap is TestStepsOverlap on the machine's clock: one iteration is one step.
func BenchmarkOverlap(b *testing.B) {
	for _, overlap := range []bool{false, true} {
		b.Run(fmt.Sprintf("overlap=%v", overlap), func(b *testing.B) {
			begin := time.Now()
			d := testDevice{now: func() time.Duration { return time.Since(begin) }}
			d.until = func(end time.Duration) { time.Sleep(end - d.now()) }
			cfg := fake.Config{Cost: fake.Cost{BaseMs: 5}, Advance: time.Sleep}
			if overlap {
				cfg.Begin, cfg.Advance = d.begin, d.wait
			}
			s := benchEngine(b, cfg)
			const most = 2000
			b.ResetTimer()
			for left := b.N; left > 0; left -= most {
				generateBusy(b, s, min(left, most), func() { spin(4 * time.Millisecond) })
			}
		})
	}
}

// heard is an answer as its client gets it.
type heard struct {
	Text, Think, Calls string
	Tokens             []int32
	Logprobs           []float32
	Tops               [][]wire.TokenLogprob
	Reason             wire.Reason
	StopText           string
	Completion, Thinks int
	Err                string
}

func hear(st interface{ Next() (*wire.Event, error) }, cut int, cancel func()) (h heard) {
	for {
		ev, err := st.Next()
		if err != nil {
			h.Err = err.Error()
			return h
		}
		switch ev.Kind {
		case wire.EventToken:
			h.Tokens = append(h.Tokens, ev.Token.TokenID)
			h.Logprobs = append(h.Logprobs, ev.Token.Logprob)
			h.Tops = append(h.Tops, slices.Clone(ev.Token.Top))
			for i := range h.Tops[len(h.Tops)-1] {
				top := &h.Tops[len(h.Tops)-1][i]
				top.Text = slices.Clone(top.Text)
			}
			if ev.Token.Phase == wire.Thinking {
				h.Think += string(ev.Token.Text)
			} else {
				h.Text += string(ev.Token.Text)
			}
			if len(h.Tokens) == cut {
				cancel()
			}
		case wire.EventToolCall:
			h.Calls += ev.ToolCall.Name + string(ev.ToolCall.Arguments)
		case wire.EventEOS:
			h.Reason, h.StopText = ev.EOS.Reason, ev.EOS.StopText
			h.Completion, h.Thinks = ev.EOS.Usage.CompletionTokens, ev.EOS.Usage.ThinkTokens
			return h
		}
	}
}

// TestOverlapKeepsAnswers: what many clients hear at once is the same with and without overlap, token for token: with
// thinking, stop strings, log-probabilities, tool calls, a chat's next turn and speculation. Some clients cancel: what
// they have heard by then is the beginning of the same answer, and no cell stays behind.
func TestOverlapKeepsAnswers(t *testing.T) {
	const asks = 60
	const turn = "<|im_end|>\n<|im_start|>assistant\n"
	scripts := []fake.Script{
		{After: "think of it" + turn, Emit: "<think>" + strings.Repeat("I wonder. ", 6) + "</think>It is 42."},
		{After: "tell me" + turn, Emit: "It was a dark night. STOP and nothing more."},
		{After: "use it" + turn, Emit: `Ok.<tool_call>{"name": "now", "arguments": {}}</tool_call>`},
	}
	run := func(overlap bool) (out []heard) {
		cfg := fake.Config{Seed: 11, Template: callTemplate, Scripts: scripts, EndEvery: 40}
		if overlap {
			cfg.Begin = func(time.Duration) {}
		}
		r := serve(t, cfg, "-c", "16384", "--parallel", "6", "--speculate", "4")
		rng := rand.New(rand.NewPCG(5, 0))
		out = make([]heard, asks)
		var wg sync.WaitGroup
		gate := make(chan struct{}, 12)
		for i := range asks {
			q := wire.DefaultRequest()
			q.ID, q.MaxTokens, q.Stream, q.NoProgress = fmt.Sprint(i), 20+rng.IntN(80), true, true
			q.Sampling.Seed, q.Sampling.SeedSet = uint64(i), true
			if rng.IntN(2) == 0 {
				q.Sampling.Temperature = 0
			}
			cut := 0
			switch rng.IntN(6) {
			case 0:
				q.Messages = []wire.Message{{Role: "user", Content: "think of it"}}
			case 1:
				q.Messages = []wire.Message{{Role: "user", Content: "tell me"}}
				q.Stop = []string{"STOP"}
			case 2:
				q.Messages = []wire.Message{{Role: "user", Content: "use it"}}
				q.Tools = weatherTools
			case 3:
				q.Prompt, q.Sampling.Logprobs = fmt.Sprint("once upon a time ", i%4), 3
			case 4:
				q.Messages = []wire.Message{{Role: "user", Content: "hello"}, {Role: "assistant", Content: "well"},
					{Role: "user", Content: fmt.Sprint("and now ", i)}}
			default:
				q.Prompt, cut = fmt.Sprint("count ", i), 1+rng.IntN(15)
				q.Sampling.IgnoreEOS = true
				q.MaxTokens = 4000 // of which few are computed: the cancel comes before the end, on a busy machine too
			}
			wg.Add(1)
			gate <- struct{}{}
			go func() {
				defer func() { <-gate; wg.Done() }()
				c := r.dial()
				st, err := c.Stream(context.Background(), &q)
				if err != nil {
					out[i].Err = err.Error()
					return
				}
				out[i] = hear(st, cut, func() { _ = c.Cancel(context.Background(), q.ID) })
				if out[i].Reason == wire.Cancelled {
					out[i].Tokens, out[i].Logprobs, out[i].Tops = out[i].Tokens[:cut], nil, nil
					out[i].Text, out[i].Completion = "", 0 // as many as came before the cancel
				}
			}()
		}
		wg.Wait()
		r.nothingLeft()
		return out
	}
	with, without := run(true), run(false)
	reasons := map[wire.Reason]int{}
	for i := range with {
		if with[i].Reason == wire.Cancelled || without[i].Reason == wire.Cancelled {
			// The cancel may come after the end.
			n := min(len(with[i].Tokens), len(without[i].Tokens))
			with[i] = heard{Tokens: with[i].Tokens[:n], Reason: wire.Cancelled}
			without[i] = heard{Tokens: without[i].Tokens[:n], Reason: wire.Cancelled}
		}
		reasons[with[i].Reason]++
		if !reflect.DeepEqual(with[i], without[i]) {
			t.Errorf("answer %d: with overlap\n%+v\nwithout\n%+v", i, with[i], without[i])
		}
	}
	t.Log(reasons)
	for _, reason := range []wire.Reason{wire.Stop, wire.Length, wire.Cancelled, wire.Calls} {
		if reasons[reason] == 0 {
			t.Errorf("no answer ended by %q", reason)
		}
	}
}

// benchEngine returns a daemon with the fake engine.
func benchEngine(b *testing.B, cfg fake.Config) *Server {
	s, _ := startBench(b, func(o runtime.Options) runtime.Engine {
		cfg.Options = o
		return fake.New(cfg)
	})
	waitfor.True(b, "the model is loaded", func() bool { return s.loop.Load() != nil })
	return s
}
