//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"errors"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestLearnedPositions: a model with a table of learned positions has no more context than the table has rows, whatever
// is asked for, and a batch with a position behind it is refused: llama.cpp would end the process.
func TestLearnedPositions(t *testing.T) {
	cfg := ggufgen.TinyLearned()
	for _, c := range []struct{ asked, want int }{{0, cfg.Context}, {2048, cfg.Context}, {100, 100}} {
		e := mustOpen(t, runtime.Options{ModelPath: model(t, cfg), ContextTokens: c.asked, Sequences: 2})
		got, info := e.Capabilities().ContextTokens, e.Model()
		// llama.cpp makes pools of whole blocks of 256 cells.
		if got != c.want && got != 256 || got > cfg.Context || info.Positions != cfg.Context {
			t.Errorf("asked for %d: %d cells, %d positions", c.asked, got, info.Positions)
		}
		for _, pos := range []int{cfg.Context, 602, 1 << 30} {
			b := e.Batch()
			b.Reset()
			b.Add(5, runtime.Pos(pos), 0, true)
			if err := e.Decode(); !errors.Is(err, runtime.ErrDecode) ||
				!strings.Contains(err.Error(), "256 learned positions") {
				t.Errorf("position %d: %v", pos, err)
			}
		}
		for at := 0; at < got; {
			b := e.Batch()
			b.Reset()
			for ; at < got && len(b.Token) < min(64, e.Capabilities().MaxBatch); at++ {
				b.Add(5, runtime.Pos(at), 0, true)
			}
			if err := e.Decode(); err != nil {
				t.Fatalf("a text that fills the context: %v", err)
			}
		}
	}
}

// TestLearnedEngine: it is an engine like any other.
func TestLearnedEngine(t *testing.T) {
	cfg := ggufgen.TinyLearned()
	cfg.Name, cfg.Context = "ggufgen-tiny-learned-long", 4096
	path := model(t, cfg)
	contract(t, path)
}

// TestUnsaidPooling: llama.cpp saves 4294967295 for a model that says nothing of pooling.
func TestUnsaidPooling(t *testing.T) {
	b := withPooling(t, ^uint32(0))
	e := mustOpen(t, runtime.Options{ModelPath: b, ContextTokens: 256})
	if p := e.Model().Pooling; p != "" {
		t.Errorf("pooling %q", p)
	}
	_, err := Open(runtime.Options{ModelPath: withPooling(t, 77), ContextTokens: 256})
	if !errors.Is(err, runtime.ErrModel) ||
		!strings.Contains(err.Error(), "pooling_type") {
		t.Errorf("pooling 77: %v", err)
	}
}
