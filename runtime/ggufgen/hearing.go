package ggufgen

import (
	"math"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// The input of Whisper's encoder, and the number of its rows that make one of the model's.
const (
	melBins     = 80
	melFrames   = 3000 // of half a minute; the encoder makes a row of two
	stackedRows = 4
)

func (p Projector) soundPairs() []gguffile.KV {
	return []gguffile.KV{
		{Key: "general.architecture", Value: "clip"},
		{Key: "general.type", Value: "mmproj"},
		{Key: "general.name", Value: "ggufgen-" + string(p.Kind)},
		{Key: "clip.projector_type", Value: string(p.Kind)},
		{Key: "clip.has_audio_encoder", Value: true},
		{Key: "clip.audio.num_mel_bins", Value: uint32(melBins)},
		{Key: "clip.audio.projector.stack_factor", Value: uint32(stackedRows)},
		{Key: "clip.audio.embedding_length", Value: uint32(p.Hidden)},
		{Key: "clip.audio.feed_forward_length", Value: uint32(p.FFN)},
		{Key: "clip.audio.block_count", Value: uint32(p.Layers)},
		{Key: "clip.audio.attention.head_count", Value: uint32(p.Hidden / visionHead)},
		{Key: "clip.audio.attention.layer_norm_epsilon", Value: float32(1e-5)},
		{Key: "clip.audio.projection_dim", Value: uint32(p.Width)},
	}
}

func (p Projector) soundTensors() []gguffile.Tensor {
	l := &layers{of: p}
	hidden := uint64(p.Hidden)
	const wide = 3 // of a convolution
	conv := func(name string, in int) {
		l.add(name+".weight", 0, float32(1/math.Sqrt(float64(wide*in))), wide, uint64(in), hidden)
		l.add(name+".bias", 0, 0.1, 1, hidden)
	}
	conv("a.conv1d.1", melBins)
	conv("a.conv1d.2", p.Hidden)
	l.add("a.position_embd.weight", 0, 0.5, hidden, melFrames/2)
	l.blocks("a", false)
	l.norm("a.post_ln")
	l.add("mm.a.norm_pre.weight", 1, 0.1, hidden*stackedRows)
	l.linear("mm.a.mlp.1", p.Hidden*stackedRows, 2*p.FFN, false)
	l.add("mm.a.norm_mid.weight", 1, 0.1, uint64(p.FFN))
	l.add("mm.a.mlp.2.weight", 0, float32(embedStd/math.Sqrt(float64(p.FFN))), uint64(p.FFN), uint64(p.Width))
	return l.list
}
