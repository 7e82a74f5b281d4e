//go:build cgo && (llama_engine || llama_system) && !race

package core

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// TestRandomOperationsOnLlama: the same random life on llama.cpp as on no engine. The books are conserved after each
// operation, and at each token llama.cpp would say what it says to the same history alone, whatever was shared,
// preempted, copied out and restored before it. The models have cells alone, states, and cells that sequences do not
// share.
func TestRandomOperationsOnLlama(t *testing.T) {
	if !llama.Exact() {
		t.Skip("here a row's logits depend on what is beside it: equal answers cannot be asked for")
	}
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinyGrids(ggufgen.Qwen35), ggufgen.TinyDeepSeek4()} {
		t.Run(cfg.Name, func(t *testing.T) {
			open := func() runtime.Engine {
				e, err := llama.Open(runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 256, Batch: 32,
					MicroBatch: 32, Sequences: 24, Threads: 1, FlashAttn: "on"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { e.Close() })
				return e
			}
			eng, alone := open(), open()
			tie, lives := float32(0), uint64(16)
			if cfg.Arch != ggufgen.Llama { // see enginetest: a hundredth of the range of a row
				tie, lives = 0.2, 4
			}
			for seed := range lives {
				onEngine(t, seed, 300, shapeOf(eng), eng, alone, tie)
			}
			if !eng.Capabilities().Seals {
				thoughtOnEngine(t, eng, alone)
			}
		})
	}
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

// TestHeadsOnLlama: answers of llama.cpp with the head of the model's file are those without, token by token, whether
// the head knows the model or has random weights.
func TestHeadsOnLlama(t *testing.T) {
	if !llama.Exact() {
		t.Skip("here a row's logits depend on what is beside it: equal answers cannot be asked for")
	}
	for _, kind := range []ggufgen.Head{ggufgen.HeadKnows, ggufgen.HeadRandom} {
		t.Run(string(kind), func(t *testing.T) {
			eng, err := llama.Open(runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.TinyHead(kind)),
				ContextTokens: 1024, Batch: 64, MicroBatch: 64, Sequences: 24, Threads: 1, FlashAttn: "on", Head: true})
			if err != nil {
				t.Fatal(err)
			}
			defer eng.Close()
			headOfLlama(t, eng, eng, kind, nil)
		})
	}
}

// TestHeadFilesOnLlama: the same with a head that has a separate file: an EAGLE-3 head, a DFlash head, which guesses
// several tokens at once, or an assistant of Gemma 4, which reads the model's cells and has none.
func TestHeadFilesOnLlama(t *testing.T) {
	if !llama.Exact() {
		t.Skip("here a row's logits depend on what is beside it: equal answers cannot be asked for")
	}
	eagle, block, random := ggufgen.TinyTarget(true), ggufgen.TurnTarget(), ggufgen.TinyTarget(false)
	still, windows := ggufgen.TinyGemma4(true), ggufgen.TinyGemma4(false)
	states, compressed := ggufgen.TinyGrids(ggufgen.Qwen35), ggufgen.TinyDeepSeek4()
	for name, c := range map[string]struct {
		model, head ggufgen.Config
	}{
		"eagle3, knows":              {eagle, ggufgen.EagleOf(eagle, ggufgen.HeadKnows)},
		"eagle3, random":             {random, ggufgen.EagleOf(random, ggufgen.HeadRandom)},
		"dflash, knows":              {block, ggufgen.DFlashOf(block, ggufgen.HeadKnows, 5)},
		"dflash, random":             {random, ggufgen.DFlashOf(random, ggufgen.HeadRandom, 7)},
		"assistant, knows":           {still, ggufgen.AssistantOf(still, ggufgen.HeadKnows)},
		"assistant, random":          {windows, ggufgen.AssistantOf(windows, ggufgen.HeadRandom)},
		"eagle3, random, of windows": {windows, ggufgen.EagleOf(windows, ggufgen.HeadRandom)},
		"dflash, random, of windows": {windows, ggufgen.DFlashOf(windows, ggufgen.HeadRandom, 7)},
		"eagle3, of states":          {states, ggufgen.EagleOf(states, ggufgen.HeadRandom)},
		"eagle3, of compressed rows": {compressed, ggufgen.EagleOf(compressed, ggufgen.HeadRandom)},
		"dflash, of compressed rows": {compressed, ggufgen.DFlashOf(compressed, ggufgen.HeadRandom, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			var eng [2]runtime.Engine // the second never has a head
			for i := range eng {
				var err error
				eng[i], err = llama.Open(runtime.Options{ModelPath: ggufgen.Cached(t, c.model), ContextTokens: 1024,
					Batch: 64, MicroBatch: 64, Sequences: 24, Threads: 1, FlashAttn: "on"})
				if err != nil {
					t.Fatal(err)
				}
				defer eng[i].Close()
			}
			headOfLlama(t, eng[0], eng[1], c.head.Head, &runtime.Options{ModelPath: ggufgen.Cached(t, c.head)})
		})
	}
}

// headOfLlama compares answers of eng with its head, of its file or of another, with those of plain.
func headOfLlama(t *testing.T, eng, plain runtime.Engine, kind ggufgen.Head, file *runtime.Options) {
	h, err := eng.(runtime.Headed).OpenHead(runtime.HeadOptions{ContextTokens: 1024, Batch: 64, Sequences: 4,
		File: file})
	if h == nil || err != nil {
		t.Skipf("this build opens no head: %v", err)
	}
	defer h.Close()
	for _, requests := range []int{1, 3} {
		const tokens = 150
		want, _, _ := answered(t, plain, nil, requests, tokens)
		got, drafted, accepted := answered(t, eng, h, requests, tokens)
		t.Logf("%d requests: %d of %d guesses came true", requests, accepted, drafted)
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%d requests: other answers with the head", requests)
		}
		switch {
		case drafted == 0 && eng.Capabilities().Seals && requests > 1: // only a request that is alone guesses
		case drafted == 0:
			t.Errorf("%d requests: nothing was guessed", requests)
		case kind == ggufgen.HeadKnows && accepted < drafted*9/10, // how many are made depends on what steps take here
			kind == ggufgen.HeadRandom && accepted > drafted/5:
			t.Errorf("%d requests: %d of %d guesses came true", requests, accepted, drafted)
		}
	}
}
