//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"strconv"
	"strings"
)

// mostLayers is llama.cpp's LLAMA_MAX_LAYERS.
const mostLayers = 512

// expertsPattern returns the regular expression of the weights of experts in the first n layers (-1: in all), as
// llama-server's --n-cpu-moe has it; "" for none. llama.cpp looks for it in the name of each tensor.
func expertsPattern(n int) string {
	const experts = `\.ffn_(up|down|gate|gate_up)_(ch|)exps`
	if n < 0 || n >= mostLayers {
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
