package gguf

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestPlaced: each byte of the weights is a layer's, the output's or a table's, and the table of embeddings counts for
// the output too where the model has no other matrix; the cells of all layers are those of a token.
func TestPlaced(t *testing.T) {
	copied := 0
	for name, cfg := range map[string]ggufgen.Config{"tiny": ggufgen.Tiny(), "wide": ggufgen.TinyWide(),
		"windows": ggufgen.TinySWA(), "copies": ggufgen.TinyCopies()} {
		info, err := Inspect(ggufgen.Cached(t, cfg))
		if err != nil {
			t.Fatal(err)
		}
		p := info.Placed()
		sum := p.Output - p.Copied
		for i, n := range p.Layers {
			if sum += n; n == 0 {
				t.Errorf("%s: layer %d has no weights", name, i)
			}
		}
		if len(p.Layers) != int(info.Layers) || p.Output == 0 || sum > info.TensorBytes {
			t.Errorf("%s: %+v of %d layers with %d bytes", name, p, info.Layers, info.TensorBytes)
		}
		// What is left is looked up: embeddings.
		if left := info.TensorBytes - sum; left > 4*uint64(info.VocabSize)*uint64(info.Embedding) {
			t.Errorf("%s: %d bytes have no place", name, left)
		}
		if p.Copied > 0 {
			copied++
		}
		per, err := info.KVBytesPerToken("f16", "f16")
		layers, err2 := info.LayerKVBytes("f16", "f16")
		total := int64(0)
		for _, n := range layers {
			total += n
		}
		if err != nil || err2 != nil || total < per || total > per+info.Layers {
			t.Errorf("%s: %d bytes a token in %v, want %d; %v, %v", name, total, layers, per, err, err2)
		}
	}
	if copied == 0 {
		t.Error("no model has its embeddings for the output")
	}
	head, err := Inspect(ggufgen.Cached(t, ggufgen.TinyHead(ggufgen.HeadRandom))) // only its last layer has an expert
	if err != nil {
		t.Fatal(err)
	}
	p := head.Placed()
	last := len(p.Layers) - 1
	if p.Experts[last] != head.ExpertBytes || head.ExpertBytes == 0 || head.ExpertBytes >= p.Layers[last] ||
		slices.Max(p.Experts[:last]) > 0 || len(p.Experts) != len(p.Layers) {
		t.Errorf("experts: %v of %v bytes, want %d in the last layer", p.Experts, p.Layers, head.ExpertBytes)
	}
	info := Info{KVHeads: []int64{2, 0, 4}, KeyLength: 8, ValueLength: 8, placed: Placed{Layers: make([]uint64, 3)}}
	if got, err := info.LayerKVBytes("f16", "f16"); err != nil || !slices.Equal(got, []int64{64, 0, 128}) {
		t.Errorf("%v, %v", got, err)
	}
	for name, want := range map[string]int{"blk.0.attn_q.weight": 0, "blk.12.ffn_up.weight": 12, "blk.x.a": -1,
		"blk.7": -1, "output.weight": -1, "": -1} {
		if got := blockOf(name); got != want {
			t.Errorf("%q is of layer %d, want %d", name, got, want)
		}
	}
}
