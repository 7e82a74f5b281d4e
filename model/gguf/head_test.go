package gguf

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestHead: the layer that drafts is counted apart: its weights are those of its tensors and the output matrix, and it
// has no cells in the model's memory.
func TestHead(t *testing.T) {
	cfg := ggufgen.TinyHead(ggufgen.HeadRandom)
	with, err := Inspect(ggufgen.Cached(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	plain := ggufgen.Tiny()
	without, err := Inspect(ggufgen.Cached(t, plain))
	if err != nil {
		t.Fatal(err)
	}
	output := uint64(cfg.VocabSize) * uint64(cfg.Embedding) * 34 / 32 // Q8_0
	if with.HeadLayers != 1 || with.Layers != without.Layers+1 || with.HeadBytes <= output ||
		with.HeadBytes >= with.TensorBytes {
		t.Errorf("%d of %d layers with %d bytes; the output matrix has %d, all %d", with.HeadLayers, with.Layers,
			with.HeadBytes, output, with.TensorBytes)
	}
	if without.HeadLayers != 0 || without.HeadBytes != 0 {
		t.Errorf("a model without a head has %d layers with %d bytes", without.HeadLayers, without.HeadBytes)
	}
	a, errA := with.KVBytesPerToken("f16", "f16")
	b, errB := without.KVBytesPerToken("f16", "f16")
	if a != b || errA != nil || errB != nil {
		t.Errorf("a token has %d bytes with a head and %d without: %v, %v", a, b, errA, errB)
	}
}
