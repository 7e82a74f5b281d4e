package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/config/configtest"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// overlaps has the engines of all tests compute beside the host (overlap.go). scripts/test-all.sh runs the tests both
// ways.
var overlaps = flag.Bool("overlap", false, "the fake engine computes beside the host")

// running is a Server on the fake engine, over a real socket.
type running struct {
	*Server
	t      *testing.T
	engine *faulty
	draft  *faulty      // the engine of --draft-model, nil without
	stop   func() error // ends it and returns what Serve returned; may be called once more by the cleanup
}

// faulty is the fake engine with failures that a test orders while it runs.
type faulty struct {
	*fake.Engine
	m     *metrics.Metrics
	after atomic.Int64 // steps until the failure; 0 = none is ordered
	err   error        // written before after
	begun time.Time    // of the newest decode; the loop's
	head  runtime.Head // that was opened
}

// OpenHead implements runtime.Headed.
func (f *faulty) OpenHead(o runtime.HeadOptions) (h runtime.Head, err error) {
	if h, err = f.Engine.OpenHead(o); h != nil {
		f.head = h
	}
	return h, err
}

// failStep makes the n-th step from now fail.
func (f *faulty) failStep(n int, err error) {
	f.err = err
	f.after.Store(int64(n))
}

func (f *faulty) Decode() error {
	f.begin()
	return f.Engine.Decode()
}

func (f *faulty) Submit() error {
	f.begin()
	return f.Engine.Submit()
}

func (f *faulty) begin() {
	look(f.m, true)
	f.begun = time.Now()
	if f.after.Load() > 0 && f.after.Add(-1) == 0 {
		f.FailDecode(1, f.err)
	}
}

// load parses a command line as the binary does.
func load(t *testing.T, args, environ []string) (*config.Config, error) {
	t.Helper()
	fs, c, _ := config.NewFlagSet()
	if err := fs.Parse(config.NormalizeArgs(args)); err != nil {
		return nil, clierr.Flag(fs, err)
	}
	return c, c.Load(environ)
}

// serve starts a daemon with these flags on an engine of that configuration, whose options the flags override.
func serve(t *testing.T, cfg fake.Config, args ...string) *running {
	t.Helper()
	return serveLogging(t, slog.New(slog.DiscardHandler), cfg, args...)
}

func serveLogging(t *testing.T, log *slog.Logger, cfg fake.Config, args ...string) *running {
	t.Helper()
	return serveOverridden(t, log, cfg, overrides{}, args...)
}

func serveOverridden(t *testing.T, log *slog.Logger, cfg fake.Config, p overrides, args ...string) *running {
	t.Helper()
	return serveEngines(t, log, cfg, fake.Config{}, p, args...)
}

// serveEngines is serveParts with the configuration of the engine of --draft-model.
func serveEngines(t *testing.T, log *slog.Logger, cfg, draft fake.Config, p overrides, args ...string) *running {
	t.Helper()
	fs, c, _ := config.NewFlagSet()
	args = append([]string{"--model", "fake", "--socket", filepath.Join(t.TempDir(), "s")}, args...)
	if err := fs.Parse(configtest.Args(t, c, args)); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(nil); err != nil {
		t.Fatal(err)
	}
	s, err := newServer(c, log, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Server: s, t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	opened := make(chan struct{})
	go func() {
		done <- s.Serve(ctx, func(o runtime.Options) (runtime.Engine, error) {
			if o.ModelPath == c.DraftModel {
				draft.Options = o
				r.draft = &faulty{Engine: fake.New(draft), m: s.metrics}
				return r.draft, nil
			}
			defer close(opened)
			cfg.Options = o
			if *overlaps && cfg.Begin == nil {
				cfg.Begin = func(time.Duration) {}
			}
			r.engine = &faulty{Engine: fake.New(cfg), m: s.metrics}
			return r.engine, nil
		})
	}()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		look(s.metrics, false)
		if err := r.stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
		look(s.metrics, false)
		if n := r.engine.Used(); n != 0 {
			t.Errorf("%d cells are held after the end", n)
		}
		if r.draft != nil && r.draft.Used() != 0 {
			t.Errorf("%d cells of the draft model are held after the end", r.draft.Used())
		}
	})
	<-opened
	c2 := r.dial()
	if err := c2.WaitReady(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	c2.Close()
	return r
}

func (r *running) dial() *wireclient.Client {
	r.t.Helper()
	c, err := wireclient.Dial(context.Background(), r.cfg.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// answer is the result of a request.
type answer struct {
	think, text string
	tokens      int
	eos         wire.EOS
	err         error
}

func (r *running) ask(c *wireclient.Client, edit func(*wire.Request)) answer {
	r.t.Helper()
	st, err := r.generate(c, edit)
	if err != nil {
		return answer{err: err}
	}
	return collect(st)
}

// begin is ask without the wait for the answer.
func (r *running) begin(c *wireclient.Client, edit func(*wire.Request)) *wireclient.Stream {
	r.t.Helper()
	st, err := r.generate(c, edit)
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

func (r *running) generate(c *wireclient.Client, edit func(*wire.Request)) (*wireclient.Stream, error) {
	req := wire.DefaultRequest()
	req.Sampling.Temperature = 0
	req.Messages = []wire.Message{{Role: "user", Content: "question"}}
	if edit != nil {
		edit(&req)
	}
	return c.Stream(context.Background(), &req)
}

func collect(st *wireclient.Stream) (a answer) {
	for {
		ev, err := st.Next()
		if err != nil {
			a.err = err
			return a
		}
		switch ev.Kind {
		case wire.EventToken:
			a.tokens++
			if ev.Token.Phase == wire.Thinking {
				a.think += string(ev.Token.Text)
			} else {
				a.text += string(ev.Token.Text)
			}
		case wire.EventEOS:
			a.eos = ev.EOS
			a.eos.Text, a.eos.Think = []byte(string(ev.EOS.Text)), []byte(string(ev.EOS.Think))
			return a
		}
	}
}

// code returns the error code a request failed with, "" if it did not.
func (a answer) code() wire.Code {
	var e *wireclient.ServerError
	if errors.As(a.err, &e) {
		return e.Code
	}
	return ""
}

// eventually waits until ok; the daemon tidies up a moment after the client has its answer.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	waitfor.True(t, what, ok)
}

func (r *running) nothingLeft() {
	r.t.Helper()
	eventually(r.t, "nothing runs and nothing is held", func() bool {
		l := r.info().Live
		return l.Requests == 0 && l.InFlight == 0 && l.Sequences == 0 && l.Resident == 0 && l.LiveCells == 0
	})
}

func TestThinkingAndAnswerAreToldApart(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>let me see — ok</think>It is 42."}}})
	c := r.dial()
	a := r.ask(c, nil)
	if a.err != nil || a.think != "let me see — ok" || a.text != "It is 42." || a.eos.Reason != wire.Stop {
		t.Errorf("%+v", a)
	}
	if u := a.eos.Usage; u.ThinkTokens == 0 || u.ThinkTokens >= u.CompletionTokens || u.PromptTokens == 0 {
		t.Errorf("usage %+v", u)
	}
	b := r.ask(c, func(q *wire.Request) { q.Stream = false })
	if string(b.eos.Text) != a.text || string(b.eos.Think) != a.think || b.tokens != 0 {
		t.Errorf("not streamed: %+v", b)
	}
	r.nothingLeft()
}

func TestStopStrings(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>END is thought</think>one two END three"}}})
	a := r.ask(r.dial(), func(q *wire.Request) { q.Stop = []string{"never", "END"} })
	if a.text != "one two " || a.eos.Reason != wire.Stop || a.eos.StopText != "END" ||
		!strings.Contains(a.think, "END") {
		t.Errorf("%+v", a)
	}
	r.nothingLeft()
}

func TestLengthLimits(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "256", "--max-tokens", "50")
	c := r.dial()
	for want, edit := range map[int]func(*wire.Request){
		50: func(q *wire.Request) {},
		7:  func(q *wire.Request) { q.MaxTokens = 7 },
	} {
		if a := r.ask(c, edit); a.eos.Reason != wire.Length || a.eos.Usage.CompletionTokens != want ||
			a.tokens != want {
			t.Errorf("want %d tokens: %+v", want, a)
		}
	}
	// The context's end is the limit of last resort.
	r2 := serve(t, fake.Config{}, "-c", "64")
	a := r2.ask(r2.dial(), func(q *wire.Request) { q.Messages, q.Prompt = nil, "0123456789" })
	if a.eos.Reason != wire.Length || a.eos.Usage.PromptTokens+a.eos.Usage.CompletionTokens != 64 {
		t.Errorf("%+v", a)
	}
	if a := r2.ask(r2.dial(), func(q *wire.Request) {
		q.Messages, q.Prompt = nil,
			strings.Repeat("x", 64)
	}); a.code() != wire.ContextLength {
		t.Errorf("%+v", a)
	}
	r2.nothingLeft()
}

func TestDecodeFailureFailsTheBatchAndNobodyElse(t *testing.T) {
	r := serve(t, fake.Config{})
	c := r.dial()
	r.ask(c, func(q *wire.Request) { q.MaxTokens = 1 })
	r.nothingLeft()
	r.engine.failStep(3, runtime.ErrDecode)
	if a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 20 }); a.code() != wire.RuntimeDecode {
		t.Errorf("%+v", a)
	}
	if a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 20 }); a.err != nil || a.tokens != 20 {
		t.Errorf("after the failure: %+v", a)
	}
	r.nothingLeft()
}

// TestFailedThoughtIsCounted: a request that fails while it thinks counts as a thought, with its tokens.
func TestFailedThoughtIsCounted(t *testing.T) {
	r := serve(t, fake.Config{Scripts: thinker}, "--speculate", "off")
	question := asks(text(1, 60)+"think", 220)
	r.engine.failStep(30, runtime.ErrDecode)
	if a := r.ask(r.dial(), question); a.code() != wire.RuntimeDecode || a.think == "" || a.text != "" {
		t.Fatalf("%+v", a)
	}
	r.nothingLeft()
	if text := string(r.metrics.AppendJSON(nil)); !strings.Contains(text, `"think_ended_total":{"natural":0,`) ||
		!strings.Contains(text, `"length":1`) {
		t.Errorf("the thought is not counted: %s", text)
	}
}

// Steps that were aborted, or found no cell, are done again: the output is that of a run without trouble.
func TestTroubleDoesNotChangeTheOutput(t *testing.T) {
	r := serve(t, fake.Config{}, "--tick-budget-ms", "5", "-b", "32", "-c", "1000000")
	c := r.dial()
	long := func(q *wire.Request) { q.MaxTokens, q.Messages[0].Content = 30, strings.Repeat("long ", 60) }
	want := r.ask(c, long)
	for n := 1; n < 20; n += 3 {
		r.nothingLeft()
		r.engine.failStep(n, runtime.ErrAborted)
		if got := r.ask(c, long); got.err != nil || got.text != want.text {
			t.Errorf("aborted at step %d: %+v, want %q", n, got, want.text)
		}
	}
	// Beside an answer, a step with a chunk of the prompt is given up.
	r.nothingLeft()
	beside := wire.DefaultRequest()
	beside.ID, beside.Prompt = "beside", "endless"
	st, err := c.Stream(context.Background(), &beside)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan answer, 1)
	go func() { ended <- collect(st) }()
	for n := range 20 {
		other := func(q *wire.Request) {
			long(q)
			q.Messages[0].Content = strings.Repeat("other ", n) + q.Messages[0].Content // not cached
		}
		r.engine.failStep(1+n/2, runtime.ErrLate)
		got := r.ask(c, other)
		if again := r.ask(c, other); got.err != nil || got.text != again.text {
			t.Errorf("given up at step %d: %+v, want %q", 1+n/2, got, again.text)
		}
	}
	if text := string(r.metrics.AppendJSON(nil)); strings.Contains(text, `"late_steps_total":0,`) {
		t.Error("no step was given up")
	}
	st.Cancel()
	waitfor.Recv(t, "the answer ends", ended)
	// A pool without a free cell is fine while another request can be preempted.
	for n := 1; n < 20; n += 3 {
		r.nothingLeft()
		req := wire.DefaultRequest()
		req.ID, req.Prompt, req.Priority = "other", "endless", wire.PriorityBackground
		other, err := c.Stream(context.Background(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Next(); err != nil {
			t.Fatal(err)
		}
		// Both run from the first step on. The client does not read the endless one: it pauses long before its context
		// is full.
		h := r.hold()
		r.engine.failStep(n, runtime.ErrKVFull)
		st := r.begin(c, long)
		h.arrived(1)
		h.release()
		if got := collect(st); got.err != nil || got.text != want.text {
			t.Errorf("no cell at step %d: %+v, want %q", n, got, want.text)
		}
		c.Cancel(context.Background(), "other")
		// Alone in the pool it fails with an error: no other request can be preempted.
		if a := collect(other); a.eos.Reason != wire.Cancelled && a.code() != wire.RuntimeDecode {
			t.Errorf("no cell at step %d, the other one: %+v", n, a)
		}
	}
	r.nothingLeft()
}

func TestManyRequestsOnOneConnection(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "600", "--parallel", "6")
	c := r.dial()
	question := func(i int) func(*wire.Request) {
		return func(q *wire.Request) {
			q.MaxTokens = 40 + i
			q.Messages[0].Content = strings.Repeat(string(rune('a'+i)), 10+20*i)
			if i%3 == 0 {
				q.Priority = wire.PriorityBackground
			}
		}
	}
	var want []answer
	for i := range 12 {
		want = append(want, r.ask(c, question(i)))
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			if got := r.ask(c, question(i)); got.err != nil || got.text != want[i].text {
				t.Errorf("request %d: %+v, alone %q", i, got, want[i].text)
			}
		})
	}
	wg.Wait()
	r.nothingLeft()
}

func TestCancel(t *testing.T) {
	// The client does not read: a request pauses long before its context is full.
	r := serve(t, fake.Config{}, "-c", "1000000")
	c := r.dial()
	req := wire.DefaultRequest()
	req.ID, req.Prompt = "x", "endless"
	st, err := c.Stream(context.Background(), &req)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := st.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Cancel(context.Background(), "x"); err != nil {
		t.Fatal(err)
	}
	if a := collect(st); a.eos.Reason != wire.Cancelled {
		t.Errorf("%+v", a)
	}
	// A connection that closes cancels everything on it.
	c2 := r.dial()
	for range 5 {
		req.ID = ""
		if _, err := c2.Stream(context.Background(), &req); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all five run", func() bool { return r.info().Live.Requests == 5 })
	c2.Close()
	r.nothingLeft()
}

// A client that does not read is paused; when it stays so it is closed. Others do not notice.
func TestStalledClient(t *testing.T) {
	const timeout = time.Hour
	r := serve(t, fake.Config{}, "-c", "1000000", "--stall-timeout", timeout.String(), "--parallel", "2")
	stalled := r.dial()
	req := wire.DefaultRequest()
	req.Prompt, req.Sampling.Logprobs = "endless", 20
	st, err := stalled.Stream(context.Background(), &req)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is paused", func() bool { return r.metrics.Scheduler().Paused == 1 })
	if a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 10 }); a.err != nil || a.tokens != 10 {
		t.Errorf("beside a stalled client: %+v", a)
	}
	sweep := func(since time.Duration) { // the loop's sweep, so long after the client stalled
		r.inLoop(func(l *loop) {
			for _, o := range l.requests {
				l.chores.lastSweep = time.Time{}
				l.sweepStalled(o.pausedAt.Add(since))
			}
		})
	}
	sweep(timeout)
	if h := r.health(); h.Requests != 1 {
		t.Errorf("closed before its time: %+v", h)
	}
	sweep(timeout + 1)
	if a := collect(st); !errors.Is(a.err, wireclient.ErrClosed) {
		t.Errorf("the stalled client: %v", a.err)
	}
	r.nothingLeft()
}

func TestQueueLimitAnswersWithRetry(t *testing.T) {
	gate := make(chan struct{})
	r := serve(t, fake.Config{Advance: func(time.Duration) { <-gate }}, "--parallel", "1", "--max-queue", "1", "-b",
		"8")
	c := r.dial()
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for range 6 {
		wg.Go(func() {
			a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 2 })
			mu.Lock()
			defer mu.Unlock()
			if a.err == nil {
				return
			}
			refused++
			var e *wireclient.ServerError
			if !errors.As(a.err, &e) || e.Code != wire.QueueLimit || e.RetryAfter <= 0 {
				t.Errorf("%v", a.err)
			}
		})
	}
	eventually(t, "some are refused while one runs", func() bool { mu.Lock(); defer mu.Unlock(); return refused >= 3 })
	close(gate)
	wg.Wait()
	r.nothingLeft()
}

func TestProgressOfPromptAndQueue(t *testing.T) {
	r := serve(t, fake.Config{}, "--parallel", "1", "-b", "8")
	c := r.dial()
	h := r.hold()
	watch := func(text string) (*wireclient.Stream, error) {
		req := wire.DefaultRequest()
		req.Prompt, req.MaxTokens, req.Progress = text, 3, true
		return c.Stream(context.Background(), &req)
	}
	first, err1 := watch(strings.Repeat("a", 800))
	second, err2 := watch("b")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	h.arrived(2)
	h.step()
	// A place in the queue is news for those that have waited: as if the second had come earlier.
	for _, o := range h.loop.requests {
		o.arrived = o.arrived.Add(-2 * progressEvery)
	}
	h.step()
	h.release()
	seen := func(st *wireclient.Stream) (computed, queued int) {
		for {
			ev, err := st.Next()
			if err != nil {
				t.Fatal(err)
			}
			switch ev.Kind {
			case wire.EventProgress:
				if p := ev.Progress; p.Position > 0 {
					queued++
				} else if p.Processed > 0 && p.Processed < p.Total {
					computed++
				}
			case wire.EventEOS:
				return computed, queued
			}
		}
	}
	if n, _ := seen(first); n == 0 {
		t.Error("no progress of a long prompt")
	}
	if _, n := seen(second); n == 0 {
		t.Error("no place in the queue")
	}
	r.nothingLeft()
}

func TestHealthWhileLoading(t *testing.T) {
	fs, cfg, _ := config.NewFlagSet()
	if err := fs.Parse([]string{"--model", "fake", "--socket", filepath.Join(t.TempDir(), "s")}); err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	half, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.Serve(ctx, func(o runtime.Options) (runtime.Engine, error) {
			o.Progress(0.5)
			close(half)
			<-ctx.Done()
			for o.Progress(0.5) { // until the load is stopped
				goruntime.Gosched()
			}
			return nil, errors.New("stopped")
		})
	}()
	<-half
	r := &running{Server: s, t: t}
	c := r.dial()
	h, err := c.Health(context.Background())
	if err != nil || h.Status != "loading" || h.Progress != 0.5 {
		t.Errorf("%+v %v", h, err)
	}
	_, err = c.Why(context.Background(), wire.WhyQuestion{Last: 1})
	if e, ok := errors.AsType[*wireclient.ServerError](err); !ok || e.Code != wire.ModelUnready {
		t.Errorf("why while loading: %v", err)
	}
	if _, err := c.Info(context.Background()); err != nil {
		t.Errorf("info while loading: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("a stop while loading is an orderly one: %v", err)
	}
}

func TestOpenFailureIsReported(t *testing.T) {
	fs, cfg, _ := config.NewFlagSet()
	if err := fs.Parse([]string{"--model", "bad.gguf", "--socket", filepath.Join(t.TempDir(), "s")}); err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Serve(context.Background(), func(runtime.Options) (runtime.Engine, error) { return nil, runtime.ErrModel })
	if !errors.Is(err, runtime.ErrModel) || !strings.Contains(err.Error(), "bad.gguf") {
		t.Errorf("%v", err)
	}
}

func TestMetricsCountWhatHappened(t *testing.T) {
	r := serve(t, fake.Config{})
	a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 9 })
	r.nothingLeft()
	var m map[string]any
	if err := json.Unmarshal(r.metrics.AppendJSON(nil), &m); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"tokens_generated_total": 9, "prompts_total": 1,
		"prompt_tokens_total": float64(a.eos.Usage.PromptTokens), "decode_errors_total": 0} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	if h := m["inter_token_ms"].(map[string]any); h["count"] != 8.0 {
		t.Errorf("inter_token_ms %v", h)
	}
}
