package gguf

import (
	"reflect"
	"strings"
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

// TestHeadFile: the headers of heads with a file, and which models they draft for.
func TestHeadFile(t *testing.T) {
	cfg := ggufgen.TinyTarget(false)
	model, err := Brief(ggufgen.Cached(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	type edits map[string]func(head, model *Info)
	of := func(edit func(h *HeadFile)) func(head, model *Info) { return func(h, _ *Info) { edit(h.HeadFile) } }
	all := edits{
		"no head":        func(h, _ *Info) { h.HeadFile = nil },
		"no vocabulary":  func(h, _ *Info) { h.VocabSize = 0 },
		"another width":  func(_, m *Info) { m.Embedding = 96 },
		"another depth":  func(_, m *Info) { m.Layers = 3 },
		"depth but MTP":  func(_, m *Info) { m.HeadLayers = 1 },
		"negative":       of(func(h *HeadFile) { h.Layers = []int64{-1, 2, 3} }),
		"reads none":     of(func(h *HeadFile) { h.Layers = nil }),
		"what is unused": of(func(h *HeadFile) { h.unused = "a Markov head" }),
		"no embeddings":  func(h, _ *Info) { h.HeadFile.Embeddings, h.Embedding = false, 96 },
		"no output":      func(h, _ *Info) { h.HeadFile.Output, h.Embedding = false, 96 },
		"output, tokens": func(h, m *Info) { h.HeadFile.Output, h.Embedding, h.VocabSize = false, m.Embedding, 511 },
	}
	eagle := edits{
		"two layers": func(h, _ *Info) { h.Layers = 2 },
		"reads two":  of(func(h *HeadFile) { h.Layers = []int64{1, 2} }),
	}
	blocks := edits{
		"no guess":       of(func(h *HeadFile) { h.Block = 1 }),
		"a huge block":   of(func(h *HeadFile) { h.Block = 1 << 20 }),
		"no mask":        of(func(h *HeadFile) { h.Mask = -1 }),
		"mask, no token": of(func(h *HeadFile) { h.Mask = 512 }),
		"a mask token the model lacks, no embeddings": func(h, m *Info) {
			h.HeadFile.Embeddings, h.HeadFile.Mask, m.VocabSize = false, 511, 500
		},
	}
	for name, c := range map[string]struct {
		cfg  ggufgen.Config
		want HeadFile
		more edits
	}{
		"eagle3": {ggufgen.EagleOf(cfg, ggufgen.HeadRandom), HeadFile{Kind: "EAGLE-3", Layers: []int64{1, 2, 3},
			Width: 64, Embeddings: true, Output: true, DraftTokens: 256}, eagle},
		"eagle3 that knows": {ggufgen.EagleOf(cfg, ggufgen.HeadKnows), HeadFile{Kind: "EAGLE-3",
			Layers: []int64{1, 2, 3}, Width: 64}, eagle},
		"dflash": {ggufgen.DFlashOf(cfg, ggufgen.HeadRandom, 7), HeadFile{Kind: "DFlash", Layers: []int64{0, 2, 3},
			Width: 64, Embeddings: true, Output: true, DraftTokens: 256, Block: 8}, blocks},
	} {
		t.Run(name, func(t *testing.T) {
			head, err := Brief(ggufgen.Cached(t, c.cfg))
			if err != nil {
				t.Fatal(err)
			}
			if head.HeadFile == nil || !reflect.DeepEqual(*head.HeadFile, c.want) || model.HeadFile != nil {
				t.Fatalf("%+v, want %+v; the model has %+v", head.HeadFile, c.want, model.HeadFile)
			}
			if err := head.DraftsFor(&model); err != nil {
				t.Error(err)
			}
			for _, list := range []edits{all, c.more} {
				for name, edit := range list {
					h, m, file := head, model, *head.HeadFile
					h.HeadFile = &file
					if edit(&h, &m); h.DraftsFor(&m) == nil {
						t.Errorf("%s: it fits", name)
					}
				}
			}
			if got := HeadReads(ggufgen.Cached(t, c.cfg)); got != 3 {
				t.Errorf("it reads %d layers", got)
			}
		})
	}
}

// TestHeadFilesThatAreNotUsed: kinds of DFlash heads that are not computed are told from their headers.
func TestHeadFilesThatAreNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		h    header
		want string
	}{
		"DSpark":  {header{tensors: []tensorInfo{{name: "markov_w1.weight"}}}, "DSpark"},
		"DFlash2": {header{tensors: []tensorInfo{{name: "selector_hidden.weight"}}}, "DFlash2"},
		"windows": {header{kv: map[string]any{"dflash.attention.sliding_window": int64(32)}}, "sliding windows"},
		"M-RoPE": {header{kv: map[string]any{"dflash.rope.dimension_sections": []int64{32, 0, 0, 0}}},
			"positions in several dimensions"},
		"DeepSeek V4": {header{kv: map[string]any{"dflash.hyper_connection.count": int64(4)}}, "DeepSeek V4"},
	} {
		head := Info{Architecture: ArchDFlash, HeadFile: c.h.headFile(ArchDFlash)}
		if err := head.DraftsFor(&Info{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
