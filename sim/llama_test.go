//go:build cgo && (llama_engine || llama_system) && !race

package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

func TestCarryOutLlama(t *testing.T) {
	if !llama.Exact() {
		t.Skip("here a row's logits depend on what is beside it: equal bits cannot be asked for")
	}
	carryOut(t, 12, func(cells, batch int) runtime.Engine {
		e, err := llama.Open(runtime.Options{
			ModelPath: ggufgen.Cached(t, ggufgen.Tiny()), ContextTokens: cells, Batch: batch, MicroBatch: batch,
			Sequences: 256, Threads: 1,
			FlashAttn: "on",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}
