package ggufgen

import (
	"fmt"
	"math"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// Models whose positions have several dimensions: in time, of a line and of a column (M-RoPE). A row of text is at the
// same place in all of them, the rows of an image are a grid.

// gridMarkers are the tokens that Qwen puts around images. Tokens of Config.Images.
var gridMarkers = []string{"<|vision_start|>", "<|vision_end|>"}

const (
	gridMerge  = 2 // patches of a row's side
	deepLayers = 2 // layers of the model that a Qwen3VLMerger's rows reach, the first apart
)

// TinyGrids is Tiny of one of the architectures, with the markers of images in its vocabulary, and one layer more than
// its images reach.
func TinyGrids(arch Arch) Config {
	c := Tiny()
	c.Name, c.Arch, c.Images = "ggufgen-tiny-"+string(arch), arch, true
	c.Layers = deepLayers + 1
	if arch == Qwen35 {
		c.Layers = 2 * deltaEvery
	}
	return c
}

func (a Arch) grids() bool { return a == Qwen2VL || a == Qwen3VL || a == Qwen35 }

// gridMetadata adds the number of pairs that turn by each dimension.
func (c Config) gridMetadata(kv map[string]any) {
	pairs := c.HeadDim / 2
	line := (pairs - pairs/4) / 2
	kv["rope.dimension_sections"] = []int32{int32(pairs - 2*line), int32(line), int32(line), 0}
	switch {
	case c.Arch == Qwen3VL && c.Images:
		kv["n_deepstack_layers"] = uint32(deepLayers)
	case c.Arch == Qwen35:
		c.deltaMetadata(kv)
	}
}

// gridTensors are the tensors of Qwen's projectors. Their layers know a patch's place by rotation, those of
// Qwen3VLMerger by a table, too.
func (p Projector) gridTensors() []gguffile.Tensor {
	l := &layers{of: p}
	hidden, merged := uint64(p.Hidden), p.Hidden*gridMerge*gridMerge
	l.add("v.patch_embd.weight", 0, 0.1, patchSide, patchSide, 3, hidden)
	l.add("v.patch_embd.weight.1", 0, 0.1, patchSide, patchSide, 3, hidden)
	l.blocks("v", true)
	l.norm("v.post_ln")
	// Rows of about the size of the model's own token embeddings, as those of the other families.
	out := func(name string) {
		l.add(name+".weight", 0, float32(embedStd/math.Sqrt(float64(merged))), uint64(merged), uint64(p.Width))
		l.add(name+".bias", 0, 0.1*embedStd, uint64(p.Width))
	}
	l.linear("mm.0", merged, merged, true)
	out("mm.2")
	if p.Kind != Qwen3VLMerger && p.Kind != Qwen35Merger {
		return l.list
	}
	side := uint64(p.Image / patchSide)
	l.add("v.patch_embd.bias", 0, 0.1, hidden)
	l.add("v.position_embd.weight", 0, 0.5, hidden, side*side)
	if p.Kind == Qwen35Merger {
		return l.list
	}
	for i := range deepLayers {
		deep := fmt.Sprintf("v.deepstack.%d.", i)
		l.add(deep+"norm.weight", 1, 0.1, uint64(merged))
		l.add(deep+"norm.bias", 0, 0.1, uint64(merged))
		l.linear(deep+"fc1", merged, merged, true)
		out(deep + "fc2")
	}
	return l.list
}
