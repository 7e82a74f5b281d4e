package ggufgen

import "math"

// Layers with a state in the place of cells: gated delta nets, as Qwen35 has them, and the convolutions of LFM2.
const (
	deltaEvery  = 2  // of so many layers the last one has attention
	deltaState  = 16 // side of a head's state
	deltaKeys   = 2  // heads of keys and queries
	deltaValues = 4  // heads of values
	deltaConv   = 4  // rows that a convolution reads
	shortConv   = 3  // the same, of LFM2
)

// TinyLFM2 is Tiny with a state in the place of cells in every other layer, and with LFM2's markers of images.
func TinyLFM2() Config {
	c := Tiny()
	c.Name, c.Arch, c.Images, c.Layers = "ggufgen-tiny-lfm2", LFM2, true, 2*deltaEvery
	return c
}

// convMetadata says which layers of LFM2 have cells: those without heads of keys have none.
func (c Config) convMetadata(kv map[string]any) {
	heads := make([]int32, c.Layers)
	for i := range heads {
		if !c.delta(i) {
			heads[i] = int32(c.KVHeads)
		}
	}
	kv["attention.head_count_kv"], kv["shortconv.l_cache"] = heads, uint32(shortConv)
}

// planConv lists the tensors of a layer with a short convolution, but for those that all layers have.
func (c Config) planConv(blk string, add func(*tensor) *tensor,
	matrix func(part, name string, rows, cols int, gain float64) *tensor) {
	d := c.Embedding
	matrix("", blk+"shortconv.in_proj", 3*d, d, ffnGain)
	matrix("", blk+"shortconv.out_proj", d, d, valueOut).zeroRow0 = true
	add(&tensor{name: blk + "shortconv.conv.weight", rows: d, cols: shortConv, storage: storages[F32],
		std: float32(1 / math.Sqrt(shortConv))})
}

func (c Config) deltaMetadata(kv map[string]any) {
	kv["full_attention_interval"] = uint32(deltaEvery)
	kv["ssm.conv_kernel"] = uint32(deltaConv)
	kv["ssm.inner_size"] = uint32(deltaState * deltaValues)
	kv["ssm.state_size"] = uint32(deltaState)
	kv["ssm.time_step_rank"] = uint32(deltaValues)
	kv["ssm.group_count"] = uint32(deltaKeys)
}

// delta reports whether a layer has a state.
func (c Config) delta(layer int) bool {
	return (c.Arch == Qwen35 || c.Arch == LFM2) && layer%deltaEvery != deltaEvery-1
}

// planDelta lists the tensors of a layer with a state, but for those that all layers have.
func (c Config) planDelta(blk string, add func(*tensor) *tensor,
	matrix func(part, name string, rows, cols int, gain float64) *tensor) {
	if c.Arch == LFM2 {
		c.planConv(blk, add, matrix)
		return
	}
	d, value := c.Embedding, deltaState*deltaValues
	mixed := 2*deltaState*deltaKeys + value
	numbers := func(name string, n int, of func(i int) float64) {
		add(&tensor{name: name, cols: n, storage: storages[F32], norm: func() []float32 {
			w := make([]float32, n)
			for i := range w {
				w[i] = float32(of(i))
			}
			return w
		}})
	}
	matrix("", blk+"attn_qkv", mixed, d, queryKey)
	matrix("", blk+"attn_gate", value, d, ffnGain)
	matrix("", blk+"ssm_beta", deltaValues, d, 1)
	matrix("", blk+"ssm_alpha", deltaValues, d, 1)
	matrix("", blk+"ssm_out", d, value, valueOut).zeroRow0 = true
	add(&tensor{name: blk + "ssm_conv1d.weight", rows: mixed, cols: deltaConv, storage: storages[F32],
		std: float32(1 / math.Sqrt(deltaConv))})
	numbers(blk+"ssm_dt.bias", deltaValues, func(int) float64 { return 0.5 })
	numbers(blk+"ssm_a", deltaValues, func(i int) float64 { return -0.05 * float64(1+i) })
	numbers(blk+"ssm_norm.weight", deltaState, func(int) float64 { return 1 })
}
