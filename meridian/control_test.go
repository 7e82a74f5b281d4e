package meridian

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/runtime"
)

// model returns the token that would be sampled next; i counts the calls.
type model func(i int) runtime.Token

// session runs a control as the decode loop does.
type session struct {
	v      *testVocab
	c      *Control
	model  model
	now    int64
	asked  int
	tokens []runtime.Token
	transcript
	forces, exits int
	helped        bool                                  // the model had begun the tag that was forced
	mangle        func(tok runtime.Token) runtime.Token // the token that a lossy loop returns for a forced one
	stats         func() runtime.RowStats
	probe         func() (entropy float64, ok bool)
	probed        [][]runtime.Token // the forks' tokens
	each          func()            // after each token
}

// step decodes one token.
func (s *session) step() Step {
	s.now += 1e6
	c := s.c
	if c.NeedStats() {
		if s.stats != nil {
			st := s.stats()
			c.Observe(&st)
		} else {
			c.StatsMissing()
		}
	}
	tok, forced := c.Next(s.now)
	if forced && s.mangle != nil {
		tok = s.mangle(tok)
	}
	if !forced {
		tok = s.model(s.asked)
		s.asked++
		if t, instead := c.Admit(tok, s.v.Piece(tok), s.v.Text(tok) == eog, s.now); instead {
			tok = t
		}
	}
	if c.forced.kind == closing && s.forces == 0 {
		s.helped = c.forced.pos > 0
	}
	st := c.OnToken(tok, s.v.Piece(tok), s.v.Text(tok) == eog, s.now)
	c.check()
	s.tokens = append(s.tokens, tok)
	s.add(st)
	if st.Event.Has(ForceBudget) {
		s.forces++
	}
	if st.Event.Has(ExitThink) {
		s.exits++
	}
	if fork, ok := c.ProbeDue(); ok && s.probe != nil {
		s.probed = append(s.probed, append([]runtime.Token(nil), fork...))
		if h, ok := s.probe(); ok {
			c.OnProbe(h)
		} else {
			c.ProbeFailed()
		}
	}
	if s.each != nil {
		s.each()
	}
	return st
}

// think decodes until the request answers or ended, at most limit tokens.
func (s *session) think(limit int) bool {
	for range limit {
		if p := s.c.Phase(); p == OutputDecode || p == Complete {
			return true
		}
		s.step()
	}
	return s.c.Phase() == OutputDecode || s.c.Phase() == Complete
}

// text is a model that says the same for ever.
func (v *testVocab) says(text string) model {
	seq := v.tokens(text)
	return func(i int) runtime.Token { return seq[i%len(seq)] }
}

// then is a model that first says text, then goes on as next.
func (v *testVocab) then(text string, next model) model {
	seq := v.tokens(text)
	return func(i int) runtime.Token {
		if i < len(seq) {
			return seq[i]
		}
		return next(i - len(seq))
	}
}

func newSession(v *testVocab, cfg Config, opt Options, prompt string, m model) *session {
	return &session{v: v, c: mustControl(cfg, mustResolve(v, thinkTags), opt, v.tokens(prompt)), model: m}
}

var words = bytesVocab([]string{"word", " is", "<think>", "</think>", "\n\n"}, eog)
var spelledWords = bytesVocab([]string{"word", " is", "</", "think", "\n\n", "<th", "ink"}, eog)

func budget(n int) Options {
	o := DefaultOptions()
	o.BudgetTokens = n
	return o
}

// DefaultOptions of the default configuration.
func DefaultOptions() Options { c := DefaultConfig(); return c.Options() }

// TestCapExactly: with nowhere better to close, the cap is used to the last token, never past it.
func TestCapExactly(t *testing.T) {
	for _, v := range []*testVocab{words, spelledWords} {
		for _, n := range []int{0, 1, 2, 3, 31, 32, 33, 64, 500} {
			for _, prompt := range []string{"", "a<think>"} {
				m := v.says("word")
				if prompt == "" {
					m = v.then("<think>", m)
				}
				s := newSession(v, DefaultConfig(), budget(n), prompt, m)
				if !s.think(n+20) || s.c.ThinkTokens() != n || s.exits != 1 || s.forces != 1 {
					t.Errorf("budget %d after %q: %d think tokens, %d exits, %d forces, %v", n, prompt,
						s.c.ThinkTokens(), s.exits, s.forces, s.c.Phase())
				}
				if got, want := s.think0(), strings.Repeat("word", n); got != want {
					t.Errorf("budget %d: thought %q", n, got)
				}
				if sum := s.c.Summary(s.now); sum.Ended != EndedHardCap || sum.Tokens != n {
					t.Errorf("budget %d: %+v", n, sum)
				}
			}
		}
	}
}

func (s *session) think0() string { return s.transcript.think.String() }

// TestCapWaitsForSentence: the search for a good place begins 32 tokens before the cap.
func TestCapWaitsForSentence(t *testing.T) {
	for _, c := range []struct {
		sentence string
		at       int // think tokens at the close, budget 100
	}{
		{strings.Repeat("word", 69) + ".", 70},       // the first full stop past 68
		{strings.Repeat("word", 67) + "\n", 68},      // exactly where the search begins
		{strings.Repeat("word", 66) + "\n", 100},     // too early, and the next line is too late
		{strings.Repeat("word", 70) + "3.word", 100}, // half of a number
		{strings.Repeat("word", 70) + "。word", 73},
	} {
		s := newSession(words, DefaultConfig(), budget(100), "<think>", words.then(c.sentence, words.says("word")))
		s.think(150)
		if s.c.ThinkTokens() != c.at || s.c.Summary(0).Ended != EndedHardCap {
			t.Errorf("…%q: closed at %d, want %d", c.sentence[max(0, len(c.sentence)-8):], s.c.ThinkTokens(), c.at)
		}
	}
}

// TestNeverInsideCharacter: a cap in the middle of "€" closes before it, or completes it.
func TestNeverInsideCharacter(t *testing.T) {
	for n := range 12 {
		s := newSession(words, DefaultConfig(), budget(n), "<think>", words.says("a€😀"))
		if !s.think(n+10) || s.c.ThinkTokens() > n || !utf8.ValidString(s.think0()) {
			t.Errorf("budget %d: %d tokens, %q", n, s.c.ThinkTokens(), s.think0())
		}
	}
	// Pieces that end one character and begin the next: there is no whole one for as long as the model likes.
	v := bytesVocab([]string{"\x82\xac\xe2", "<think>", "</think>"}, eog)
	for n := range 12 {
		s := newSession(v, DefaultConfig(), budget(n), "<think>", v.then("a\xe2", v.says("\x82\xac\xe2")))
		if !s.think(n+10) || s.c.ThinkTokens() > n || !utf8.ValidString(s.think0()) {
			t.Errorf("chained pieces, budget %d: %d tokens, %q", n, s.c.ThinkTokens(), s.think0())
		}
	}
}

func TestUser(t *testing.T) {
	s := newSession(words, DefaultConfig(), DefaultOptions(), "<think>",
		words.says("wordwordwordwordwordwordwordwordwordword."))
	for range 5 {
		s.step()
	}
	if !s.c.EndThink(42) || !s.c.EndThink(43) {
		t.Fatal("refused")
	}
	s.think(20)
	if f := s.c.LastForce(); s.c.ThinkTokens() != 11 || f.Reason != User || f.DecidedAt != 42 || f.ClosedAt != s.now ||
		f.ForcedAt != s.now || f.Tokens != 5 || s.forces != 1 {
		t.Errorf("%d tokens, %+v, %d forces", s.c.ThinkTokens(), f, s.forces)
	}
	if s.c.EndThink(99) {
		t.Error("accepted while answering")
	}
	// No sentence ends: 32 tokens of grace.
	s = newSession(words, DefaultConfig(), DefaultOptions(), "<think>", words.says("word"))
	for range 5 {
		s.step()
	}
	s.c.EndThink(s.now)
	if s.think(100); s.c.ThinkTokens() != 37 {
		t.Errorf("closed at %d, want 37", s.c.ThinkTokens())
	}
	// Before anything was thought.
	s = newSession(words, DefaultConfig(), DefaultOptions(), "a", words.then("<think>", words.says("word")))
	if !s.c.EndThink(0) {
		t.Error("refused before the first token")
	}
	if s.think(10); s.c.ThinkTokens() != 0 || s.c.Summary(0).Ended != EndedUser {
		t.Errorf("%+v", s.c.Summary(0))
	}
	c := mustControl(DefaultConfig(), nil, DefaultOptions(), nil)
	if c.EndThink(0) {
		t.Error("a model without tags accepts end_think")
	}
}

func TestModes(t *testing.T) {
	off, on := DefaultOptions(), DefaultOptions()
	off.Mode, on.Mode = ModeOff, ModeOn
	s := newSession(words, DefaultConfig(), off, "a<think>\n", words.says("word"))
	if s.think(5); s.c.ThinkTokens() != 0 || s.exits != 1 {
		t.Errorf("off: %+v", s.c.Summary(0))
	}
	for _, v := range []*testVocab{words, spelledWords} {
		s = newSession(v, DefaultConfig(), on, "a", v.then("wordword", v.then("</think>", v.says(" is"))))
		if s.think(20); s.think0() != "wordword" || s.c.Summary(0).Ended != EndedNatural || s.c.Blocks() != 1 {
			t.Errorf("on: %q %+v", s.think0(), s.c.Summary(0))
		}
		s = newSession(v, DefaultConfig(), on, "a<think>", v.says("</think>"))
		if s.think(20); s.c.Blocks() != 1 || s.think0() != "" {
			t.Errorf("on, opened by the prompt: %q %+v", s.think0(), s.c.Summary(0))
		}
	}
}

func TestAnswerCue(t *testing.T) {
	o := budget(3)
	o.AnswerCue = "word is"
	for _, natural := range []bool{false, true} {
		m := words.says("word")
		if natural {
			m = words.then("word</think>", words.says(" is"))
		}
		s := newSession(words, DefaultConfig(), o, "<think>", m)
		for range 9 {
			s.step()
		}
		if got, forced := s.answer.String(), strings.HasPrefix(s.answer.String(), "word is"); forced == natural {
			t.Errorf("natural %v: answer %q", natural, got)
		}
	}
}

func TestReopenedBlockSharesTheBudget(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxThinkBlocks = 3
	m := words.then("wordwordword</think>word<think>", words.says("word"))
	s := newSession(words, cfg, budget(5), "<think>", m)
	for range 30 {
		s.step()
	}
	if s.c.ThinkTokens() != 5 || s.exits != 2 || s.forces != 1 || s.c.Blocks() != 2 {
		t.Errorf("%d tokens, %d exits, %d forces, %d blocks", s.c.ThinkTokens(), s.exits, s.forces, s.c.Blocks())
	}
}

func TestSoftCap(t *testing.T) {
	o := budget(1000)
	o.SoftBudgetTokens = 50
	s := newSession(words, DefaultConfig(), o, "<think>", words.says("word"))
	rows := 0
	s.stats = func() runtime.RowStats {
		rows++
		rank := 10 // not among the first ten
		if s.c.ThinkTokens() == 70 {
			rank = 9
		}
		return runtime.RowStats{CloseRank: rank}
	}
	s.think(200)
	if sum := s.c.Summary(0); sum.Tokens != 70 || sum.Ended != EndedSoftCap || rows != 21 {
		t.Errorf("%+v after %d rows", sum, rows)
	}
	s = newSession(words, DefaultConfig(), o, "<think>", words.says("word"))
	s.think(2000) // no row is available
	if sum := s.c.Summary(0); sum.Ended != EndedHardCap || !s.c.CountOnly() {
		t.Errorf("%+v, count only %v", sum, s.c.CountOnly())
	}
}

func eatConfig() Config {
	cfg := DefaultConfig()
	cfg.MinThinkTokens, cfg.EATWarmupProbes, cfg.EATProbeIntervalTokens = 0, 5, 1
	return cfg
}

func TestEATCloses(t *testing.T) {
	o := DefaultOptions()
	o.EarlyExit = ExitEAT
	for _, c := range []struct {
		entropy float64
		ended   Ended
	}{{0.1, EndedConverged}, {2, EndedStalled}} {
		s := newSession(words, eatConfig(), o, "<think>", words.says("word is.\n\n"))
		s.probe = func() (float64, bool) { return c.entropy, true }
		s.think(1000)
		sum, f := s.c.Summary(s.now), s.c.LastForce()
		if sum.Ended != c.ended || sum.Probes != 6 || f.X != c.entropy || f.Probes != 6 {
			t.Errorf("%+v %+v", sum, f)
		}
		if !strings.HasSuffix(s.think0(), ".\n\n") { // decided at the blank line and closed there
			t.Errorf("closed after %q", s.think0()[len(s.think0())-6:])
		}
		fork := words.tokens("\n\n</think>\n")
		if fmt.Sprint(s.probed[0]) != fmt.Sprint(fork) {
			t.Errorf("fork %v, want %v", s.probed[0], fork)
		}
	}
}

func TestProbeCadence(t *testing.T) {
	cfg := DefaultConfig()
	o := DefaultOptions()
	o.EarlyExit, o.AnswerCue = ExitEAT, "word"
	var at []int
	run := func(m model) []int {
		at = nil
		s := newSession(words, cfg, o, "<think>", m)
		s.probe = func() (float64, bool) { at = append(at, s.c.ThinkTokens()); return 1, true }
		s.think(700)
		if len(s.probed) > 0 && fmt.Sprint(s.probed[0][1:]) != fmt.Sprint(words.tokens("</think>\nword")) {
			t.Errorf("fork %v", s.probed[0])
		}
		return at
	}
	// every fourth token is a blank line
	if got := run(words.says("wordword is\n\n")); fmt.Sprint(got[:3]) != "[32 64 96]" {
		t.Errorf("probes at %v", got)
	}
	if got := run(words.says("word is.")); fmt.Sprint(got) != "[258 516]" { // only sentences: after 256 tokens
		t.Errorf("probes at %v", got)
	}
	if got := run(words.says("word")); len(got) != 0 {
		t.Errorf("probes at %v without a boundary", got)
	}
}

func TestProbeFailures(t *testing.T) {
	o := DefaultOptions()
	o.EarlyExit = ExitEAT
	s := newSession(words, eatConfig(), o, "<think>", words.says("word\n\n"))
	n := 0
	s.probe = func() (float64, bool) { n++; return 0, n == 2 } // one success in between starts the count again
	for range 100 {
		s.step()
	}
	if n != 5 || !s.c.CountOnly() {
		t.Errorf("%d probes, count only %v", n, s.c.CountOnly())
	}
}

func TestRPDICloses(t *testing.T) {
	for _, form := range []RPDIForm{RPDIEntropy, RPDIIndicator} {
		cfg := DefaultConfig()
		cfg.RPDIForm, cfg.MinThinkTokens, cfg.RPDIWindow, cfg.RPDIIndicatorThreshold = form, 0, 16, 2
		o := DefaultOptions()
		o.EarlyExit = ExitRPDI
		run := func(late float64) Summary {
			s := newSession(words, cfg, o, "<think>", words.says("wordwordwordword is is is."))
			s.stats = func() runtime.RowStats {
				h := 1.0
				if s.c.ThinkTokens()%50 == 7 {
					h = 3 // now and then a transition
				}
				if s.c.ThinkTokens() >= 200 {
					h = late
				}
				return runtime.RowStats{Entropy: h}
			}
			s.think(400)
			return s.c.Summary(0)
		}
		if sum := run(4); sum.Ended != EndedOverthinking || sum.Tokens < 200 || sum.Tokens > 240 || sum.Tokens%8 != 0 {
			t.Errorf("%v: %+v", form, sum)
		}
		if sum := run(1); sum.Ended != EndedLength {
			t.Errorf("%v, calm: %+v", form, sum)
		}
	}
}

// TestSignalWaitsForABlankLine: with force_at_blank_line, for as long as force_grace_tokens; a budget does not wait.
func TestSignalWaitsForABlankLine(t *testing.T) {
	run := func(o Options, atBlank bool, grace int) string {
		cfg := DefaultConfig()
		cfg.MinThinkTokens, cfg.RPDIWindow, cfg.ForceAtBlankLine, cfg.ForceGraceTokens = 0, 16, atBlank, grace
		s := newSession(words, cfg, o, "<think>", words.says("word is.word is.word is.word is.\n\n"))
		s.stats = func() runtime.RowStats {
			if s.c.ThinkTokens() < 206 {
				return runtime.RowStats{Entropy: 1}
			}
			return runtime.RowStats{Entropy: 4}
		}
		s.think(400)
		return s.think0()
	}
	rpdi := DefaultOptions()
	rpdi.EarlyExit = ExitRPDI
	atSentence, atBlank, soon := run(rpdi, false, 32), run(rpdi, true, 32), run(rpdi, true, 1)
	if strings.HasSuffix(atSentence, "\n\n") || !strings.HasSuffix(atBlank, "\n\n") || len(atBlank) <= len(atSentence) {
		t.Errorf("closed after %q; with force_at_blank_line after %q", atSentence[len(atSentence)-20:],
			atBlank[len(atBlank)-20:])
	}
	if strings.HasSuffix(soon, "\n\n") || len(soon) >= len(atBlank) {
		t.Errorf("with a grace of one token it is closed after %q", soon[len(soon)-20:])
	}
	if a, b := run(budget(101), false, 32), run(budget(101), true, 32); a != b {
		t.Errorf("a budget closes after %d bytes, with force_at_blank_line after %d", len(a), len(b))
	}
}

// TestLostForce: a close that does not arrive is forced again at once, and counted once.
func TestLostForce(t *testing.T) {
	for _, v := range []*testVocab{words, spelledWords} {
		lost := 0
		s := newSession(v, DefaultConfig(), budget(10), "<think>", v.says("word"))
		s.mangle = func(tok runtime.Token) runtime.Token {
			if lost < 3 {
				lost++
				return v.Find("word")
			}
			return tok
		}
		s.think(100)
		if s.exits != 1 || s.forces != 1 || s.c.LastForce().Reemitted != 3 || s.c.ThinkTokens() != 13 {
			t.Errorf("%d exits, %d forces, %d tokens, %+v", s.exits, s.forces, s.c.ThinkTokens(), s.c.LastForce())
		}
	}
}

// TestHalfWrittenTag: what the model has begun to write itself is not repeated.
func TestHalfWrittenTag(t *testing.T) {
	v := spelledWords
	s := newSession(v, DefaultConfig(), budget(4), "<think>", v.then("wordword</think", v.says("word")))
	s.think(20)
	if s.think0() != "wordword" || s.c.ThinkTokens() != 2 || s.c.Summary(0).Ended != EndedHardCap {
		t.Errorf("%q %+v", s.think0(), s.c.Summary(0))
	}
}

func TestEndInsideThinking(t *testing.T) {
	s := newSession(words, DefaultConfig(), DefaultOptions(), "a", words.then("<think>word"+eog, words.says("a")))
	s.think(10)
	if sum := s.c.Summary(s.now); s.c.Phase() != Complete || sum.Ended != EndedEOG || sum.Ns != 2e6 || sum.Tokens != 1 {
		t.Errorf("%v %+v", s.c.Phase(), sum)
	}
	s = newSession(words, DefaultConfig(), DefaultOptions(), "<think>", words.says("word"))
	s.step()
	s.step()
	if sum := s.c.Summary(s.now); sum.Ended != EndedLength || sum.Ns != 1e6 {
		t.Errorf("%+v", sum)
	}
}

// TestEndInsideThinkingOfABoundAnswer: a model that ends its turn in a thought still owes the answer that is held to a
// grammar: the thought is closed, once, and the marker is not repeated where the model had begun it.
func TestEndInsideThinkingOfABoundAnswer(t *testing.T) {
	for _, v := range []*testVocab{words, spelledWords} {
		for _, text := range []string{"word" + eog, "word</" + eog, eog, "word</think>"} {
			opt := DefaultOptions()
			opt.Bound = true
			s := newSession(v, DefaultConfig(), opt, "<think>", v.then(text, v.says("word")))
			s.think(20)
			s.step()
			sum, want, forces := s.c.Summary(s.now), EndedEOG, 1
			if strings.HasSuffix(text, "think>") {
				want, forces = EndedNatural, 0
			}
			if s.c.Phase() != OutputDecode || sum.Ended != want || s.forces != forces || s.exits != 1 ||
				s.transcript.answer.String() != "word" || strings.Contains(s.think0(), "think") {
				t.Errorf("%q: %v, %+v, %d forces, thought %q, answer %q", text, s.c.Phase(), sum, s.forces, s.think0(),
					s.transcript.answer.String())
			}
		}
	}
}

// incomplete reports whether text ends inside a character, by the standard library.
func incomplete(text []byte) bool {
	for i := 1; i <= min(utf8.UTFMax, len(text)); i++ {
		if end := text[len(text)-i:]; utf8.RuneStart(end[0]) {
			return !utf8.FullRune(end)
		}
	}
	return false
}

func TestTextState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var st textState
		var all []byte
		piece := rapid.OneOf(
			rapid.SliceOfN(rapid.SampledFrom(
				[]byte("a \n.\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe2\xed\xef\xf0\xf3\xf4\xf5\xff")), 0, 6),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }))
		for _, p := range rapid.SliceOf(piece).Draw(t, "pieces") {
			st.add(p)
			all = append(all, p...)
			if (st.need > 0) != incomplete(all) {
				t.Fatalf("%q: %d bytes missing", all, st.need)
			}
			if st.need > 0 {
				more := append(append([]byte(nil), all...), st.lo)
				more = append(more, bytes.Repeat([]byte{0x80}, int(st.need)-1)...)
				if incomplete(more) {
					t.Fatalf("%q is not completed by %q", all, more[len(all):])
				}
			}
		}
	})
}

// TestForcedRequests is the promise: a thousand requests with random vocabularies, budgets, wishes and models that
// never close, close early or write half a tag. Every one closes; none inside a character, none twice, no cap is
// passed.
func TestForcedRequests(t *testing.T) {
	reasons := map[Ended]int{}
	for seed := range uint64(1000) {
		forcedRequest(t, seed, reasons)
		if t.Failed() {
			return
		}
	}
	t.Logf("ended: %v", reasons)
	for _, e := range []Ended{EndedConverged, EndedStalled, EndedOverthinking, EndedHardCap, EndedSoftCap, EndedUser,
		EndedNatural, EndedEOG} {
		if reasons[e] < 5 {
			t.Errorf("only %d requests ended by %v: the test does not reach it", reasons[e], e)
		}
	}
}

func FuzzForcedRequest(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { forcedRequest(t, seed, map[Ended]int{}) })
}

func forcedRequest(t *testing.T, seed uint64, reasons map[Ended]int) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	text := "a€b😀 ünï. 3.14\n\nйцу。" + string([]rune{0x10FFFF, 0xD7FF, 0x800, 0x10000})
	var pieces []string
	if rnd.IntN(2) == 0 {
		pieces = append(pieces, "\n\n", ".")
	}
	for range 1 + rnd.IntN(20) {
		i := rnd.IntN(len(text))
		pieces = append(pieces, text[i:min(len(text), i+1+rnd.IntN(5))])
	}
	m := thinkTags
	switch rnd.IntN(3) {
	case 0:
		pieces = append(pieces, "<think>", "</think>")
	case 1:
		pieces = append(pieces, "</", "<th", "think", "ink", ">a", "nk>\n")
	case 2:
		m = Markers{Open: harmony.Open, Close: harmony.Close}
		pieces = append(pieces, "analysis", "final")
	}
	v := bytesVocab(pieces, eog, "<|start|>", "<|end|>", "<|channel|>", "<|message|>")
	tags := mustResolve(v, m)
	if m.Open[0] == harmony.Open[0] {
		var err error
		if tags, err = resolve(v, harmony, ""); err != nil {
			t.Fatal(err)
		}
	}
	cfg := DefaultConfig()
	cfg.MinThinkTokens = rnd.IntN(30)
	cfg.RPDIWindow, cfg.RPDIBoundaries, cfg.RPDIThreshold, cfg.RPDIIndicatorThreshold = 1+rnd.IntN(20), 1+rnd.IntN(2),
		1.1, 1.1
	cfg.RPDIForm = RPDIForm(rnd.IntN(2))
	cfg.EATWarmupProbes, cfg.EATProbeIntervalTokens, cfg.EATVarianceThreshold = 1+rnd.IntN(4), 1+rnd.IntN(4), 0.01
	cfg.EATProbeMaxIntervalTokens = cfg.EATProbeIntervalTokens
	cfg.ForceGraceTokens = []int{0, 1, 5, 32}[rnd.IntN(4)]
	opt := cfg.Options()
	opt.EarlyExit = EarlyExit(rnd.IntN(4))
	switch rnd.IntN(3) {
	case 0:
		opt.BudgetTokens = rnd.IntN(4)
	case 1:
		opt.BudgetTokens = rnd.IntN(40)
	default:
		opt.BudgetTokens = rnd.IntN(400)
	}
	if rnd.IntN(3) == 0 {
		opt.SoftBudgetTokens = rnd.IntN(opt.BudgetTokens + 1)
	}
	if rnd.IntN(4) == 0 {
		opt.AnswerCue = "b."
	}
	opt.Bound = rnd.IntN(2) == 0
	prompt := ""
	if rnd.IntN(2) == 0 {
		prompt = m.Open[0]
	} else {
		opt.Mode = ModeOn
	}
	closesAt, endsAt := -1, -1
	switch rnd.IntN(4) {
	case 0:
		closesAt = rnd.IntN(opt.BudgetTokens + 2)
	case 1:
		endsAt = rnd.IntN(opt.BudgetTokens + 2)
	}
	closeSeq := tags.closeSeq
	stuck := runtime.Token(rnd.IntN(256 + len(pieces)))
	stubborn := rnd.IntN(3) == 0
	s := &session{v: v, c: mustControl(cfg, tags, opt, v.tokens(prompt))}
	s.model = func(i int) runtime.Token {
		switch {
		case i == endsAt:
			return v.Find(eog)
		case closesAt >= 0 && i >= closesAt && i < closesAt+len(closeSeq):
			return closeSeq[i-closesAt]
		case rnd.IntN(12) == 0:
			return closeSeq[0] // half a tag, or the tag
		case stubborn:
			return stuck
		}
		return 256 + runtime.Token(rnd.IntN(len(pieces)))
	}
	s.stats = func() runtime.RowStats {
		st := runtime.RowStats{Entropy: rnd.Float64() * 4, CloseRank: rnd.IntN(100) - 1}
		if rnd.IntN(20) == 0 {
			st.Argmax = runtime.NoToken
		}
		return st
	}
	level := rnd.Float64() * 2
	s.probe = func() (float64, bool) { return level + rnd.Float64()*0.05, rnd.IntN(20) > 0 }
	userAt := -1
	if rnd.IntN(4) == 0 {
		userAt = rnd.IntN(opt.BudgetTokens + 1)
	}
	asked := false
	s.each = func() {
		if n := s.c.ThinkTokens(); n > opt.BudgetTokens {
			t.Fatalf("seed %d: %d think tokens, the budget is %d", seed, n, opt.BudgetTokens)
		}
		if !asked && s.c.ThinkTokens() == userAt {
			asked = true
			s.c.EndThink(s.now)
		}
	}
	if !s.think(opt.BudgetTokens + 3*len(closeSeq) + len(tags.openSeq) + 8) {
		t.Fatalf("seed %d: still %v after %d tokens, budget %d", seed, s.c.Phase(), len(s.tokens), opt.BudgetTokens)
	}
	for range 20 {
		s.step()
	}
	sum := s.c.Summary(s.now)
	reasons[sum.Ended]++
	forced := sum.Ended >= EndedConverged && sum.Ended <= EndedUser || sum.Ended == EndedEOG && opt.Bound
	if forced && !s.helped && incomplete(s.transcript.think.Bytes()) {
		t.Fatalf("seed %d: closed inside a character: …%q, %+v, budget %d, markers %v", seed,
			s.think0()[max(0, len(s.think0())-8):], s.c.LastForce(), opt.BudgetTokens, m)
	}
	if s.forces > 1 || s.exits > 1 || forced != (s.forces == 1) || sum.Ended == EndedNatural && s.exits != 1 {
		t.Fatalf("seed %d: %v, %d forces, %d exits", seed, sum.Ended, s.forces, s.exits)
	}
	if f := s.c.LastForce(); forced && (Ended(f.Reason) != sum.Ended || f.DecidedAt > f.ForcedAt ||
		f.ForcedAt > f.ClosedAt || f.Reemitted != 0 || f.ClosedAt == 0) {
		t.Fatalf("seed %d: %+v", seed, f)
	}
	if asked && sum.Ended == EndedUser && s.c.LastForce().Tokens+max(cfg.ForceGraceTokens, utf8.UTFMax-1) < sum.Tokens {
		t.Fatalf("seed %d: asked at %d, closed at %d", seed, s.c.LastForce().Tokens, sum.Tokens)
	}
}

// TestWatchedSignals: signals that may not act are measured as those that may, and end nothing; a thought that the
// model ends by itself leaves them too.
func TestWatchedSignals(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MinThinkTokens, cfg.EATWarmupProbes, cfg.EATProbeIntervalTokens, cfg.EATProbeMaxIntervalTokens = 0, 2, 4, 8
	cfg.RPDIWindow, cfg.RPDIThreshold, cfg.RPDIBoundaries, cfg.WatchSignals = 16, 1.5, 1, ExitBoth
	for _, early := range []EarlyExit{ExitOff, ExitEAT} {
		o := DefaultOptions()
		o.EarlyExit = early
		m := words.then(strings.Repeat("wordwordwordword is is is.", 40)+"</think>", words.says(" is"))
		s := newSession(words, cfg, o, "<think>", m)
		s.stats = func() runtime.RowStats {
			h := 1.0
			if s.c.ThinkTokens() >= 200 {
				h = 4
			}
			return runtime.RowStats{Entropy: h}
		}
		s.probe = func() (float64, bool) { return 0.25, true }
		s.think(400)
		got, sum := s.c.Signals(), s.c.Summary(0)
		why, at := got.First()
		if !got.EAT || !got.RPDI || got.Probes < 3 || got.X != 0.25 || got.Mean != 0.25 || got.Var != 0 ||
			got.Converged == 0 || why != Converged || at != got.Converged || sum.Signals != got {
			t.Errorf("%v: %+v", early, got)
		}
		switch {
		case early == ExitEAT && (sum.Ended != EndedConverged || got.Overthinking != 0):
			t.Errorf("%v: %+v", early, sum)
		case early == ExitOff && (sum.Ended != EndedNatural || sum.Tokens != 320 || got.Overthinking < 200 ||
			got.Index <= 1 || s.c.LastForce().Reason != NoReason || s.c.CountOnly()):
			t.Errorf("%v: %+v", early, sum)
		}
	}
}
