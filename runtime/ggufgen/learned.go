package ggufgen

import (
	"math"
	"math/rand/v2"
)

// GPT2 has a table of learned positions, one row for each token of the context, LayerNorm and GELU. A position behind
// the table's last row has no embedding.
const GPT2 Arch = "gpt2"

// TinyLearned returns a GPT-2 of a few hundred kilobytes with 256 learned positions.
func TinyLearned() Config {
	c := Tiny()
	c.Name, c.Arch, c.KVHeads, c.Context, c.Tied = "ggufgen-tiny-learned", GPT2, c.Heads, 256, true
	return c
}

// planLearned lists the tensors of a GPT-2. The final norm's bias raises ordinary tokens by biasLogits, which the
// markers' entry of 0 keeps from them (see biasChannel).
func (c Config) planLearned(v *vocabulary) []*tensor {
	d := c.Embedding
	p := &planned{c: c}
	vector := func(name string, n int, mean, std, channel0 float32) {
		t := p.add(&tensor{name: name, cols: n, storage: storages[F32]})
		t.norm = func() []float32 {
			row := make([]float32, n)
			gaussian(row, rand.NewPCG(t.seed, 0x9e3779b97f4a7c15), std)
			for i := range row {
				row[i] += mean
			}
			row[0] += channel0
			return row
		}
	}
	layer := 0
	linear := func(part, name string, rows, cols int, gain float64) {
		p.matrix(part, name, layer, rows, cols, gain)
		vector(name+".bias", rows, 0, 0.05, 0)
	}
	norm := func(name string) {
		vector(name+".weight", d, 1, 0.1, 0)
		vector(name+".bias", d, 0, 0.05, 0)
	}
	p.add(&tensor{name: "token_embd.weight", rows: c.VocabSize, cols: d, storage: c.storageOf(partOutput, 0, d),
		std: embedStd, bias: c.biasChannel(v)})
	p.add(&tensor{name: "position_embd.weight", rows: c.Context, cols: d, storage: storages[F32], std: embedStd})
	for layer = range c.Layers {
		blk := "blk." + itoa(layer) + "."
		norm(blk + "attn_norm")
		linear("", blk+"attn_qkv", 3*d, d, queryKey)
		linear("", blk+"attn_output", d, d, valueOut)
		norm(blk + "ffn_norm")
		linear("", blk+"ffn_up", c.FFN, d, ffnGain)
		linear(partDown, blk+"ffn_down", d, c.FFN, ffnGain)
	}
	scale := c.LogitScale / float32(embedStd*math.Sqrt(float64(d)))
	vector("output_norm.weight", d, scale, 0, -scale)
	vector("output_norm.bias", d, 0, 0, biasLogits/biasEntry)
	return p.all
}
