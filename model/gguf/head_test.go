package gguf

import (
	"reflect"
	"slices"
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
		"another depth":  func(_, m *Info) { m.Layers = 2 },
		"depth but MTP":  func(_, m *Info) { m.HeadLayers = 2 },
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
		"no guess":            of(func(h *HeadFile) { h.Block = 1 }),
		"a huge block":        of(func(h *HeadFile) { h.Block = 1 << 20 }),
		"a huge window":       of(func(h *HeadFile) { h.Window = 1 << 40 }),
		"many candidates":     of(func(h *HeadFile) { h.Candidates = 8 }),
		"Markov and selector": of(func(h *HeadFile) { h.Candidates, h.AnchorFirst = 2, true }),
		"no mask":             of(func(h *HeadFile) { h.Mask = -1 }),
		"mask, no token":      of(func(h *HeadFile) { h.Mask = 512 }),
		"a mask token the model lacks, no embeddings": func(h, m *Info) {
			h.HeadFile.Embeddings, h.HeadFile.Mask, m.VocabSize = false, 511, 500
		},
	}
	for name, c := range map[string]struct {
		cfg  ggufgen.Config
		want HeadFile
		more edits
	}{
		"eagle3": {ggufgen.EagleOf(cfg, ggufgen.HeadRandom), HeadFile{Kind: "EAGLE-3",
			SpecType: "draft-eagle3", Layers: []int64{1, 2, 3}, Width: 64, Embeddings: true, Output: true,
			DraftTokens: 256}, eagle},
		"eagle3 that knows": {ggufgen.EagleOf(cfg, ggufgen.HeadKnows), HeadFile{Kind: "EAGLE-3",
			SpecType: "draft-eagle3", Layers: []int64{1, 2, 3}, Width: 64}, eagle},
		"dflash": {ggufgen.DFlashOf(cfg, ggufgen.HeadRandom, 7), HeadFile{Kind: "DFlash",
			SpecType: "draft-dflash", Layers: []int64{0, 2, 3}, Width: 64, Embeddings: true, Output: true,
			DraftTokens: 256, Block: 8}, blocks},
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

// TestAssistant: the header of an assistant of Gemma 4, and for which models it drafts. It reads cells of the last
// layer and of the one before, so their shapes must be its own.
func TestAssistant(t *testing.T) {
	cfg := ggufgen.TinyGemma4(false)
	path := ggufgen.Cached(t, ggufgen.AssistantOf(cfg, ggufgen.HeadRandom))
	head, err := Brief(path)
	model, errModel := Brief(ggufgen.Cached(t, cfg))
	if err != nil || errModel != nil {
		t.Fatal(err, errModel)
	}
	want := HeadFile{Kind: "Gemma 4 assistant", SpecType: "draft-mtp", Width: 64, Embeddings: true, Output: true}
	if head.HeadFile == nil || !reflect.DeepEqual(*head.HeadFile, want) || model.HeadFile != nil {
		t.Fatalf("%+v, want %+v; the model has %+v", head.HeadFile, want, model.HeadFile)
	}
	if err := head.DraftsFor(&model); err != nil {
		t.Error(err)
	}
	if n, err := head.KVBytesPerToken("f16", "f16"); n != 0 || err != nil {
		t.Errorf("a token takes %d bytes of cells, though the head has none: %v", n, err)
	}
	if HeadReads(path) != 1 || HeadArch(path) != ArchAssistant || HeadArch(model.Path) != "" {
		t.Errorf("it reads %d states, its architecture is %q, the model's %q", HeadReads(path), HeadArch(path),
			HeadArch(model.Path))
	}
	for name, c := range map[string]struct {
		edit func(h, m *Info)
		want string
	}{
		"another architecture": {func(_, m *Info) { m.Architecture = "gemma3" }, `and the model's is "gemma3"`},
		"another width":        {func(_, m *Info) { m.Embedding = 96 }, "an embedding of 64, and the model's is 96"},
		"the model's width":    {func(h, _ *Info) { h.Embedding = 64 }, "llama.cpp refuses it"},
		"no vocabulary":        {func(h, _ *Info) { h.VocabSize = 0 }, "no vocabulary"},
		"no embeddings":        {func(h, _ *Info) { h.HeadFile.Embeddings = false }, "no token embeddings"},
		"some layers draft":    {func(h, _ *Info) { h.HeadFile.unused = "layers of which 1 draft" }, "which 1 draft"},
		"no windows are named": {func(h, _ *Info) { h.shapes = nil }, "does not say which layers have windows"},
		"one layer":            {func(_, m *Info) { m.shapes = m.shapes[:1] }, "does not say which layers"},
		"windows alone":        {func(_, m *Info) { m.shapes[5] = m.shapes[4] }, "last two layers are not such a pair"},
		"another window": {func(h, _ *Info) { h.shapes[1].window = 16 },
			"its layer 1 reads cells of 1 heads of 32 and a window of 16, and the model's have 1 heads of 32 and a " +
				"window of 32"},
		"more heads": {func(_, m *Info) { m.shapes[5].heads = 2 },
			"its layer 2 reads cells of 1 heads of 64 and no window, and the model's have 2 heads"},
		"shorter heads": {func(_, m *Info) { m.shapes[4].length = 16 }, "its layer 0 reads cells"},
	} {
		h, m, file := head, model, *head.HeadFile
		h.HeadFile, h.shapes, m.shapes = &file, slices.Clone(head.shapes), slices.Clone(model.shapes)
		c.edit(&h, &m)
		if err := h.DraftsFor(&m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestSharedCells: layers of a Gemma 4 that have no cells are of the shape of those whose cells they read.
func TestSharedCells(t *testing.T) {
	kv := map[string]any{"gemma4.attention.sliding_window_pattern": []int64{1, 0, 1, 0, 0, 1},
		"gemma4.attention.key_length_swa": int64(8), "gemma4.attention.shared_kv_layers": int64(2)}
	h := header{kv: kv}
	info := Info{Architecture: "gemma4", Layers: 6, KVHeads: []int64{1, 2, 3, 4, 5, 6}, KeyLength: 16, SlidingWindow: 9}
	got := h.cellShapes(&info)
	want := []cellShape{{9, 1, 8}, {0, 2, 16}, {9, 3, 8}, {0, 4, 16}, {0, 4, 16}, {9, 3, 8}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, edit := range map[string]func(){
		"too short": func() { kv["gemma4.attention.sliding_window_pattern"] = []bool{true} },
		"no heads":  func() { info.KVHeads = nil },
		"too deep":  func() { info.Layers = 1 << 40 },
	} {
		if edit(); h.cellShapes(&info) != nil {
			t.Errorf("%s: there are shapes", name)
		}
	}
}

// TestHeadFilesThatAreNotUsed: kinds of DFlash heads that are not computed are told from their headers.
func TestHeadFilesThatAreNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		h    header
		want string
	}{
		"DeepSeek V4": {header{kv: map[string]any{"dflash.hyper_connection.count": int64(4)}}, "DeepSeek V4"},
	} {
		head := Info{Architecture: ArchDFlash, HeadFile: c.h.headFile(ArchDFlash)}
		if err := head.DraftsFor(&Info{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
