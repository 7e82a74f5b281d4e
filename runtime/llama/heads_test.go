//go:build cgo && llama_engine && !llama_no_heads

package llama

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// withHead opens a model with its head, as it is opened for answers.
func withHead(t *testing.T, path string) (*engine, runtime.Head) {
	t.Helper()
	e := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 512, Batch: 128, Sequences: 4,
		Threads: testThreads, Head: true}).(*engine)
	h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 64, Sequences: 2})
	if err != nil || h == nil {
		t.Fatalf("the head: %v, %v", h, err)
	}
	t.Cleanup(func() { h.Close() })
	return e, h
}

func TestContractWithAHead(t *testing.T) {
	contract(t, ggufgen.Cached(t, ggufgen.TinyHead(ggufgen.HeadRandom)))
}

// TestHeadThatKnows: the guesses of the generated head that knows its model, behind the states of the model's rows and
// behind its own, are the tokens that the model says. Benchmarks of heads rest on it.
func TestHeadThatKnows(t *testing.T) {
	e, h := withHead(t, ggufgen.Cached(t, ggufgen.TinyHead(ggufgen.HeadKnows)))
	e.KeepStates(true)
	best := func(e runtime.Engine, row int) runtime.Token {
		tok, _ := e.(runtime.RowScanner).Argmax(row)
		return tok
	}
	const tokens, guesses = 60, 3
	text := []runtime.Token{300}
	right := 0
	for len(text) < tokens {
		n := len(text)
		e.Batch().Reset()
		e.Batch().Add(text[n-1], runtime.Pos(n-1), 0, true)
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		text = append(text, best(e, 0))
		at, tok, state := n, text[n], e.State(0)
		said := make([]runtime.Token, 0, guesses)
		for range guesses {
			h.Batch().Reset()
			h.Batch().Add(tok, runtime.Pos(at), 0, true)
			h.Follow(0, state)
			if err := h.Decode(); err != nil {
				t.Fatal(err)
			}
			at, tok, state = at+1, best(h, 0), h.State(0)
			said = append(said, tok)
		}
		if !h.SeqRemove(0, runtime.Pos(n+1), -1) {
			t.Fatal("guesses could not be removed")
		}
		// What the model says behind them.
		follows := text[n]
		for i, tok := range said {
			e.Batch().Reset()
			e.Batch().Add(follows, runtime.Pos(n+i), 0, true)
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			if follows = best(e, 0); follows == tok {
				right++
			}
		}
		if !e.SeqRemove(0, runtime.Pos(n), -1) {
			t.Fatal("rows could not be removed")
		}
	}
	if all := guesses * (tokens - 1); right < all*95/100 {
		t.Errorf("%d of %d guesses are what the model says", right, all)
	}
}

// TestHeadsThatAreNotUsed: OpenHead says why.
func TestHeadsThatAreNotUsed(t *testing.T) {
	e := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256, Head: true}).(*engine)
	if h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 1}); h != nil || err != nil {
		t.Errorf("a model without a head has %v, %v", h, err)
	}
	e = mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.TinyHead(ggufgen.HeadRandom)),
		ContextTokens: 256}).(*engine)
	if h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 1}); h != nil || err == nil {
		t.Errorf("a model that was loaded without its head has %v, %v", h, err)
	}
}
