//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// What the daemon answers greedily is, token for token, what thirty lines over the bare engine compute
// (enginetest.Greedy), on a plain and on a sliding-window model.
func TestTruthGreedyEqualsTheBareLoop(t *testing.T) {
	const tokens = 120
	prompts := []string{"the truth about", "a", "Numbers: 1 2 3 4 5 6 7 8 9 and so on, until "}
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		t.Run(cfg.Name, func(t *testing.T) {
			path := ggufgen.Cached(t, cfg)
			for i, prompt := range prompts {
				// A fresh pool on both sides: where cells lie decides the last bits of a sum.
				want := bare(t, path, prompt, tokens)
				s := startModelBare(t, path)
				c := s.dial()
				c.request(fmt.Sprintf(`{"id":"t","prompt":%q,"max_tokens":%d,"temperature":0}`, prompt, tokens))
				var got []runtime.Token
				for {
					ev, err := c.next()
					if err != nil || ev.Kind == wire.EventError {
						t.Fatalf("%+v %v", ev, err)
					}
					if ev.Kind == wire.EventEOS {
						break
					}
					got = append(got, ev.Token.TokenID)
				}
				c.Close()
				if !slices.Equal(got, want) {
					t.Errorf("prompt %d: served %v, bare %v", i, got, want)
				}
			}
		})
	}
}

// bare is the greedy continuation by the engine alone, without the end-of-generation token.
func bare(t *testing.T, path, prompt string, n int) []runtime.Token {
	t.Helper()
	e, err := llama.Open(runtime.Options{ModelPath: path, ContextTokens: 4096, Sequences: 16, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	toks, err := e.Vocab().Tokenize(nil, prompt, true, false)
	if err != nil {
		t.Fatal(err)
	}
	out, err := enginetest.Greedy(e, toks, n)
	if err != nil {
		t.Fatal(err)
	}
	if k := len(out); k > 0 && e.Vocab().IsEOG(out[k-1]) {
		out = out[:k-1]
	}
	return out
}
