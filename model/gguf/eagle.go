package gguf

import (
	"errors"
	"fmt"
	"slices"
)

// ArchEagle is the architecture of files with an EAGLE-3 head: one layer that drafts for the model that it was trained
// with, from the inputs of EagleLayers of that model's layers.
const ArchEagle = "eagle3"

// EagleLayers is the number of layers whose inputs an EAGLE-3 head reads.
const EagleLayers = 3

// Eagle has the facts that only the file of an EAGLE-3 head states.
type Eagle struct {
	Layers []int64 `json:"layers"` // of the model, whose inputs it reads
	Width  int64   `json:"width"`  // of these inputs: the model's embedding
	// Embeddings and Output: the file has token embeddings and an output matrix. Without them the head uses the
	// model's.
	Embeddings bool `json:"embeddings"`
	Output     bool `json:"output"`
	// DraftTokens is the number of tokens that it can draft; 0 = the whole vocabulary.
	DraftTokens int64 `json:"draft_tokens,omitempty"`
}

// eagle returns Info.Eagle; nil for other architectures.
func (h *header) eagle(arch string) *Eagle {
	if arch != ArchEagle {
		return nil
	}
	e := &Eagle{Layers: h.ints(arch + ".target_layers"), Width: h.int(arch + ".target_hidden_size")}
	for i := range h.tensors {
		switch t := &h.tensors[i]; t.name {
		case "token_embd.weight":
			e.Embeddings = true
		case "output.weight":
			e.Output = true
		case "d2t":
			e.DraftTokens = int64(t.elements)
		}
	}
	return e
}

// DraftsFor returns the reason why the EAGLE-3 head of i's file cannot draft for a model; nil: it can, as far as the
// headers say. That the tokens have the same texts is for the caller to check.
func (i *Info) DraftsFor(model *Info) error {
	e := i.Eagle
	switch layers := model.Layers - model.HeadLayers; {
	case e == nil:
		return fmt.Errorf("it is no EAGLE-3 head: its architecture is %q, and that of a head is %q", i.Architecture,
			ArchEagle)
	case i.Layers != 1:
		return fmt.Errorf("it has %d layers, and llama.cpp computes one", i.Layers)
	case len(e.Layers) != EagleLayers:
		return fmt.Errorf("it reads %d layers of its model, and llama.cpp computes heads that read %d", len(e.Layers),
			EagleLayers)
	case i.VocabSize == 0:
		return errors.New("the file holds no vocabulary: convert it with the directory of its model")
	case e.Width != model.Embedding:
		return fmt.Errorf("it is the head of a model with an embedding of %d, and the model's is %d", e.Width,
			model.Embedding)
	case slices.Min(e.Layers) < 0 || slices.Max(e.Layers) >= layers:
		return fmt.Errorf("it reads the inputs of the layers %d, and the model has layers 0 … %d", e.Layers, layers-1)
	case !e.Embeddings && i.Embedding != model.Embedding:
		return fmt.Errorf("it has no token embeddings, and its embedding of %d is not the model's, %d", i.Embedding,
			model.Embedding)
	case !e.Output && (i.Embedding != model.Embedding || i.VocabSize != model.VocabSize || e.DraftTokens > 0):
		return fmt.Errorf("it has no output matrix, and the model's does not fit: an embedding of %d and %d tokens, "+
			"where the head has %d and %d", model.Embedding, model.VocabSize, i.Embedding,
			max(int64(i.VocabSize), e.DraftTokens))
	}
	return nil
}

// OutputBytes returns the size of the output matrix, or of the embeddings that stand for it.
func (i *Info) OutputBytes() uint64 { return i.output }
