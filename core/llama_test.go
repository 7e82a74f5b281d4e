//go:build cgo && !race

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
