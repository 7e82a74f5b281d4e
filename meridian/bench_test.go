package meridian

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// steady is a request deep in thought, with everything on, and the calls of one token.
func steady(tb testing.TB, v *testVocab) func(i int) {
	cfg := DefaultConfig()
	cfg.MaxThinkTokens, cfg.MinThinkTokens = maxThinkTokensLimit, 0
	cfg.EATVarianceThreshold, cfg.RPDIThreshold = 0, 1e9
	o := cfg.Options()
	o.EarlyExit, o.SoftBudgetTokens = ExitBoth, 1
	c := mustControl(cfg, mustResolve(v, thinkTags), o, v.tokens("<think>"))
	seq := v.tokens("word is word a < b word.\n\n") // "<" may begin a tag
	st := runtime.RowStats{Entropy: 1.5, CloseRank: 1000}
	return func(i int) {
		now := int64(i)
		if !c.NeedStats() {
			tb.Fatal("the request has stopped thinking")
		}
		c.Observe(&st)
		tok := seq[i%len(seq)]
		if _, forced := c.Next(now); forced {
			tb.Fatal("forced")
		}
		c.Admit(tok, v.Piece(tok), false, now)
		c.OnToken(tok, v.Piece(tok), false, now)
		if _, ok := c.ProbeDue(); ok {
			c.OnProbe(1 + float64(i%7))
		}
	}
}

func TestAllocationFree(t *testing.T) {
	for name, v := range map[string]*testVocab{"single": words, "spelled": spelledWords} {
		token, i := steady(t, v), 0
		if n := testing.AllocsPerRun(2000, func() { token(i); i++ }); n != 0 {
			t.Errorf("%s: %v allocations a token", name, n)
		}
	}
	// Answers: white space and markers that are held back, headers, an answer that goes on after its closing tag.
	for _, c := range familyCases {
		v := bytesVocab(nil, append([]string{eog}, c.tokens...)...)
		tags := detectFor(t, v, c.template)
		begin, seq := tags.Begin(c.prompt, false), v.tokens(c.text+" \n</response> x")
		cfg := DefaultConfig()
		ctls := make([]*Control, 21)
		for i := range ctls {
			var err error
			if ctls[i], err = NewControl(&cfg, tags, cfg.Options(), begin); err != nil {
				t.Fatal(err)
			}
		}
		i := 0
		if n := testing.AllocsPerRun(20, func() {
			for _, tok := range seq {
				ctls[i].OnToken(tok, v.Piece(tok), false, 0)
				ctls[i].Next(0)
			}
			i++
		}); n != 0 {
			t.Errorf("%s: %v allocations in %d tokens", c.name, n, len(seq))
		}
	}
	// Answering, forcing, and ending.
	if n := testing.AllocsPerRun(100,
		func() { bareAnswer.OnToken(1, answerPiece, false, 0); bareAnswer.Next(0) }); n != 0 {
		t.Errorf("%v allocations a token of the answer", n)
	}
}

var (
	bareAnswer  = mustControl(DefaultConfig(), nil, DefaultOptions(), nil)
	answerPiece = []byte("word")
)

// BenchmarkToken is the whole of what Meridian adds to one think token, but for reading its row: all calls of the
// package comment.
func BenchmarkToken(b *testing.B) {
	for name, v := range map[string]*testVocab{"single": words, "spelled": spelledWords} {
		b.Run(name, func(b *testing.B) {
			token := steady(b, v)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				token(i)
			}
		})
	}
}

// BenchmarkOnToken is OnToken alone, thinking and answering.
func BenchmarkOnToken(b *testing.B) {
	for name, v := range map[string]*testVocab{"single": words, "spelled": spelledWords} {
		for _, prompt := range []string{"<think>", "<think></think>"} {
			cfg := DefaultConfig()
			c := mustControl(cfg, mustResolve(v, thinkTags), cfg.Options(), v.tokens(prompt))
			tok := v.Find("word")
			if prompt != "<think>" {
				c.OnToken(tok, v.Piece(tok), false, 0)
			}
			b.Run(name+"/"+c.Phase().String(), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.OnToken(tok, v.Piece(tok), false, 0)
				}
			})
		}
	}
}
