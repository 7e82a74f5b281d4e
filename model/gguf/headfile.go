package gguf

import (
	"errors"
	"fmt"
	"slices"
)

// The architectures of files with a head: layers that draft for the model that they were trained with. An EAGLE-3 head
// guesses a token at a time from the inputs of some of that model's layers, a DFlash head a block of them at once. An
// assistant of Gemma 4 has no cells: it reads those of the model's last two layers, and the model's newest state.
const (
	ArchEagle     = "eagle3"
	ArchDFlash    = "dflash"
	ArchAssistant = "gemma4-assistant"
)

// headKinds are the names of the kinds of heads with a file, by architecture.
var headKinds = map[string]string{ArchEagle: "EAGLE-3", ArchDFlash: "DFlash", ArchAssistant: "Gemma 4 assistant"}

// eagleLayers is the number of layers whose inputs an EAGLE-3 head reads. maxReads bounds it for others: published
// DFlash heads read five.
const (
	eagleLayers = 3
	maxReads    = 64
	maxShapes   = 1 << 12 // layers
	archGemma4  = "gemma4"
)

// HeadFile has the facts that only the file of a head states.
type HeadFile struct {
	Kind     string  `json:"kind"`             // "EAGLE-3", "DFlash", "Gemma 4 assistant"
	SpecType string  `json:"spec_type"`        // of --spec-type
	Layers   []int64 `json:"layers,omitempty"` // of the model, whose inputs it reads; one may be behind the last
	Width    int64   `json:"width"`            // of a state of the model that it reads: the model's embedding
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
	// Window is the sliding window of some of a DFlash head's layers, in tokens; 0 = none. AnchorFirst: its first guess
	// is made in the row of the newest token, so that a block has one more (DSpark).
	Window      int64 `json:"window,omitempty"`
	AnchorFirst bool  `json:"anchor_first,omitempty"`
	// Candidates is the number of tokens among which a selector chooses each guess (DFlash2); 0 = there is none.
	Candidates int64 `json:"candidates,omitempty"`

	unused string // what it has that is not computed
}

// headFile returns Info.HeadFile; nil for other architectures.
func (h *header) headFile(arch string) *HeadFile {
	e := &HeadFile{Kind: headKinds[arch], SpecType: "draft-" + arch, Layers: h.ints(arch + ".target_layers")}
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
			e.Kind, e.AnchorFirst = "DSpark", true
		case "selector_hidden.weight":
			e.Kind, e.Candidates = "DFlash2", max(1, h.int(arch+".selector_top_k"))
		}
	}
	switch arch {
	case ArchEagle:
		e.Width = h.int(arch + ".target_hidden_size")
		return e
	case ArchAssistant:
		e.SpecType, e.Output = "draft-mtp", e.Embeddings // llama.cpp takes the embeddings
		e.Width = h.int(arch + ".embedding_length_out")
		if n := h.int(arch + ".nextn_predict_layers"); n != h.int(arch+".block_count") {
			e.unused = fmt.Sprintf("layers of which %d draft", n)
		}
		return e
	}
	e.Width = h.int(arch + ".embedding_length")
	e.Output = e.Output || e.Embeddings // llama.cpp takes the embeddings where there is no output matrix
	if e.Block = h.int(arch + ".block_size"); e.Block == 0 {
		e.Block = 16
	}
	e.Causal, _ = h.kv[arch+".attention.causal"].(bool)
	if from, ok := h.kv[arch+".sample_from_anchor"].(bool); ok {
		e.AnchorFirst = e.AnchorFirst && from
	}
	e.Window = h.int(arch + ".attention.sliding_window")
	e.Mask = -1
	if _, ok := h.kv["tokenizer.ggml.mask_token_id"]; ok {
		e.Mask = h.int("tokenizer.ggml.mask_token_id")
	}
	if h.int(arch+".hyper_connection.count") > 0 {
		e.unused = "layers of DeepSeek V4"
	}
	return e
}

// HeadReads returns the number of a model's states that the head in a file reads of a row, 0 where it holds none.
func HeadReads(path string) int64 {
	info, err := Brief(path)
	if err != nil || info.HeadFile == nil {
		return 0
	}
	return max(1, int64(len(info.HeadFile.Layers)))
}

// HeadArch returns the architecture of the head in a file; "" where it holds none.
func HeadArch(path string) string {
	if info, err := Brief(path); err == nil && info.HeadFile != nil {
		return info.Architecture
	}
	return ""
}

// DraftsFor returns the reason why the head of i's file cannot draft for a model; nil: it can, as far as the headers
// say. That the tokens have the same texts is for the caller to check.
func (i *Info) DraftsFor(model *Info) error {
	e, arch := i.HeadFile, i.Architecture
	switch layers := model.Layers - model.HeadLayers; {
	case e == nil:
		return fmt.Errorf("it is no head: its architecture is %q, and that of a head is %q, %q or %q", arch, ArchEagle,
			ArchDFlash, ArchAssistant)
	case e.unused != "":
		return fmt.Errorf("it has %s, which are not used here", e.unused)
	case arch == ArchEagle && i.Layers != 1:
		return fmt.Errorf("it has %d layers, and llama.cpp computes one", i.Layers)
	case arch == ArchEagle && len(e.Layers) != eagleLayers:
		return fmt.Errorf("it reads %d layers of its model, and llama.cpp computes heads that read %d", len(e.Layers),
			eagleLayers)
	case arch == ArchAssistant:
		return i.assists(model)
	case len(e.Layers) < 1 || len(e.Layers) > maxReads:
		return fmt.Errorf("it reads %d layers of its model", len(e.Layers))
	case arch == ArchDFlash && (e.Block < 3 || e.Block > 1<<10 || e.Window < 0 || e.Window > 1<<30):
		return fmt.Errorf("its blocks have %d tokens, its windows %d", e.Block, e.Window)
	case e.Candidates > 0 && (e.AnchorFirst || e.Candidates > 1<<10 || e.Candidates*(e.Candidates+1) > i.Embedding):
		return fmt.Errorf("it chooses among %d candidates, for which its embedding of %d has no room, or has a Markov "+
			"head, too", e.Candidates, i.Embedding)
	case i.VocabSize == 0:
		return errors.New("the file holds no vocabulary: convert it with the directory of its model")
	case arch == ArchDFlash && (e.Mask < 0 || e.Mask >= int64(i.VocabSize)):
		return errors.New("its vocabulary names no mask token, which stands for what is to be guessed")
	case e.Width != model.Embedding:
		return fmt.Errorf("it is the head of a model with an embedding of %d, and the model's is %d", e.Width,
			model.Embedding)
	case slices.Min(e.Layers) < 0 || slices.Max(e.Layers) > layers: // n: the output of the last one
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

// cellShape is the part of a layer's cells that a head which reads them must share: numbers of tokens, heads and
// elements.
type cellShape struct{ window, heads, length int64 }

func (s cellShape) String() string {
	window := "no window"
	if s.window > 0 {
		window = fmt.Sprintf("a window of %d", s.window)
	}
	return fmt.Sprintf("%d heads of %d and %s", s.heads, s.length, window)
}

// cellShapes returns those of all layers of a model of Gemma 4, or of its assistant; nil for other architectures and
// where the header does not say them.
func (h *header) cellShapes(info *Info) (list []cellShape) {
	arch := info.Architecture + ".attention."
	if info.Architecture != archGemma4 && info.Architecture != ArchAssistant || info.Layers > maxShapes ||
		len(info.KVHeads) == 0 {
		return nil
	}
	windows, _ := h.kv[arch+"sliding_window_pattern"].([]bool)
	for _, n := range h.ints(arch + "sliding_window_pattern") {
		windows = append(windows, n != 0)
	}
	if int64(len(windows)) < info.Layers {
		return nil
	}
	for i := range info.Layers {
		s := cellShape{heads: info.KVHeads[min(int(i), len(info.KVHeads)-1)], length: info.KeyLength}
		if windows[i] {
			s.window, s.length = info.SlidingWindow, h.int(arch+"key_length_swa")
		}
		list = append(list, s)
	}
	// Layers without cells read those of the last layer that has some, or of the last but one, by their windows.
	if n := info.Layers - h.int(arch+"shared_kv_layers"); n >= 2 && n < info.Layers {
		for i := n; i < info.Layers; i++ {
			if list[i].window > 0 {
				list[i] = list[n-2]
			} else {
				list[i] = list[n-1]
			}
		}
	}
	return list
}

// assists is DraftsFor of an assistant. llama.cpp has its layers with windows read the cells of the model's last layer
// but one, and the others those of the last layer, and takes for granted that these are of the same shape.
func (i *Info) assists(model *Info) error {
	e, mine, cells := i.HeadFile, i.shapes, model.shapes
	n := len(cells)
	switch {
	case model.Architecture != archGemma4:
		return fmt.Errorf("it is the head of a model of the architecture %q, and the model's is %q", archGemma4,
			model.Architecture)
	case i.VocabSize == 0 || !e.Embeddings:
		return errors.New("the file holds no vocabulary, or no token embeddings")
	case e.Width != model.Embedding:
		return fmt.Errorf("it is the head of a model with an embedding of %d, and the model's is %d", e.Width,
			model.Embedding)
	case e.Width == i.Embedding:
		return fmt.Errorf("its embedding of %d is the model's, with which llama.cpp refuses it", e.Width)
	case len(mine) == 0 || n < 2:
		return errors.New("its header or the model's does not say which layers have windows")
	case cells[n-2].window == 0 || cells[n-1].window > 0:
		return errors.New("it reads a layer with a window and one without, and the model's last two layers are not " +
			"such a pair")
	}
	for l, s := range mine {
		if of := cells[n-1]; s.window > 0 && s != cells[n-2] || s.window == 0 && s != of {
			if s.window > 0 {
				of = cells[n-2]
			}
			return fmt.Errorf("its layer %d reads cells of %v, and the model's have %v", l, s, of)
		}
	}
	return nil
}

// OutputBytes returns the size of the output matrix, or of the embeddings that stand for it.
func (i *Info) OutputBytes() uint64 { return i.output }
