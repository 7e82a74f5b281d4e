package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched/trace"
)

// pacedBy makes an engine whose Decode takes so many milliseconds.
func pacedBy(ms float64, cfg fake.Config) fake.Config {
	cfg.Cost = fake.Cost{BaseMs: ms}
	cfg.Advance = func(d time.Duration) { <-time.After(d) }
	return cfg
}

// serveDraft is serve on an engine of which a Decode takes at least 5 ms, and one of the draft model next to nothing: a
// timer of the draft model would be as late as the engine's on a busy machine.
func serveDraft(t *testing.T, cfg, draft fake.Config, args ...string) *running {
	t.Helper()
	return serveEngines(t, slog.New(slog.DiscardHandler), pacedBy(5, cfg), draft, overrides{},
		append([]string{"--draft-model", "small"}, args...)...)
}

// random asks for a text without repetitions, in which nothing but a draft model guesses.
func random(q *wire.Request) {
	q.Messages = []wire.Message{{Role: "user", Content: "Say something."}}
	q.Sampling.IgnoreEOS, q.MaxTokens = true, 120
}

// drafts counts the draft model's guesses of all requests, and those that came true.
func (r *running) drafts() (drafted, accepted float64) {
	for _, phase := range []string{"output", "think"} {
		drafted += r.reads("drafted_tokens_total", phase+"/draft-model")
		accepted += r.reads("accepted_tokens_total", phase+"/draft-model")
	}
	return drafted, accepted
}

// draftedTexts are requests in which only a draft model guesses, or a head.
var draftedTexts = map[string]func(*wire.Request){
	"greedy":   random,
	"sampled":  func(q *wire.Request) { random(q); q.Sampling.Temperature, q.Sampling.TopK = 1, 3 },
	"penalty":  func(q *wire.Request) { random(q); q.Sampling.RepeatPenalty = 1.3 },
	"logprobs": func(q *wire.Request) { random(q); q.Sampling.Logprobs = 2 },
	"bounded":  func(q *wire.Request) { random(q); q.MaxTokens = 3 },
	"thinking": func(q *wire.Request) { q.Messages[0].Content = "think" },
	"regex": func(q *wire.Request) {
		random(q)
		q.Format, q.Sampling.IgnoreEOS = wire.Format{Kind: wire.FormatRegex, Payload: "(ab|ba|cab){20,30}"}, false
	},
}

// TestSyntheticRates: drafts are taken at the rates that the option says, whatever the model says; none of them ends an
// answer, and a form is kept.
func TestSyntheticRates(t *testing.T) {
	config := fake.Config{Seed: 5}
	plain := serve(t, config, "--speculate", "off")
	want, _, _, _ := plain.events(random)
	never := serveDraft(t, config, config, "--spec-synth-rates", "0,0,0")
	got, _, _, _ := never.events(random)
	if drafted, accepted := never.drafts(); accepted != 0 || drafted < 300 || !slices.Equal(got, want) {
		t.Errorf("never: %v of %v drafts were taken", accepted, drafted)
	}
	always := serveDraft(t, config, fake.Config{Seed: 6}, "--spec-synth-rates", "1,1,1")
	got, eos, _, _ := always.events(random)
	if drafted, accepted := always.drafts(); accepted < drafted*9/10 || drafted < 80 || slices.Equal(got, want) ||
		eos.Usage.CompletionTokens != 120 {
		t.Errorf("always: %v of %v drafts were taken, %d tokens", accepted, drafted, eos.Usage.CompletionTokens)
	}
	want, _, _, _ = plain.events(draftedTexts["regex"])
	if got, _, _, _ = always.events(draftedTexts["regex"]); !slices.Equal(got, want) {
		t.Error("another answer with a form")
	}
	for _, r := range []*running{plain, never, always} {
		r.nothingLeft()
	}
}

// TestDraftModelChangesNothing: answers have the same events to the bit with and without a draft model, whether it is a
// copy, of which nearly all guesses come true, or has other weights, and it is soon left alone.
func TestDraftModelChangesNothing(t *testing.T) {
	config := fake.Config{Seed: 5, Scripts: []fake.Script{{After: "think<|im_end|>\n<|im_start|>assistant\n",
		Emit: "<think>" + strings.Repeat("It may, or not; ", 12) + "</think>It is so."}}}
	plain := serve(t, config, "--speculate", "off")
	same := serveDraft(t, config, config)
	other := serveDraft(t, config, fake.Config{Seed: 6})
	for name, edit := range draftedTexts {
		t.Run(name, func(t *testing.T) {
			want, wantEOS, _, _ := plain.events(edit)
			for what, r := range map[string]*running{"a copy": same, "other weights": other} {
				got, eos, _, _ := r.events(edit)
				if !slices.Equal(got, want) || fmt.Sprintf("%+v", eos) != fmt.Sprintf("%+v", wantEOS) {
					t.Errorf("another answer with %s as draft model: %d events, %+v; without %d, %+v", what, len(got),
						eos, len(want), wantEOS)
				}
			}
		})
	}
	for _, r := range []*running{plain, same, other} {
		r.nothingLeft()
	}
	drafted, accepted := same.drafts()
	t.Logf("a copy: %v drafted, %v accepted", drafted, accepted)
	if accepted == 0 { // how many depends on what steps take here
		t.Errorf("a copy: %v drafted, %v accepted", drafted, accepted)
	}
	drafted, accepted = other.drafts()
	t.Logf("other weights: %v drafted, %v accepted", drafted, accepted)
	if accepted > drafted/4 || drafted > 150 {
		t.Errorf("other weights: %v drafted, %v accepted", drafted, accepted)
	}
}

// TestDraftModelKeepsTheDistribution draws answers at temperature 1 with the guesses of a draft model and compares how
// often each text came with how often it comes without (chi-square of two samples, 1 in 10,000). Whether drafting pays
// depends on what steps take here: on a busy machine more answers are drawn.
func TestDraftModelKeepsTheDistribution(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests")
	}
	const answers, most, tokens = 1200, 12_000, 4
	config := fake.Config{Seed: 3}
	draw := func(r *running, c *wireclient.Client, seed uint64, counts map[string]int) {
		a := r.ask(c, func(q *wire.Request) {
			q.Messages, q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS = nil, "abab", tokens, true
			q.Sampling.Temperature, q.Sampling.TopK = 1, 2
			q.Sampling.Seed, q.Sampling.SeedSet = seed, true
		})
		if a.err != nil {
			t.Fatal(a.err)
		}
		counts[a.text]++
	}
	counts := [2]map[string]int{{}, {}}
	drafting := serveEngines(t, slog.New(slog.DiscardHandler), pacedBy(2, config), config, overrides{},
		"--draft-model", "small", "--no-prefix-cache")
	c := drafting.dial()
	drawn, accepted := 0, 0.0
	for drawn < answers || accepted < answers/50 && drawn < most {
		draw(drafting, c, uint64(answers+drawn), counts[1])
		if drawn++; drawn%100 == 0 {
			_, accepted = drafting.drafts()
		}
	}
	drafting.nothingLeft()
	_, accepted = drafting.drafts()
	c.Close()
	if accepted < answers/50 {
		t.Fatalf("%v of the drafts in %d answers were accepted: the test shows nothing", accepted, drawn)
	}
	plain := serve(t, config, "--speculate", "off")
	c = plain.dial()
	for n := range drawn {
		draw(plain, c, 1<<20+uint64(n), counts[0])
	}
	c.Close()
	chi, cells := 0.0, 0
	for text := range counts[0] {
		a, b := float64(counts[0][text]), float64(counts[1][text])
		if a+b >= 10 {
			chi += (a - b) * (a - b) / (a + b)
			cells++
		}
	}
	// Wilson and Hilferty's approximation of the quantile; 3.72 standard deviations are 1 in 10,000.
	k := float64(cells - 1)
	limit := k * math.Pow(1-2/(9*k)+3.72*math.Sqrt(2/(9*k)), 3)
	t.Logf("chi-square %.1f of %d texts, limit %.1f; %v drafts of %d answers accepted", chi, cells, limit, accepted,
		drawn)
	if chi > limit || cells < 4 {
		t.Errorf("chi-square is %.1f with %.0f degrees of freedom, the limit is %.1f", chi, k, limit)
	}
}

// TestDraftModelIsReported: info has the draft model and its memory, why and the metrics have its guesses.
func TestDraftModelIsReported(t *testing.T) {
	config := fake.Config{Seed: 5}
	r := serveDraft(t, config, config, "--draft-ctx-size", "1024", "--parallel", "4")
	_, _, drafted, accepted := r.events(random)
	r.nothingLeft()
	in := r.info()
	if d := in.Draft; d == nil || d.Name != "small" || d.ContextTokens != 1024 || d.Sequences != 4 || d.Failed ||
		d.Bytes != 8*1024 || in.Memory.Draft != d.Bytes {
		t.Errorf("info: %+v, %+v", in.Draft, in.Memory)
	}
	if n, m := r.drafts(); int(n) != drafted || int(m) != accepted || accepted == 0 {
		t.Errorf("the metrics count %v and %v tokens, the usage %d and %d", n, m, drafted, accepted)
	}
	c := r.dial()
	defer c.Close()
	rep, err := c.Why(context.Background(), wire.WhyQuestion{Last: 1})
	if err != nil || len(rep.Requests) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	q := &rep.Requests[0]
	if g := q.Drafts; g == nil || !slices.ContainsFunc(g.Counts, func(c reports.WhyDraftCount) bool {
		return c.Source == "draft-model" && c.Phase == "output" && c.Drafted == drafted && c.Accepted == accepted
	}) {
		t.Errorf("why says %+v", q.Drafts)
	}
	for _, reason := range []string{"draft_model", "draft_catch_up"} {
		if !slices.ContainsFunc(q.Decisions, func(d reports.Decision) bool { return d.Reason == reason }) {
			t.Errorf("no decision %s among %+v", reason, q.Decisions)
		}
	}
	var m map[string]any
	if err := json.Unmarshal(r.metrics.AppendJSON(nil), &m); err != nil || m["draft_bytes"] != 8.0*1024 {
		t.Errorf("draft_bytes is %v, %v", m["draft_bytes"], err)
	}
}

// TestDraftModelOfARequest: a request that allows no guesses has none of the draft model either.
func TestDraftModelOfARequest(t *testing.T) {
	config := fake.Config{Seed: 5}
	r := serveDraft(t, config, config)
	r.events(func(q *wire.Request) { random(q); q.Speculate, q.SpeculateSet = 0, true })
	if n, _ := r.drafts(); n != 0 || r.draft.Decodes() != 0 {
		t.Errorf("%v guesses, %d Decodes of the draft model", n, r.draft.Decodes())
	}
	r.nothingLeft()
}

// TestCancelWithADraftModel: a request that is cancelled while the draft model guesses for it leaves nothing there.
func TestCancelWithADraftModel(t *testing.T) {
	config := fake.Config{Seed: 5}
	r := serveDraft(t, config, config)
	c := r.dial()
	st := r.begin(c, func(q *wire.Request) { random(q); q.MaxTokens, q.Sampling.Temperature = 2000, 0 })
	for n := 0; n < 100; n++ {
		if _, err := st.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := r.drafts(); n == 0 {
		t.Error("nothing was guessed")
	}
	c.Close()
	r.nothingLeft()
	r.inLoop(func(l *loop) {
		if n := r.draft.Used(); n != 0 {
			t.Errorf("the draft model holds %d cells", n)
		}
	})
}

// TestDraftModelFailsWhileItRuns: the answer goes on without it.
func TestDraftModelFailsWhileItRuns(t *testing.T) {
	config := fake.Config{Seed: 5}
	plain := serve(t, config, "--speculate", "off")
	r := serveDraft(t, config, config)
	r.draft.failStep(9, runtime.ErrDecode)
	want, _, _, _ := plain.events(random)
	got, _, _, _ := r.events(random)
	if !slices.Equal(got, want) {
		t.Error("another answer")
	}
	r.nothingLeft()
	if in := r.info(); in.Draft == nil || !in.Draft.Failed {
		t.Errorf("info: %+v", in.Draft)
	}
	n := r.draft.Decodes()
	r.events(random)
	if r.draft.Decodes() != n {
		t.Error("the draft model is asked again")
	}
}

// TestDraftUnderPressure: requests that are preempted for cells while the draft model guesses for them answer as
// without it.
func TestDraftUnderPressure(t *testing.T) {
	config := fake.Config{Seed: 5}
	args := []string{"--ctx-size", "256", "--parallel", "4", "--batch-size", "64", "--draft-ctx-size", "128"}
	plain := serve(t, config, append([]string{"--speculate", "off"}, args...)...)
	r := serveDraft(t, config, config, args...)
	sameAnswersAtOnce(t, plain, r)
	if n, _ := r.drafts(); n == 0 {
		t.Error("nothing was guessed")
	}
}

// sameAnswersAtOnce asks each daemon the same four questions at once, and compares the answers.
func sameAnswersAtOnce(t *testing.T, plain, drafting *running) {
	t.Helper()
	var answers [2][]answer
	for i, r := range []*running{plain, drafting} {
		done := make(chan answer, 4)
		for n := range 4 {
			go func() {
				done <- r.ask(r.dial(), func(q *wire.Request) {
					random(q)
					q.Messages[0].Content += strings.Repeat("x", n)
					q.Sampling.Temperature, q.MaxTokens = 0, 100
				})
			}()
		}
		for range 4 {
			answers[i] = append(answers[i], <-done)
		}
		slices.SortFunc(answers[i], func(a, b answer) int { return strings.Compare(a.text, b.text) })
		r.nothingLeft()
	}
	for n := range answers[0] {
		a, b := answers[0][n], answers[1][n]
		if a.err != nil || b.err != nil || a.text != b.text || a.text == "" {
			t.Errorf("%d: %q, %v; without %q, %v", n, b.text, b.err, a.text, a.err)
		}
	}
}

// TestDraftModelThatDoesNotFit: the daemon does not start, and says what is wrong with which file.
func TestDraftModelThatDoesNotFit(t *testing.T) {
	big := fake.Config{Markers: make([]string, 130)}
	for i := range big.Markers {
		big.Markers[i] = fmt.Sprintf("<extra%d>", i)
	}
	bad := errors.New("no such file")
	for name, c := range map[string]struct {
		model, draft fake.Config
		err          error
		want         []string
	}{
		"cannot be loaded": {err: bad, want: []string{"--draft-model", "small.gguf", "no such file"}},
		"another token": {draft: fake.Config{SpelledTags: true},
			want: []string{"small.gguf", "big.gguf", `token 3 is "<think>" in big.gguf and "<|reserved_0|>"`}},
		"another size": {draft: big, want: []string{"391", "261", "128"}},
		"no ranges":    {draft: fake.Config{NoRanges: true}, want: []string{"small.gguf", "cannot remove single"}},
		"an encoder":   {draft: fake.Config{Encoder: true}, want: []string{"small.gguf", "cannot be a draft model"}},
	} {
		t.Run(name, func(t *testing.T) {
			wontStart(t, func(o runtime.Options) (fake.Config, error) {
				if o.ModelPath == "small.gguf" {
					return c.draft, c.err
				}
				return c.model, nil
			}, c.want, "--model", "big.gguf", "-md", "small.gguf")
		})
	}
}

// TestDraftModelWithoutSpeculation: it is not loaded.
func TestDraftModelWithoutSpeculation(t *testing.T) {
	r := serveDraft(t, fake.Config{}, fake.Config{}, "--speculate", "off")
	if r.draft != nil || r.info().Draft != nil {
		t.Error("the draft model is loaded although --speculate is off")
	}
}

// TestDraftTraceReplays: a recording has what the draft model guessed and how long it took, so that scheduler and core
// decide the same again without one.
func TestDraftTraceReplays(t *testing.T) {
	config := fake.Config{Seed: 5}
	file := filepath.Join(t.TempDir(), "trace")
	r := serveDraft(t, config, config, "--trace", file)
	r.events(random)
	r.draft.failStep(5, runtime.ErrDecode)
	r.events(random)
	r.nothingLeft()
	if n, _ := r.drafts(); n == 0 {
		t.Error("nothing was guessed")
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"#core drafted ", "#core draft_failed", " drafting=", " draft_right="} {
		if !strings.Contains(string(b), line) {
			t.Errorf("the recording has no %q", line)
		}
	}
	got, err := core.Replay(b)
	if err != nil || got.Tokens < 240 {
		t.Errorf("%+v, %v", got, err)
	}
	recorded, err := trace.Read(b)
	if err == nil {
		err = recorded.Replay(nil)
	}
	if err != nil {
		t.Error(err)
	}
}

// wontStart runs a daemon that must not start with these options, on the engines that of describes: the error says each
// of want, and every engine that was opened is closed.
func wontStart(t *testing.T, of func(runtime.Options) (fake.Config, error), want []string, args ...string) {
	t.Helper()
	cfg, err := load(t, append(args, "--socket", filepath.Join(t.TempDir(), "s")), nil)
	if err != nil {
		t.Fatal(err)
	}
	var opened []*fake.Engine
	err = Run(t.Context(), cfg, slog.New(slog.DiscardHandler), func(o runtime.Options) (runtime.Engine, error) {
		f, err := of(o)
		if err != nil {
			return nil, err
		}
		f.Options = o
		opened = append(opened, fake.New(f))
		return opened[len(opened)-1], nil
	})
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want %q in it", err, w)
		}
	}
	for _, e := range opened {
		if !e.Closed() {
			t.Error("an engine was left open")
		}
	}
}
