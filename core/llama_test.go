//go:build cgo && (llama_engine || llama_system) && !race

package core

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// TestRandomOperationsOnLlama: the same random life on llama.cpp as on no engine. The books are conserved after each
// operation, and at each token llama.cpp would say what it says to the same history alone, whatever was shared,
// preempted, copied out and restored before it.
func TestRandomOperationsOnLlama(t *testing.T) {
	if !llama.Exact() {
		t.Skip("here a row's logits depend on what is beside it: equal answers cannot be asked for")
	}
	open := func() runtime.Engine {
		e, err := llama.Open(runtime.Options{
			ModelPath: ggufgen.Cached(t, ggufgen.Tiny()), ContextTokens: 256, Batch: 32, MicroBatch: 32, Sequences: 24,
			Threads:   1,
			FlashAttn: "on",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	eng, alone := open(), open()
	for seed := range uint64(16) {
		onEngine(t, seed, 300, shapeOf(eng), eng, alone)
	}
	thoughtOnEngine(t, eng, alone)
}

// TestDraftsOnLlama: answers of llama.cpp with a draft model in a second llama.cpp context of the process are those
// without, token by token. The draft model is a copy, or a smaller one with other weights.
func TestDraftsOnLlama(t *testing.T) {
	if !llama.Exact() {
		t.Skip("here a row's logits depend on what is beside it: equal answers cannot be asked for")
	}
	open := func(c ggufgen.Config) runtime.Engine {
		e, err := llama.Open(runtime.Options{ModelPath: ggufgen.Cached(t, c), ContextTokens: 1024, Batch: 64,
			MicroBatch: 64, Sequences: 24, Threads: 1, FlashAttn: "on"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	model, small := ggufgen.Tiny(), ggufgen.Tiny()
	small.Name, small.Layers, small.Seed = "ggufgen-tiny-draft", 1, 9
	eng, draft := open(model), open(small)
	if n, err := runtime.SameVocab(eng.Vocab(), draft.Vocab(), "a", "b"); n != model.VocabSize || err != nil {
		t.Errorf("%d tokens of %d are the same: %v", n, model.VocabSize, err)
	}
	draftsOn(t, eng, open(model), draft)
}
