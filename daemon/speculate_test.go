package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sampler"
)

// draft is a text that is quoted with changes.
var draft = strings.Repeat("the cat sat on the mat; then it ate the rat and sat on the mat again. ", 3)

// events returns a request's token events, and its eos without what speculation may change, and its guesses.
func (r *running) events(edit func(*wire.Request)) (events []string, eos wire.EOS, drafted, accepted int) {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	q := wire.DefaultRequest()
	q.Messages, q.Sampling.Temperature, q.Stream = []wire.Message{{Role: "user", Content: draft}}, 0, true
	q.MaxTokens = 300
	q.Sampling.Seed, q.Sampling.SeedSet = 7, true
	edit(&q)
	st, err := c.Stream(context.Background(), &q)
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		ev, err := st.Next()
		if err != nil {
			return append(events, err.Error()), eos, drafted, accepted
		}
		switch ev.Kind {
		case wire.EventToken:
			events = append(events, fmt.Sprintf("%d %q %v %v %v", ev.Token.TokenID, ev.Token.Text, ev.Token.Phase,
				ev.Token.Logprob, ev.Token.Top))
		case wire.EventToolCall:
			events = append(events, fmt.Sprintf("%+v", ev.ToolCall))
		case wire.EventEOS:
			eos = ev.EOS
			drafted, accepted = eos.Usage.DraftedTokens, eos.Usage.AcceptedTokens
			eos.Usage.DraftedTokens, eos.Usage.AcceptedTokens, eos.Timings = 0, 0, wire.Timings{}
			eos.Thought.Time, eos.Metadata = 0, nil
			eos.Usage.CachedTokens, eos.Usage.CacheTier, eos.Usage.CacheMiss = 0, wire.TierNone, ""
			return events, eos, drafted, accepted
		}
	}
}

// letters limits answers to a few tokens, so that a random text repeats itself.
func (r *running) letters(q *wire.Request, letters string) {
	q.Sampling.Temperature, q.Sampling.IgnoreEOS = 1, true
	q.Sampling.AllowedTokens = nil
	for _, c := range letters {
		q.Sampling.AllowedTokens = append(q.Sampling.AllowedTokens, r.tokensOf(string(c))[0])
	}
}

// TestSpeculationChangesNothing: each answer has the same events to the bit with and without speculation, whatever
// decides its tokens, and guesses come true and do not.
func TestSpeculationChangesNothing(t *testing.T) {
	t.Run("cells", func(t *testing.T) { speculationChangesNothing(t, false) })
	t.Run("states", func(t *testing.T) { speculationChangesNothing(t, true) })
}

func speculationChangesNothing(t *testing.T, states bool) {
	edited := strings.Replace(strings.Replace(draft, "rat", "bat", 1), "again", "once more", 2)
	config := fake.Config{Scripts: []fake.Script{
		{After: "think<|im_end|>\n<|im_start|>assistant\n", Emit: "<think>" + strings.Repeat("It may be so. ", 30) +
			"</think>It is so."},
		{Emit: edited},
	}, NoRanges: states}
	plain, spec := serve(t, config, "--speculate", "off"), serve(t, config)
	type edit = func(*running, *wire.Request)
	random := func(letters string, more func(*wire.Request)) edit {
		return func(r *running, q *wire.Request) {
			r.letters(q, letters)
			if more != nil {
				more(q)
			}
		}
	}
	set := func(f func(p *sampler.Params)) func(*wire.Request) {
		return func(q *wire.Request) { f(&q.Sampling) }
	}
	form := func(kind wire.FormatKind, payload string) edit {
		return func(_ *running, q *wire.Request) {
			q.Format, q.Sampling.Temperature = wire.Format{Kind: kind, Payload: payload}, 1
		}
	}
	think := func(more func(*wire.Request)) edit {
		return func(_ *running, q *wire.Request) {
			q.Messages[0].Content += "think"
			more(q)
		}
	}
	cases := map[string]edit{
		"greedy":          func(*running, *wire.Request) {},
		"greedy, max":     func(_ *running, q *wire.Request) { q.MaxTokens = 77 },
		"sampled":         random("ab", nil),
		"top_k, top_p":    random("abc", set(func(p *sampler.Params) { p.TopK, p.TopP = 2, 0.9 })),
		"min_p":           random("abc", set(func(p *sampler.Params) { p.MinP = 0.2 })),
		"repeat penalty":  random("ab", set(func(p *sampler.Params) { p.RepeatPenalty = 1.3 })),
		"frequency":       random("ab", set(func(p *sampler.Params) { p.FrequencyPenalty = 0.2 })),
		"dry":             random("ab", set(func(p *sampler.Params) { p.DryMultiplier, p.DryBase = 0.8, 1.75 })),
		"mirostat":        random("abc", set(func(p *sampler.Params) { p.Mirostat = 2 })),
		"xtc":             random("abc", set(func(p *sampler.Params) { p.XTCProbability, p.XTCThreshold = 0.5, 0.1 })),
		"dynatemp":        random("abc", set(func(p *sampler.Params) { p.DynatempRange = 0.5 })),
		"log-probs":       random("ab", set(func(p *sampler.Params) { p.Logprobs = 3 })),
		"stop string":     random("ab", func(q *wire.Request) { q.Stop = []string{"abbaab"} }),
		"bad words":       random("ab", func(q *wire.Request) { q.BadWords = []string{"aa"} }),
		"greedy penalty":  random("abcdef", set(func(p *sampler.Params) { p.Temperature, p.RepeatPenalty = 0, 1.1 })),
		"regex":           form(wire.FormatRegex, "(ab|ba|cab){20,60}"),
		"schema":          form(wire.FormatSchema, `{"type":"array","minItems":5,"items":`+personSchema+`}`),
		"choice":          form(wire.FormatRegex, "(yes yes yes yes|yes yes yes no)( yes){30}"),
		"thinking":        think(func(*wire.Request) {}),
		"budget":          think(func(q *wire.Request) { q.Think.BudgetTokens = 91 }),
		"early exit":      think(func(q *wire.Request) { q.Think.EarlyExit = wire.ExitEAT }),
		"thought logprob": think(func(q *wire.Request) { q.Sampling.Logprobs = 1 }),
	}
	drafted, accepted := 0, 0
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			want, wantEOS, none, _ := plain.events(func(q *wire.Request) { edit(plain, q) })
			for range 2 { // the second time the text of the first one is cached
				got, eos, d, a := spec.events(func(q *wire.Request) { edit(spec, q) })
				drafted += d
				accepted += a
				for i := range min(len(want), len(got)) {
					if want[i] != got[i] {
						t.Fatalf("token %d is %s, without speculation it is %s", i, got[i], want[i])
					}
				}
				if len(got) != len(want) || fmt.Sprintf("%+v", eos) != fmt.Sprintf("%+v", wantEOS) {
					t.Errorf("%d tokens, %+v; without speculation %d, %+v", len(got), eos, len(want), wantEOS)
				}
			}
			if none != 0 {
				t.Errorf("--speculate off drafted %d tokens", none)
			}
		})
	}
	t.Logf("%d tokens drafted, %d accepted", drafted, accepted)
	if accepted < 1000 || drafted-accepted < 100 {
		t.Errorf("%d tokens drafted, %d accepted: the test shows too little", drafted, accepted)
	}
	plain.nothingLeft()
	spec.nothingLeft()
}

func TestSpeculationOfARequest(t *testing.T) {
	config := fake.Config{Scripts: []fake.Script{{Emit: draft}}}
	r := serve(t, config, "--speculate", "3")
	for most, want := range map[int]bool{0: false, 1: true, 1000: true} {
		_, _, drafted, _ := r.events(func(q *wire.Request) { q.Speculate, q.SpeculateSet = most, true })
		if drafted > 0 != want {
			t.Errorf("speculate %d: %d tokens drafted", most, drafted)
		}
	}
	if in := r.info(); in.Config.Speculate != 3 || in.Config.NoSpeculation != "" {
		t.Errorf("info: %+v", in.Config)
	}
	r = serve(t, config, "--speculate", "off")
	if _, _, drafted, _ := r.events(func(q *wire.Request) { q.Speculate, q.SpeculateSet = 8, true }); drafted > 0 {
		t.Errorf("--speculate off, and %d tokens drafted", drafted)
	}
	if in := r.info(); in.Config.Speculate != 0 || !strings.Contains(in.Config.NoSpeculation, "off") {
		t.Errorf("info: %+v", in.Config)
	}
}

// TestSpeculationIsReported: metrics count by phase and source, and why says what became of a request's guesses.
func TestSpeculationIsReported(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>" + draft + "</think>" + draft}}})
	drafted, accepted := 0, 0
	for range 3 {
		_, _, d, a := r.events(func(q *wire.Request) { // all of it stays cached
			q.Messages, q.Prompt, q.ParseSpecial = nil, "<|im_start|>assistant\n", true
		})
		drafted += d
		accepted += a
	}
	r.nothingLeft()
	var snapshot map[string]any
	if err := json.Unmarshal(r.metrics.AppendJSON(nil), &snapshot); err != nil {
		t.Fatal(err)
	}
	sum := func(name string) (n int) {
		for _, phase := range []string{"think", "output"} {
			one := 0
			for _, source := range []string{"own", "other"} {
				v, _ := dig(snapshot, name, phase+"/"+source).(float64)
				one += int(v)
			}
			if one == 0 {
				t.Errorf("%s: nothing in phase %s", name, phase)
			}
			n += one
		}
		return n
	}
	if n := sum("drafted_tokens_total"); n != drafted {
		t.Errorf("the metric counts %d drafted tokens, the usages %d", n, drafted)
	}
	if n := sum("accepted_tokens_total"); n != accepted {
		t.Errorf("the metric counts %d accepted tokens, the usages %d", n, accepted)
	}
	if v, _ := dig(snapshot, "accepted_tokens_total", "think/other").(float64); v == 0 {
		t.Error("no guess from another text came true")
	}
	c := r.dial()
	defer c.Close()
	rep, err := c.Why(context.Background(), wire.WhyQuestion{Last: 1})
	if err != nil || len(rep.Requests) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	g := rep.Requests[0].Drafts
	if g == nil || g.Most == 0 || g.Reason == "" || g.Text == "" || len(g.Counts) == 0 {
		t.Fatalf("why says %+v", g)
	}
	if !slices.ContainsFunc(rep.Requests[0].Decisions, func(d reports.Decision) bool { return d.Reason == "draft" }) {
		t.Errorf("no decision to compute guesses among %+v", rep.Requests[0].Decisions)
	}
}

func TestGuessReasonsAgree(t *testing.T) {
	for i, name := range metrics.GuessReasons() {
		if got := guessReasons[i].String(); got != name {
			t.Errorf("reason %d is %s in the scheduler and %s in the metrics", i, got, name)
		}
	}
}

// TestSpeculationKeepsTheDistribution draws many answers of a few tokens at temperature 1, each speculated with what an
// earlier one said, and compares how often each text came with how often it comes without speculation (chi-square of
// two samples, 1 in 10,000).
func TestSpeculationKeepsTheDistribution(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests")
	}
	const answers, letters = 3000, 4
	var counts [2]map[string]int
	accepted := 0
	for i, flag := range []string{"off", "auto"} {
		r := serve(t, fake.Config{Seed: 3}, "--speculate", flag)
		counts[i] = map[string]int{}
		c := r.dial()
		for n := range answers {
			q := wire.DefaultRequest()
			q.Messages, q.MaxTokens = []wire.Message{{Role: "user", Content: "abab"}}, letters
			r.letters(&q, "ab")
			q.Sampling.Seed, q.Sampling.SeedSet = uint64(i*answers+n), true
			st, err := c.Stream(context.Background(), &q)
			if err != nil {
				t.Fatal(err)
			}
			a := collect(st)
			if a.err != nil {
				t.Fatal(a.err)
			}
			counts[i][a.text]++
			accepted += a.eos.Usage.AcceptedTokens
		}
		c.Close()
	}
	if accepted < answers/10 {
		t.Fatalf("%d guesses came true: the test shows nothing", accepted)
	}
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
	t.Logf("chi-square %.1f of %d texts, limit %.1f; %d guesses came true", chi, cells, limit, accepted)
	if chi > limit {
		t.Errorf("chi-square is %.1f with %.0f degrees of freedom, the limit is %.1f", chi, k, limit)
	}
}
