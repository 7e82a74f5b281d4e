package gpu

import (
	"fmt"
	"math"
	"strings"
)

// KVBlocks returns the number of KV blocks that fit beside the weights. utilisation is the share of the GPUs' memory
// that may be used, blockTokens the tokens of a block.
func KVBlocks(s Shape, g GPU, tp int, utilisation float64, blockTokens int) (int, error) {
	switch strings.ToLower(s.Activation) {
	case "", "silu", "swiglu", "geglu":
	default:
		return 0, fmt.Errorf("KV size: hidden_act %q: only silu, swiglu and geglu models can be sized; give "+
			"total_kv_blocks", s.Activation)
	}
	if g.MemoryGiB <= 0 {
		return 0, fmt.Errorf("KV size: the GPU's MemoryGiB is not known; give total_kv_blocks")
	}
	if !(utilisation > 0 && utilisation <= 1) {
		return 0, fmt.Errorf("gpu_memory_utilization = %v: must be in (0, 1]", utilisation)
	}
	if s.Vocab <= 0 {
		return 0, fmt.Errorf("KV size: the model config lacks vocab_size; give total_kv_blocks")
	}
	const gib = 1 << 30
	L, D, H, K, V := float64(s.Layers), float64(s.Hidden), float64(s.Heads), float64(s.KVHeads), float64(s.Vocab)
	dkv := K * D / H
	mlp, activation := 3*D*float64(s.Intermediate), 5.5*gib
	if s.MoE() {
		E := float64(s.Experts)
		mlp = 3*D*float64(s.expertDim())*E + 3*D*float64(s.SharedDim) + E*D
		activation = 8.0 * gib
	}
	params := V*D + D + L*(D*(D+2*dkv)+D*D+mlp+2*D)
	if !s.TiedEmbeddings {
		params += V * D
	}
	other := 0.15 * gib
	if tp > 1 {
		other = 0.6 * gib * float64(tp)
	}
	room := g.MemoryGiB*gib*utilisation*float64(tp) - params*s.WeightBytes - activation - other
	block := math.Trunc(L * 2 * (D / H) * K * s.Bytes / float64(tp) * float64(blockTokens))
	if block < 1 {
		return 0, fmt.Errorf("KV size: the model config's heads make a block of %d tokens less than a byte; give "+
			"total_kv_blocks", blockTokens)
	}
	if room < block {
		return 0, fmt.Errorf("KV size: %.1f GiB of weights do not leave room for one block on %d × %.0f GiB",
			params*s.WeightBytes/gib, tp, g.MemoryGiB)
	}
	return int(room / block), nil
}

// MaxModelLen returns the longest sequence a model takes: its positions times the rope factor where that extends them,
// cut to what the cache holds. 0 = the config does not say.
func MaxModelLen(s Shape, blocks, blockTokens int) int {
	n := float64(s.MaxPositions)
	if f := s.Rope.Factor; f > 1 && !strings.HasPrefix(s.ModelType, "gemma3") {
		switch s.Rope.Type {
		case "su", "longrope", "llama3":
		case "yarn":
			if s.Rope.Original > 0 {
				n = float64(s.Rope.Original)
			}
			n *= f
		default:
			n *= f
		}
	}
	if most := blocks * blockTokens; n > float64(most) {
		return most
	}
	return int(n)
}
