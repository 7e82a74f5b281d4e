package gguf

import (
	"errors"
	"fmt"
	"slices"
)

// The architectures of files with a head: layers that draft for the model that they were trained with, from the inputs
// of some of that model's layers. An EAGLE-3 head guesses a token at a time, a DFlash head a block of them at once.
const (
	ArchEagle  = "eagle3"
	ArchDFlash = "dflash"
)

// headKinds are the names of the kinds of heads with a file, by architecture.
var headKinds = map[string]string{ArchEagle: "EAGLE-3", ArchDFlash: "DFlash"}

// eagleLayers is the number of layers whose inputs an EAGLE-3 head reads. maxReads bounds it for others: published
// DFlash heads read five.
const (
	eagleLayers = 3
	maxReads    = 64
)

// HeadFile has the facts that only the file of a head states.
type HeadFile struct {
	Kind   string  `json:"kind"`   // "EAGLE-3" or "DFlash"
	Layers []int64 `json:"layers"` // of the model, whose inputs it reads
	Width  int64   `json:"width"`  // of these inputs: the model's embedding
	// Embeddings and Output: the file has token embeddings and an output matrix. Without them the head uses the
	// model's.
	Embeddings bool `json:"embeddings"`
	Output     bool `json:"output"`
	// DraftTokens is the number of tokens that it can draft; 0 = the whole vocabulary.
	DraftTokens int64 `json:"draft_tokens,omitempty"`
	// Block is the number of tokens of a DFlash head's block: the newest one and those that it guesses, which are the
	// token Mask before. Causal: a token of the block reads those before it alone.
	Block  int64 `json:"block,omitempty"`
	Mask   int64 `json:"mask,omitempty"`
	Causal bool  `json:"causal,omitempty"`

	unused string // what it has that is not computed
}

// headFile returns Info.HeadFile; nil for other architectures.
func (h *header) headFile(arch string) *HeadFile {
	e := &HeadFile{Kind: headKinds[arch], Layers: h.ints(arch + ".target_layers")}
	if e.Kind == "" {
		return nil
	}
	for i := range h.tensors {
		switch t := &h.tensors[i]; t.name {
		case "token_embd.weight":
			e.Embeddings = true
		case "output.weight":
			e.Output = true
		case "d2t":
			e.DraftTokens = int64(t.elements)
		case "markov_w1.weight":
			e.unused = "a Markov head (DSpark)"
		case "selector_hidden.weight":
			e.unused = "a selector of candidates (DFlash2)"
		}
	}
	if arch == ArchEagle {
		e.Width = h.int(arch + ".target_hidden_size")
		return e
	}
	e.Width = h.int(arch + ".embedding_length")
	e.Output = e.Output || e.Embeddings // llama.cpp takes the embeddings where there is no output matrix
	if e.Block = h.int(arch + ".block_size"); e.Block == 0 {
		e.Block = 16
	}
	e.Causal, _ = h.kv[arch+".attention.causal"].(bool)
	e.Mask = -1
	if _, ok := h.kv["tokenizer.ggml.mask_token_id"]; ok {
		e.Mask = h.int("tokenizer.ggml.mask_token_id")
	}
	switch {
	case h.int(arch+".attention.sliding_window") > 0:
		e.unused = "sliding windows"
	case h.int(arch+".hyper_connection.count") > 0:
		e.unused = "layers of DeepSeek V4"
	case len(h.ints(arch+".rope.dimension_sections")) > 0:
		e.unused = "positions in several dimensions"
	}
	return e
}

// HeadReads returns the number of a model's layers that the head in a file reads, 0 where it holds none.
func HeadReads(path string) int64 {
	info, err := Brief(path)
	if err != nil || info.HeadFile == nil {
		return 0
	}
	return int64(len(info.HeadFile.Layers))
}

// DraftsFor returns the reason why the head of i's file cannot draft for a model; nil: it can, as far as the headers
// say. That the tokens have the same texts is for the caller to check.
func (i *Info) DraftsFor(model *Info) error {
	e, arch := i.HeadFile, i.Architecture
	switch layers := model.Layers - model.HeadLayers; {
	case e == nil:
		return fmt.Errorf("it is no head: its architecture is %q, and that of a head is %q or %q", arch, ArchEagle,
			ArchDFlash)
	case e.unused != "":
		return fmt.Errorf("it has %s, which are not used here", e.unused)
	case arch == ArchEagle && i.Layers != 1:
		return fmt.Errorf("it has %d layers, and llama.cpp computes one", i.Layers)
	case arch == ArchEagle && len(e.Layers) != eagleLayers:
		return fmt.Errorf("it reads %d layers of its model, and llama.cpp computes heads that read %d", len(e.Layers),
			eagleLayers)
	case len(e.Layers) < 1 || len(e.Layers) > maxReads:
		return fmt.Errorf("it reads %d layers of its model", len(e.Layers))
	case arch == ArchDFlash && (e.Block < 3 || e.Block > 1<<10):
		return fmt.Errorf("its blocks have %d tokens", e.Block)
	case i.VocabSize == 0:
		return errors.New("the file holds no vocabulary: convert it with the directory of its model")
	case arch == ArchDFlash && (e.Mask < 0 || e.Mask >= int64(i.VocabSize)):
		return errors.New("its vocabulary names no mask token, which stands for what is to be guessed")
	case e.Width != model.Embedding:
		return fmt.Errorf("it is the head of a model with an embedding of %d, and the model's is %d", e.Width,
			model.Embedding)
	case slices.Min(e.Layers) < 0 || slices.Max(e.Layers) >= layers:
		return fmt.Errorf("it reads the inputs of the layers %d, and the model has layers 0 … %d", e.Layers, layers-1)
	case !e.Embeddings && i.Embedding != model.Embedding:
		return fmt.Errorf("it has no token embeddings, and its embedding of %d is not the model's, %d", i.Embedding,
			model.Embedding)
	case !e.Embeddings && e.Mask >= int64(model.VocabSize):
		return fmt.Errorf("it has no token embeddings, and its mask token %d is none of the model's", e.Mask)
	case !e.Output && (i.Embedding != model.Embedding || i.VocabSize != model.VocabSize || e.DraftTokens > 0):
		return fmt.Errorf("it has no output matrix, and the model's does not fit: an embedding of %d and %d tokens, "+
			"where the head has %d and %d", model.Embedding, model.VocabSize, i.Embedding,
			max(int64(i.VocabSize), e.DraftTokens))
	}
	return nil
}

// OutputBytes returns the size of the output matrix, or of the embeddings that stand for it.
func (i *Info) OutputBytes() uint64 { return i.output }
