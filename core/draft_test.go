package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/spec"
)

func guessing(prompt, most int) *Spec {
	return &Spec{Spec: sched.Spec{Prompt: prompt, MaxTokens: most}, Speculate: MaxGuess}
}

func testDraft(cells int) DraftConfig {
	return DraftConfig{Sequences: 4, Cells: cells, Batch: 64, Tokens: 1 << 30, Cost: 0.1}
}

// answered runs requests of 20 prompt tokens on eng, greedily, with the guesses of draft (nil: none), and returns their
// tokens and what was drafted and accepted. A step takes ten times as long as one of the draft model. synthetic is
// Config.Synthetic.
func answered(t *testing.T, eng, draft runtime.Engine, requests, tokens int, synthetic ...float64) (out [][]Token,
	drafted, accepted int) {
	t.Helper()
	caps := eng.Capabilities()
	cfg := testConfig(caps.ContextTokens, requests, caps.MaxBatch, "meridian")
	cfg.Sequences, cfg.Seals, cfg.Synthetic = caps.MaxSequences, caps.Seals, synthetic
	if draft != nil {
		d := draft.Capabilities()
		cfg.Draft = DraftConfig{Sequences: d.MaxSequences, Cells: d.ContextTokens, Batch: d.MaxBatch,
			Tokens: min(eng.Model().VocabSize, draft.Model().VocabSize), Cost: 0.1}
		if h, ok := draft.(runtime.Head); ok {
			cfg.Draft.States, cfg.Draft.Block, cfg.Draft.Shared = 32, h.Block(), h.Shared()
		}
		for s := range Seq(d.MaxSequences) {
			draft.SeqRemove(s, 0, -1)
		}
	}
	for s := range Seq(caps.MaxSequences) {
		eng.SeqRemove(s, 0, -1)
	}
	m, err := newMachine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.eng, m.draftEng = eng, draft
	m.head, _ = draft.(runtime.Head)
	var rs []*Request
	for i := range requests {
		r := &Request{ID: ID(i + 1), Spec: guessing(20, tokens)}
		for p := range 20 {
			r.Tokens = append(r.Tokens, Token(10+(i*37+p*(11+i))%200))
		}
		rs = append(rs, r)
		m.arrive(r)
	}
	for range 100_000 {
		s := m.next()
		if s.Idle && len(m.want) == 0 {
			break
		}
		m.done(sched.StepOK, func(r *Request, row int) (Token, bool) {
			if tok, ok := m.c.Synthetic(r); ok {
				return tok, false
			}
			return argmax(eng.Logits(row)), false
		})
	}
	for _, r := range rs {
		if r.Generated() != tokens {
			t.Fatalf("request %d has %d tokens", r.ID, r.Generated())
		}
		out = append(out, r.Tokens)
		g := r.Guesses()
		drafted += g.Drafted[0][spec.Draft] + g.Drafted[0][spec.Head]
		accepted += g.Accepted[0][spec.Draft] + g.Accepted[0][spec.Head]
	}
	return out, drafted, accepted
}

// draftsOn compares answers of eng with a draft model that is a copy of it, and with one that has other weights, with
// those without. The first accepts nearly everything, the other one is left alone soon.
func draftsOn(t *testing.T, eng, same, other runtime.Engine) {
	for _, requests := range []int{1, 3} {
		const tokens = 150
		want, _, _ := answered(t, eng, nil, requests, tokens)
		got, drafted, accepted := answered(t, eng, same, requests, tokens)
		t.Logf("%d requests: %d of %d guesses of a copy came true", requests, accepted, drafted)
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%d requests: other answers with a copy as draft model", requests)
		}
		if accepted < drafted*98/100 || drafted < requests*tokens/2 {
			t.Errorf("%d requests: of %d guesses of a copy %d came true", requests, drafted, accepted)
		}
		got, drafted, accepted = answered(t, eng, other, requests, tokens)
		t.Logf("%d requests: %d of %d guesses of other weights came true", requests, accepted, drafted)
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%d requests: other answers with another draft model", requests)
		}
		if accepted > drafted/5 || drafted == 0 || drafted > 120 {
			t.Errorf("%d requests: of %d guesses of other weights %d came true", requests, drafted, accepted)
		}
	}
}

func TestDrafts(t *testing.T) {
	open := func(seed uint64) runtime.Engine {
		f := fake.Config{Seed: seed}
		f.ContextTokens, f.Batch, f.Sequences = 1024, 64, 24
		return fake.New(f)
	}
	draftsOn(t, open(1), open(1), open(2))
}

// TestSynthetic: made-up chances decide what becomes of guesses, not the model; every offered guess is computed.
func TestSynthetic(t *testing.T) {
	open := func(seed uint64) runtime.Engine {
		f := fake.Config{Seed: seed}
		f.ContextTokens, f.Batch, f.Sequences = 1024, 64, 24
		return fake.New(f)
	}
	const tokens = 400
	eng, same, other := open(1), open(1), open(2)
	want, _, _ := answered(t, eng, nil, 1, tokens)
	got, drafted, accepted := answered(t, eng, same, 1, tokens, 0, 0, 0)
	if accepted != 0 || drafted < 3*(tokens-4) || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("chance 0: %d of %d guesses of a copy came true", accepted, drafted)
	}
	got, drafted, accepted = answered(t, eng, other, 1, tokens, 1, 1, 1)
	if accepted != drafted || drafted < tokens*7/10 || slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("chance 1: %d of %d guesses of other weights came true", accepted, drafted)
	}
	// A chance of 1/2, then of 1/4: of three guesses 0.5 + 0.125 are expected to come true. The bounds are four
	// standard deviations.
	for _, draft := range []runtime.Engine{same, other} {
		_, drafted, accepted = answered(t, eng, draft, 2, tokens, 0.5, 0.25, 0)
		if per := float64(accepted) / float64(drafted) * 3; per < 0.51 || per > 0.74 {
			t.Errorf("of %d guesses %d came true: %.3f in a step, want 0.625", drafted, accepted, per)
		}
		_, d, a := answered(t, eng, draft, 2, tokens, 0.5, 0.25, 0)
		if d != drafted || a != accepted {
			t.Errorf("again %d of %d came true, before that %d of %d", a, d, accepted, drafted)
		}
	}
}

// drafting is a machine with one running request of n prompt tokens whose guesses the draft model always makes.
func drafting(t *testing.T, draft DraftConfig, n, max int) (*machine, *Request) {
	t.Helper()
	cfg := testConfig(400, 4, 64, "meridian")
	cfg.Draft = draft
	m, err := newMachine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.guess = func(tokens []Token) Token { return tokens[len(tokens)-1] + 1 }
	r := &Request{ID: 1, Spec: guessing(n, max), Tokens: stream("a", n)}
	for i := range r.Tokens {
		r.Tokens[i] %= 1 << 20
	}
	m.arrive(r)
	return m, r
}

// counting is a model that the draft model of drafting guesses, but for every tenth token.
func counting(r *Request, _ int) (Token, bool) {
	last := r.Tokens[len(r.Tokens)-1]
	if len(r.Tokens)%10 == 0 {
		return last + 3, false
	}
	return last + 1, false
}

func (m *machine) steps(n int, a answer) {
	for range n {
		m.next()
		m.done(sched.StepOK, a)
	}
}

// TestCancelOfADraftedRequest: what the draft model has of a request is removed when it is cancelled between a step
// with its guesses and the next one.
func TestCancelOfADraftedRequest(t *testing.T) {
	m, r := drafting(t, testDraft(200), 30, 200)
	for range 40 {
		if m.steps(1, counting); r.guess.rows > 0 && r.guess.drafted {
			break
		}
	}
	if len(m.drafts[0]) == 0 {
		t.Fatal("the draft model has nothing")
	}
	m.c.Handle(m.now, Input{Kind: Cancel, Req: 1})
	m.steps(2, counting)
	if len(m.drafts[0]) != 0 || m.c.drafts.used != 0 || r.guess.slot != 0 {
		t.Errorf("the draft model has %d tokens, %d cells are counted", len(m.drafts[0]), m.c.drafts.used)
	}
}

// TestDraftModelThatFails: the answers go on without it.
func TestDraftModelThatFails(t *testing.T) {
	m, r := drafting(t, testDraft(300), 30, 300)
	m.steps(20, counting)
	if n := r.Guesses().Drafted[0][spec.Draft]; n == 0 {
		t.Fatal("the draft model has guessed nothing")
	}
	m.draftFails = func() bool { return true }
	m.steps(3, counting)
	before := r.Guesses().Drafted[0][spec.Draft]
	m.draftFails = nil
	m.steps(20, counting)
	after := r.Guesses().Drafted[0][spec.Draft]
	if after > before+MaxGuess || len(m.drafts[0]) != 0 || !m.c.drafts.off {
		t.Errorf("%d guesses before it failed, %d after; it has %d tokens", before, after, len(m.drafts[0]))
	}
	for i := r.Prompt; i < len(r.Tokens); i++ {
		if want, _ := counting(&Request{Tokens: r.Tokens[:i]}, 0); r.Tokens[i] != want {
			t.Fatalf("token %d is %d, want %d", i, r.Tokens[i], want)
		}
	}
}

// TestDraftModelWithFewCells: a history that does not fit is not guessed by it; others are.
func TestDraftModelWithFewCells(t *testing.T) {
	m, r := drafting(t, testDraft(80), 30, 200)
	m.steps(200, counting)
	n := r.Guesses().Drafted[0][spec.Draft]
	if r.Generated() < 100 && !r.ended || n == 0 || n > 90 {
		t.Errorf("%d guesses in 80 cells, %d tokens", n, r.Generated())
	}
	if m.c.drafts.used > 80 {
		t.Errorf("%d cells of 80", m.c.drafts.used)
	}
}

// TestDraftSequencesChangeHands: with one sequence, the one of a request that has stood still for draftIdle steps goes
// to another.
func TestDraftSequencesChangeHands(t *testing.T) {
	d := testDraft(300)
	d.Sequences = 1
	m, first := drafting(t, d, 30, 300)
	m.steps(40, counting)
	second := &Request{ID: 2, Spec: guessing(30, 200), Tokens: stream("b", 30)}
	for i := range second.Tokens {
		second.Tokens[i] %= 1 << 20
	}
	m.arrive(second)
	m.c.Handle(m.now, Input{Kind: Pause, Req: 1})
	m.steps(20, counting)
	if first.guess.slot == 0 {
		t.Error("the sequence was taken at once")
	}
	m.steps(60, counting)
	if first.guess.slot != 0 || second.Guesses().Drafted[0][spec.Draft] == 0 {
		t.Errorf("the first request's sequence is %d, the second has %d guesses", first.guess.slot,
			second.Guesses().Drafted[0][spec.Draft])
	}
	m.c.Handle(m.now, Input{Kind: Resume, Req: 1})
	m.steps(5, counting)
}

// TestTokensOutsideTheDraftVocabulary: where the vocabularies differ in size, no engine gets a token that it lacks.
func TestTokensOutsideTheDraftVocabulary(t *testing.T) {
	d := testDraft(300)
	d.Tokens = 50
	m, r := drafting(t, d, 30, 60)
	m.guess = func(tokens []Token) Token {
		if tok := slices.Max(tokens); tok >= 50 {
			t.Errorf("the draft model gets token %d of 50", tok)
		}
		return 53 // which the model does not have
	}
	m.steps(80, func(r *Request, _ int) (Token, bool) {
		if tok := slices.Max(m.batch.Token); r.Guesses().Drafted[0][spec.Draft] > 0 && tok == 53 {
			t.Error("the model gets a token that it lacks")
		}
		return Token(200 + len(r.Tokens)%3), false
	})
	if r.Guesses().Drafted[0][spec.Draft] == 0 {
		t.Error("nothing was guessed")
	}
}

func TestDraftConfig(t *testing.T) {
	for _, c := range []struct {
		d    DraftConfig
		want string
	}{
		{DraftConfig{}, ""}, {testDraft(100), ""},
		{DraftConfig{Sequences: 257, Cells: 1, Batch: 1, Tokens: 1}, "sequences = 257"},
		{DraftConfig{Sequences: 1, Batch: 1, Tokens: 1}, "cells = 0"},
		{DraftConfig{Sequences: 1, Cells: 1, Tokens: 1}, "batch = 0"},
		{DraftConfig{Sequences: 1, Cells: 1, Batch: 1}, "tokens = 0"},
	} {
		err := c.d.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.d, err, c.want)
		}
	}
}

func TestDraftingAllocatesNothing(t *testing.T) {
	m, r := drafting(t, testDraft(390), 10, 380)
	m.steps(60, counting)
	if r.ended || r.guess.slot == 0 {
		t.Fatal("the request does not run with the draft model")
	}
	b := runtime.Batch{Token: make([]Token, 64), Pos: make([]runtime.Pos, 64), Seq: make([]Seq, 64),
		Logits: make([]int8, 64)}
	m.next()
	var toks [4]Token
	if got := testing.AllocsPerRun(50, func() {
		m.c.FillDraft(&b)
		m.c.draftToken(toks[0])
		m.c.slot(r)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
