package gguf

import (
	"reflect"
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

// TestEagle: the header of an EAGLE-3 head, and which models it drafts for.
func TestEagle(t *testing.T) {
	cfg := ggufgen.TinyTarget(false)
	model, err := Brief(ggufgen.Cached(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[ggufgen.Head]Eagle{
		ggufgen.HeadRandom: {Layers: []int64{1, 2, 3}, Width: 64, Embeddings: true, Output: true, DraftTokens: 256},
		ggufgen.HeadKnows:  {Layers: []int64{1, 2, 3}, Width: 64},
	} {
		head, err := Brief(ggufgen.Cached(t, ggufgen.EagleOf(cfg, kind)))
		if err != nil {
			t.Fatal(err)
		}
		if head.Eagle == nil || !reflect.DeepEqual(*head.Eagle, want) || model.Eagle != nil {
			t.Errorf("%s: %+v, want %+v; the model has %+v", kind, head.Eagle, want, model.Eagle)
			continue
		}
		if err := head.DraftsFor(&model); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for name, edit := range map[string]func(head, model *Info){
			"no head":        func(h, _ *Info) { h.Eagle = nil },
			"two layers":     func(h, _ *Info) { h.Layers = 2 },
			"reads two":      func(h, _ *Info) { h.Eagle.Layers = []int64{1, 2} },
			"no vocabulary":  func(h, _ *Info) { h.VocabSize = 0 },
			"another width":  func(_, m *Info) { m.Embedding = 96 },
			"another depth":  func(_, m *Info) { m.Layers = 3 },
			"depth but MTP":  func(_, m *Info) { m.HeadLayers = 1 },
			"negative":       func(h, _ *Info) { h.Eagle.Layers = []int64{-1, 2, 3} },
			"no embeddings":  func(h, _ *Info) { h.Eagle.Embeddings, h.Embedding = false, 96 },
			"no output":      func(h, _ *Info) { h.Eagle.Output, h.Embedding = false, 96 },
			"output, tokens": func(h, m *Info) { h.Eagle.Output, h.Embedding, h.VocabSize = false, m.Embedding, 511 },
		} {
			h, m, e := head, model, *head.Eagle
			h.Eagle = &e
			if edit(&h, &m); h.DraftsFor(&m) == nil {
				t.Errorf("%s, %s: it fits", kind, name)
			}
		}
	}
}
