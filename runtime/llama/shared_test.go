//go:build cgo && llama_engine && !llama_no_heads

package llama

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestContractOfAnAssistant: the engines' contract with a head that reads its model's cells, with and without flash
// attention, which decides how they lie in memory.
func TestContractOfAnAssistant(t *testing.T) {
	model := ggufgen.TinyGemma4(false)
	head := ggufgen.Cached(t, ggufgen.AssistantOf(model, ggufgen.HeadRandom))
	for _, flash := range []string{"auto", "off"} {
		t.Run("flash attention "+flash, func(t *testing.T) {
			open := opener(ggufgen.Cached(t, model))
			enginetest.RunHead(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				o.FlashAttn = flash
				return open(t, o)
			}, &runtime.Options{ModelPath: head})
		})
	}
}

// TestAssistantThatKnows: the guesses of the generated assistant that knows its model are the tokens that the model
// says.
func TestAssistantThatKnows(t *testing.T) {
	model := ggufgen.TinyGemma4(true)
	e, h, err := headOf(t, model, ggufgen.Cached(t, ggufgen.AssistantOf(model, ggufgen.HeadKnows)))
	if err != nil {
		t.Fatal(err)
	}
	knows(t, e, h)
	if in := h.Model(); in.Architecture != gguf.ArchAssistant || in.KVBytesPerToken != 0 || in.Bytes == 0 ||
		!h.Shared() || h.Capabilities().MaxSequences != e.caps.MaxSequences {
		t.Errorf("the head is %+v", in)
	}
}

// TestAssistantSeesTheModelsCells: what the head says depends on the whole history in the model's cells, within the
// window of its layers and before, and not on how they came there: from long and short batches, a copy, a snapshot, or
// after other cells were removed.
func TestAssistantSeesTheModelsCells(t *testing.T) {
	const n = 100 // three windows
	cfg := ggufgen.TinyGemma4(false)
	e := mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 1024, Batch: 64, MicroBatch: 64,
		Sequences: 12}).(*engine)
	h, err := e.OpenHead(runtime.HeadOptions{Batch: 16, File: &runtime.Options{
		ModelPath: ggufgen.Cached(t, ggufgen.AssistantOf(cfg, ggufgen.HeadRandom))}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	text := make([]runtime.Token, n)
	for i := range text {
		text[i] = runtime.Token(50 + i*37%400)
	}
	e.KeepStates(true)
	// fill decodes the text at [from, to) in batches of a size, and returns the newest row's state.
	fill := func(seq runtime.Seq, text []runtime.Token, from, to, batch int) (state []float32) {
		for from < to {
			e.Batch().Reset()
			for k := range min(batch, to-from) {
				e.Batch().Add(text[from+k], runtime.Pos(from+k), seq, from+k == to-1)
			}
			from += e.Batch().Len()
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			state = slices.Clone(e.State(e.Batch().Len() - 1))
		}
		return state
	}
	state := fill(0, text, 0, n, 64)
	guess := func(seq runtime.Seq, at int) []float32 {
		t.Helper()
		h.Batch().Reset()
		h.Follow(h.Batch().Add(7, runtime.Pos(at), seq, true), state)
		if err := h.Decode(); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(h.Logits(0))
	}
	want := guess(0, n)
	near := func(what string, got []float32) {
		t.Helper()
		limit := float64(slices.Max(want)-slices.Min(want)) / 100
		for i := range want {
			if d := float64(want[i] - got[i]); max(d, -d) > limit {
				t.Fatalf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
			}
		}
	}
	fill(1, text, 0, n, 3)
	near("batches of three", guess(1, n))
	e.SeqCopy(0, 2, 0, 60)
	fill(2, text, 60, n, 64)
	near("a copy of the first tokens", guess(2, n))
	fill(0, text, n, n, 1)
	e.Batch().Reset() // what was guessed wrong, behind the history
	for k := range 5 {
		e.Batch().Add(9, runtime.Pos(n+k), 0, true)
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	if !e.SeqRemove(0, n, -1) {
		t.Fatal("cells could not be removed")
	}
	near("after wrong guesses", guess(0, n))
	parts := []int{0, 32, 64, 96, n} // a snapshot has at most a window
	for i, from := range parts[:len(parts)-1] {
		size, err := e.SnapshotSize(1, runtime.Pos(from), runtime.Pos(parts[i+1]))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		if _, err := e.Snapshot(b, 1, 11, runtime.Pos(from), runtime.Pos(parts[i+1])); err != nil {
			t.Fatal(err)
		}
		if err := e.Restore(b, 3, 11); err != nil {
			t.Fatal(err)
		}
	}
	near("restored", guess(3, n))
	for what, at := range map[string]int{"the first token": 0, "before the window": n / 2, "in the window": n - 10} {
		other := slices.Clone(text)
		other[at] = 333
		fill(4, other, 0, n, 64)
		if got := guess(4, n); slices.Equal(got, want) {
			t.Errorf("%s is not seen", what)
		}
		e.SeqRemove(4, 0, -1)
	}
}

// TestAssistantOfAFullMemory: a head that finds no cell says so, and goes on when there is one.
func TestAssistantOfAFullMemory(t *testing.T) {
	cfg := ggufgen.TinyGemma4(false)
	e := mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 256, Batch: 256, MicroBatch: 256,
		Sequences: 4}).(*engine)
	h, err := e.OpenHead(runtime.HeadOptions{Batch: 16, File: &runtime.Options{
		ModelPath: ggufgen.Cached(t, ggufgen.AssistantOf(cfg, ggufgen.HeadRandom))}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	cells := e.caps.ContextTokens
	e.Batch().Reset()
	for i := range cells {
		e.Batch().Add(runtime.Token(10+i%300), runtime.Pos(i), 0, i == cells-1)
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	guess := func(at int) error {
		h.Batch().Reset()
		h.Follow(h.Batch().Add(7, runtime.Pos(at), 0, true), make([]float32, h.StateWidth()))
		return h.Decode()
	}
	if err := guess(cells); !errors.Is(err, runtime.ErrKVFull) {
		t.Errorf("of %d cells none is free: %v", cells, err)
	}
	if !e.SeqRemove(0, runtime.Pos(cells-1), -1) {
		t.Fatal("the last cell cannot be removed")
	}
	if err := guess(cells - 1); err != nil {
		t.Error(err)
	}
}

// TestAssistantsThatDoNotFit: OpenHead says what does not fit.
func TestAssistantsThatDoNotFit(t *testing.T) {
	model := ggufgen.TinyGemma4(false)
	wide, windows, heads := model, model, model
	wide.Embedding, windows.Window, heads.KVHeads = 96, 16, 2
	for name, c := range map[string]struct {
		of   ggufgen.Config
		want string
	}{
		"another architecture": {ggufgen.TinyTarget(false), `the architecture "gemma4", and the model's is "llama"`},
		"another width":        {wide, "an embedding of 64, and the model's is 96"},
		"other windows":        {windows, "its layer 0 reads cells of"},
		"more heads":           {heads, "its layer 0 reads cells of"},
	} {
		t.Run(name, func(t *testing.T) {
			_, h, err := headOf(t, c.of, ggufgen.Cached(t, ggufgen.AssistantOf(model, ggufgen.HeadRandom)))
			if h != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want %q", h, err, c.want)
			}
		})
	}
}
