package ggufgen

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
)

// DeepSeek4 has windows in all layers. In some it also sees older rows in compressed form, one for each 4 or 128 of
// them, and keeps what is not yet compressed. Its memory has cells for each sequence alone, which a copy copies.
const DeepSeek4 Arch = "deepseek4"

const (
	deepStreams = 4 // of the residual; llama.cpp has no other number
	deepMix     = (2 + deepStreams) * deepStreams
	deepLora    = 32
	deepGroups  = 2
	deepExperts = 2
	deepIndex   = 128 // length of an indexer's key, which must not be HeadDim
	deepIndexes = 2   // its heads
)

// deepRatios are the rows that a compressed one has, by layer; 0: the layer has none.
var deepRatios = []int32{0, 4, 128}

// TinyDeepSeek4 is a small DeepSeek V4 with a window of 32 tokens, and a layer of each kind.
func TinyDeepSeek4() Config {
	c := Tiny()
	c.Name, c.Arch, c.Layers, c.HeadDim, c.Window, c.FFN = "ggufgen-tiny-deepseek4", DeepSeek4, 4, 64, 32, 64
	return c
}

func (c Config) validateDeepSeek4() error {
	switch {
	case c.Tied || c.Copies || c.Still || c.Turns || c.KVHeads != 1 || c.Heads%deepGroups != 0:
		return fmt.Errorf("a deepseek4 is neither Tied, Copies, Still nor Turns, and has one KVHead and a multiple of "+
			"%d Heads", deepGroups)
	case c.HeadDim%quantBlock != 0 || c.HeadDim == deepIndex:
		return fmt.Errorf("the HeadDim of a deepseek4 is a multiple of %d, and not %d", quantBlock, deepIndex)
	case c.Window < 1 || c.Window > 1<<20:
		return fmt.Errorf("a deepseek4 has a Window of 1…%d tokens", 1<<20)
	}
	return nil
}

// deepRatio returns the rows of a compressed row in a layer.
func deepRatio(layer int) int { return int(deepRatios[layer%len(deepRatios)]) }

func (c Config) deepMetadata(kv map[string]any) {
	ratios, clamps := make([]int32, c.Layers), make([]float32, c.Layers)
	for i := range ratios {
		ratios[i], clamps[i] = int32(deepRatio(i)), 10
	}
	kv["rope.dimension_count"] = uint32(c.HeadDim / 2)
	kv["attention.sliding_window"] = uint32(c.Window)
	kv["attention.compress_ratios"], kv["attention.compress_rope_freq_base"] = ratios, float32(160_000)
	kv["attention.q_lora_rank"], kv["attention.output_lora_rank"] = uint32(deepLora), uint32(deepLora)
	kv["attention.output_group_count"] = uint32(deepGroups)
	kv["attention.indexer.head_count"], kv["attention.indexer.key_length"] = uint32(deepIndexes), uint32(deepIndex)
	kv["attention.indexer.top_k"] = uint32(1 << 17)
	kv["hyper_connection.count"], kv["hyper_connection.sinkhorn_iterations"] = uint32(deepStreams), uint32(2)
	kv["hyper_connection.epsilon"] = float32(1e-6)
	kv["hash_layer_count"] = uint32(0)
	kv["expert_count"], kv["expert_used_count"] = uint32(deepExperts), uint32(deepExperts)
	kv["expert_shared_count"], kv["expert_feed_forward_length"] = uint32(1), uint32(c.FFN)
	kv["expert_gating_func"] = uint32(4) // the root of softplus; there is no other
	kv["expert_weights_norm"], kv["expert_weights_scale"] = true, float32(1)
	kv["swiglu_clamp_exp"], kv["swiglu_clamp_shexp"] = clamps, clamps
}

// planDeepSeek4 is plan of a DeepSeek4.
func (c Config) planDeepSeek4() []*tensor {
	d, q := c.Embedding, c.Heads*c.HeadDim
	var all []*tensor
	add := func(t *tensor) *tensor {
		h := fnv.New64a()
		io.WriteString(h, t.name)
		t.seed = h.Sum64() ^ c.Seed*0xbf58476d1ce4e5b9
		all = append(all, t)
		return t
	}
	layer := 0
	matrix := func(name string, rows, cols int, gain float64) *tensor {
		return add(&tensor{name: name + ".weight", rows: rows, cols: cols, storage: c.storageOf("", layer, cols),
			std: float32(gain / math.Sqrt(float64(cols)))})
	}
	exact := func(name string, rows, cols int, gain float64) {
		matrix(name, rows, cols, gain).storage = storages[F32]
	}
	vector := func(name string, n int, mean, std float32) {
		t := add(&tensor{name: name, cols: n, storage: storages[F32]})
		t.norm = func() []float32 {
			row := make([]float32, n)
			gaussian(row, rand.NewPCG(t.seed, 1), std)
			for i := range row {
				row[i] += mean
			}
			return row
		}
	}
	norm := func(name string, n int, weight float32) { vector(name+".weight", n, weight, 0) }
	streams := func(name string, rows, scales int) {
		exact(name+"_fn", rows, deepStreams*d, 1)
		vector(name+"_base.weight", rows, 0, 0.5)
		vector(name+"_scale.weight", scales, 1, 0.1)
	}
	experts := func(name string, rows, cols int) {
		matrix(name+"_exps", rows*deepExperts, cols, ffnGain).experts = deepExperts
		matrix(name+"_shexp", rows, cols, ffnGain)
	}
	matrix("token_embd", c.VocabSize, d, math.Sqrt(float64(d)))
	matrix("output", c.VocabSize, d, float64(c.LogitScale))
	norm("output_norm", d, 1)
	streams("output_hc", deepStreams, 1)
	for layer = range c.Layers {
		blk := "blk." + itoa(layer) + "."
		norm(blk+"attn_norm", d, 1)
		vector(blk+"attn_sinks.weight", c.Heads, 0, 1)
		matrix(blk+"attn_q_a", deepLora, d, 1)
		norm(blk+"attn_q_a_norm", deepLora, 1)
		matrix(blk+"attn_q_b", q, deepLora, 1)
		matrix(blk+"attn_kv", c.HeadDim, d, 1)
		norm(blk+"attn_kv_a_norm", c.HeadDim, queryKey)
		matrix(blk+"attn_output_a", deepLora*deepGroups, q/deepGroups, valueOut)
		matrix(blk+"attn_output_b", d, deepLora*deepGroups, valueOut)
		streams(blk+"hc_attn", deepMix, 3)
		streams(blk+"hc_ffn", deepMix, 3)
		if ratio := deepRatio(layer); ratio > 0 {
			overlap := 1 // of four rows: the rows before are read, too
			if ratio == 4 {
				overlap = 2
				c.planIndexer(blk, ratio, matrix, exact, norm)
			}
			matrix(blk+"attn_compressor_kv", overlap*c.HeadDim, d, 1)
			matrix(blk+"attn_compressor_gate", overlap*c.HeadDim, d, 1)
			exact(blk+"attn_compressor_ape", ratio, overlap*c.HeadDim, math.Sqrt(float64(c.HeadDim)))
			norm(blk+"attn_compressor_norm", c.HeadDim, queryKey)
		}
		norm(blk+"ffn_norm", d, 1)
		exact(blk+"ffn_gate_inp", deepExperts, d, 1)
		vector(blk+"exp_probs_b.bias", deepExperts, 0, 0.1)
		experts(blk+"ffn_gate", c.FFN, d)
		experts(blk+"ffn_up", c.FFN, d)
		experts(blk+"ffn_down", d, c.FFN)
	}
	return all
}

// planIndexer lists the tensors that choose among compressed rows.
func (c Config) planIndexer(blk string, ratio int, matrix func(name string, rows, cols int, gain float64) *tensor,
	exact func(name string, rows, cols int, gain float64), norm func(name string, n int, weight float32)) {
	d := c.Embedding
	exact(blk+"indexer.proj", deepIndexes, d, 1)
	matrix(blk+"indexer.attn_q_b", deepIndexes*deepIndex, deepLora, 1)
	matrix(blk+"indexer_compressor_kv", 2*deepIndex, d, 1)
	matrix(blk+"indexer_compressor_gate", 2*deepIndex, d, 1)
	exact(blk+"indexer_compressor_ape", ratio, 2*deepIndex, 1)
	norm(blk+"indexer_compressor_norm", deepIndex, 1)
}
