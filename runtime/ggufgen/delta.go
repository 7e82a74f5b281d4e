package ggufgen

import "math"

// Layers with a state in the place of cells (gated delta nets), as Qwen35 has them.
const (
	deltaEvery  = 2  // of so many layers the last one has attention
	deltaState  = 16 // side of a head's state
	deltaKeys   = 2  // heads of keys and queries
	deltaValues = 4  // heads of values
	deltaConv   = 4  // rows that a convolution reads
)

func (c Config) deltaMetadata(kv map[string]any) {
	kv["full_attention_interval"] = uint32(deltaEvery)
	kv["ssm.conv_kernel"] = uint32(deltaConv)
	kv["ssm.inner_size"] = uint32(deltaState * deltaValues)
	kv["ssm.state_size"] = uint32(deltaState)
	kv["ssm.time_step_rank"] = uint32(deltaValues)
	kv["ssm.group_count"] = uint32(deltaKeys)
}

// delta reports whether a layer has a state.
func (c Config) delta(layer int) bool { return c.Arch == Qwen35 && layer%deltaEvery != deltaEvery-1 }

// planDelta lists the tensors of a layer with a state, but for those that all layers have.
func (c Config) planDelta(blk string, add func(*tensor) *tensor,
	matrix func(part, name string, rows, cols int, gain float64) *tensor) {
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
