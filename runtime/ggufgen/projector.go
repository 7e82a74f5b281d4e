package ggufgen

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// A Projector describes a file (mmproj) with random weights that makes embeddings of images, or of sounds, for a model
// of this package: two layers of a transformer, and what its family has behind them.
type Projector struct {
	Kind  ProjectorKind
	Width int // of the model's embeddings
	Image int // side of the image that is encoded, in pixels; 0 = 64
	// Layers, Hidden and FFN are the encoder's; 0 = 2, 32 and 64.
	Layers, Hidden, FFN int
	Seed                uint64
}

// ProjectorKind is a family of projectors, by llama.cpp's name of it.
type ProjectorKind string

const (
	// Idefics3 is SmolVLM's: tiles with texts between them, 4 × 4 patches a row.
	Idefics3 ProjectorKind = "idefics3"
	// Gemma3Vision has rows that see each other, 4 × 4 patches a row.
	Gemma3Vision ProjectorKind = "gemma3"
	// Llava has a row for each patch.
	Llava ProjectorKind = "mlp"
	// Qwen2VLMerger, Qwen25VLMerger and Qwen3VLMerger have a row for 2 × 2 patches, for pictures of any shape; see
	// grids.go.
	Qwen2VLMerger  ProjectorKind = "qwen2vl_merger"
	Qwen25VLMerger ProjectorKind = "qwen2.5vl_merger"
	Qwen3VLMerger  ProjectorKind = "qwen3vl_merger"
	// Qwen35Merger is Qwen3VLMerger whose rows reach no other layers. llama.cpp knows it by the other's name.
	Qwen35Merger ProjectorKind = "qwen35_merger"
	// LFM2Vision has a row for 2 × 2 patches, for pictures of any shape; large ones are cut into tiles.
	LFM2Vision ProjectorKind = "lfm2"
	// Ultravox reads sounds, with Whisper's encoder: half a minute in 375 rows. It has no markers around them.
	Ultravox ProjectorKind = "ultravox"
)

const (
	patchSide  = 8
	mergeSide  = 4
	lfm2Merge  = 2
	visionHead = 16
)

// imageMarkers are the tokens that the families put around images. Tokens of Config.Images.
var imageMarkers = []string{"<fake_token_around_image>", "<global-img>", "<image>", "<start_of_image>",
	"<end_of_image>"}

// lfm2Markers are those of LFM2, with the places of up to two tiles.
var lfm2Markers = []string{"<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<|img_row_1_col_1|>",
	"<|img_row_1_col_2|>", "<|img_row_2_col_1|>"}

// TinyVision is Tiny with the markers of images in its vocabulary, and a context for pictures of several tiles.
func TinyVision() Config {
	c := Tiny()
	c.Name, c.Images = "ggufgen-tiny-vision", true
	return c
}

// family is llama.cpp's name of the kind.
func (k ProjectorKind) family() string {
	if k == Qwen35Merger {
		k = Qwen3VLMerger
	}
	return string(k)
}

func (p Projector) withDefaults() Projector {
	for _, f := range []struct {
		at *int
		to int
	}{{&p.Image, 64}, {&p.Layers, 2}, {&p.Hidden, 32}, {&p.FFN, 64}} {
		if *f.at == 0 {
			*f.at = f.to
		}
	}
	return p
}

// WriteProjector writes the file of p to path, which must not exist.
func WriteProjector(path string, p Projector) error {
	p = p.withDefaults()
	if p.Width < 1 || p.Image%(patchSide*mergeSide) != 0 || p.Hidden%visionHead != 0 {
		return fmt.Errorf("%w: projector: width %d, image %d (a multiple of %d), hidden %d (a multiple of "+
			"%d)", ErrConfig,
			p.Width, p.Image, patchSide*mergeSide, p.Hidden, visionHead)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	pairs, tensors := p.pairs, p.tensors
	switch p.Kind {
	case Ultravox:
		pairs, tensors = p.soundPairs, p.soundTensors
	case Qwen2VLMerger, Qwen25VLMerger, Qwen3VLMerger, Qwen35Merger:
		tensors = p.gridTensors
	}
	if err := gguffile.Write(f, pairs(), tensors()); err != nil {
		return fmt.Errorf("write projector %s: %w", path, err)
	}
	return f.Close()
}

func (p Projector) pairs() []gguffile.KV {
	half := []float32{0.5, 0.5, 0.5}
	list := []gguffile.KV{
		{Key: "general.architecture", Value: "clip"},
		{Key: "general.type", Value: "mmproj"},
		{Key: "general.name", Value: "ggufgen-" + string(p.Kind)},
		{Key: "clip.projector_type", Value: p.Kind.family()},
		{Key: "clip.has_vision_encoder", Value: true},
		{Key: "clip.use_gelu", Value: true},
		{Key: "clip.vision.image_size", Value: uint32(p.Image)},
		{Key: "clip.vision.patch_size", Value: uint32(patchSide)},
		{Key: "clip.vision.embedding_length", Value: uint32(p.Hidden)},
		{Key: "clip.vision.feed_forward_length", Value: uint32(p.FFN)},
		{Key: "clip.vision.block_count", Value: uint32(p.Layers)},
		{Key: "clip.vision.attention.head_count", Value: uint32(p.Hidden / visionHead)},
		{Key: "clip.vision.attention.layer_norm_epsilon", Value: float32(1e-6)},
		{Key: "clip.vision.projection_dim", Value: uint32(p.Width)},
		{Key: "clip.vision.image_mean", Value: half},
		{Key: "clip.vision.image_std", Value: half},
	}
	switch p.Kind {
	case Idefics3:
		list = append(list, gguffile.KV{Key: "clip.vision.projector.scale_factor", Value: uint32(mergeSide)},
			gguffile.KV{Key: "clip.vision.preproc_image_size", Value: uint32(4 * p.Image)})
	case Gemma3Vision:
		list = append(list, gguffile.KV{Key: "clip.vision.projector.scale_factor", Value: uint32(mergeSide)})
	case LFM2Vision:
		list = append(list, gguffile.KV{Key: "clip.vision.projector.scale_factor", Value: uint32(lfm2Merge)})
	case Qwen25VLMerger: // every other layer sees windows
		list = append(list, gguffile.KV{Key: "clip.vision.n_wa_pattern", Value: uint32(2)})
	}
	return list
}

// floats are the values of a tensor.
type floats struct {
	seed      uint64
	n         int
	mean, std float32
}

func (v floats) WriteTo(w io.Writer) (int64, error) {
	row := make([]float32, v.n)
	gaussian(row, rand.NewPCG(v.seed, 0x9e3779b97f4a7c15), v.std)
	for i := range row {
		row[i] += v.mean
	}
	n, err := w.Write(encodeF32(nil, row))
	return int64(n), err
}

// layers are the tensors of an encoder, whose names a family's letter begins.
type layers struct {
	of   Projector
	list []gguffile.Tensor
}

func (l *layers) add(name string, mean, std float32, shape ...uint64) {
	h, n := fnv.New64a(), 1
	io.WriteString(h, name)
	for _, s := range shape {
		n *= int(s)
	}
	l.list = append(l.list, gguffile.Tensor{Name: name, Type: storages[F32].kind, Shape: shape,
		Data: floats{h.Sum64() ^ l.of.Seed*0xbf58476d1ce4e5b9, n, mean, std}})
}

func (l *layers) linear(name string, in, out int, bias bool) {
	l.add(name+".weight", 0, float32(1/math.Sqrt(float64(in))), uint64(in), uint64(out))
	if bias {
		l.add(name+".bias", 0, 0.1, uint64(out))
	}
}

func (l *layers) norm(name string) {
	l.add(name+".weight", 1, 0.1, uint64(l.of.Hidden))
	l.add(name+".bias", 0, 0.1, uint64(l.of.Hidden))
}

// blocks adds the layers; keys have a bias where keyBias is set.
func (l *layers) blocks(letter string, keyBias bool) {
	p := l.of
	for i := range p.Layers {
		blk := fmt.Sprintf("%s.blk.%d.", letter, i)
		parts := []string{"attn_q", "attn_k", "attn_v", "attn_out"}
		if p.Kind == Qwen3VLMerger || p.Kind == Qwen35Merger {
			l.linear(blk+"attn_qkv", p.Hidden, 3*p.Hidden, true)
			parts = parts[3:]
		}
		for _, part := range parts {
			l.linear(blk+part, p.Hidden, p.Hidden, keyBias || part != "attn_k")
		}
		l.norm(blk + "ln1")
		l.norm(blk + "ln2")
		l.linear(blk+"ffn_up", p.Hidden, p.FFN, true)
		l.linear(blk+"ffn_down", p.FFN, p.Hidden, true)
	}
}

func (p Projector) tensors() []gguffile.Tensor {
	l := &layers{of: p}
	add := l.add
	side := p.Image / patchSide
	hidden, width := uint64(p.Hidden), uint64(p.Width)
	add("v.patch_embd.weight", 0, 0.1, patchSide, patchSide, 3, hidden)
	add("v.patch_embd.bias", 0, 0.1, hidden)
	add("v.position_embd.weight", 0, 0.5, hidden, uint64(side*side))
	l.blocks("v", true)
	// Rows of about the size of the model's own token embeddings: larger ones would drown the text.
	out := float32(embedStd / math.Sqrt(float64(p.Hidden)))
	switch p.Kind {
	case Idefics3:
		l.norm("v.post_ln")
		add("mm.model.fc.weight", 0, out/mergeSide, hidden*mergeSide*mergeSide, width)
	case Gemma3Vision:
		l.norm("v.post_ln")
		add("mm.soft_emb_norm.weight", 1, 0.1, hidden)
		add("mm.input_projection.weight", 0, out, width, hidden)
	case LFM2Vision:
		l.norm("v.post_ln")
		add("mm.input_norm.weight", 1, 0.1, hidden*lfm2Merge*lfm2Merge)
		add("mm.input_norm.bias", 0, 0.1, hidden*lfm2Merge*lfm2Merge)
		l.linear("mm.1", p.Hidden*lfm2Merge*lfm2Merge, p.Width, true)
		add("mm.2.weight", 0, float32(embedStd/math.Sqrt(float64(p.Width))), width, width)
		add("mm.2.bias", 0, 0.1*embedStd, width)
	case Llava:
		l.linear("mm.0", p.Hidden, p.Width, true)
		add("mm.2.weight", 0, float32(embedStd/math.Sqrt(float64(p.Width))), width, width)
		add("mm.2.bias", 0, 0.1*embedStd, width)
	}
	return l.list
}
