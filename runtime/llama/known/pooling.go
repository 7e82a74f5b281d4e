package known

import (
	"fmt"
	"strconv"

	"github.com/uma-serve/uma-serve/runtime"
)

// unsaidPooling is LLAMA_POOLING_TYPE_UNSPECIFIED, -1, as llama.cpp saves it: in an unsigned number.
const unsaidPooling = "4294967295"

// Pooling returns the pooling kind that a file's pooling_type is; text is "" where it has none.
func Pooling(arch, text string, encoder bool) (runtime.Pooling, error) {
	if text == "" || text == unsaidPooling {
		if encoder {
			return runtime.PoolNone, nil
		}
		return "", nil
	}
	// enum llama_pooling_type
	kinds := []runtime.Pooling{runtime.PoolNone, runtime.PoolMean, runtime.PoolCLS, runtime.PoolLast, runtime.PoolRank}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= len(kinds) {
		return "", fmt.Errorf("its %s.pooling_type is %.20q, want 0 … %d", arch, text, len(kinds)-1)
	}
	return kinds[n], nil
}
