package runtime

import (
	"strconv"
	"strings"
)

// HostExperts returns how many of the layers that are on devices have their experts in the host's memory. A model has
// layers and an output; the last on of those are on devices. The experts of the first moe layers stay (Options.CPUMoE).
func HostExperts(layers, on, moe int) int {
	first := max(layers+1-on, 0)
	if moe < 0 || moe > layers {
		moe = layers
	}
	return max(moe-first, 0)
}

// MostLayers is llama.cpp's LLAMA_MAX_LAYERS.
const MostLayers = 512

// ExpertsPattern returns the regular expression of the weights of experts in the first n layers (-1: in all), as
// llama-server's --n-cpu-moe has it; "" for none. llama.cpp looks for it in the name of each tensor.
func ExpertsPattern(n int) string {
	const experts = `\.ffn_(up|down|gate|gate_up)_(ch|)exps`
	if n < 0 || n >= MostLayers {
		return experts
	}
	if n == 0 {
		return ""
	}
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	return `^blk\.(` + strings.Join(numbers, "|") + ")" + experts
}
