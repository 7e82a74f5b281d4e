package gguf

import (
	"fmt"
	"strings"
)

// tensorType is one entry of enum ggml_type: Block elements are stored in Bytes bytes.
type tensorType struct {
	name  string
	block uint64
	bytes uint64
}

// tensorTypes by number, from ggml.h and the block structures of ggml-common.h. Missing numbers were removed from ggml
// and are refused.
var tensorTypes = map[uint32]tensorType{
	0: {"F32", 1, 4}, 1: {"F16", 1, 2},
	2: {"Q4_0", 32, 18}, 3: {"Q4_1", 32, 20}, 6: {"Q5_0", 32, 22}, 7: {"Q5_1", 32, 24}, 8: {"Q8_0", 32, 34},
	9:  {"Q8_1", 32, 36},
	10: {"Q2_K", 256, 84}, 11: {"Q3_K", 256, 110}, 12: {"Q4_K", 256, 144}, 13: {"Q5_K", 256, 176},
	14: {"Q6_K", 256, 210}, 15: {"Q8_K", 256, 292},
	16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74}, 18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50},
	20: {"IQ4_NL", 32, 18},
	21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82}, 23: {"IQ4_XS", 256, 136},
	24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8}, 28: {"F64", 1, 8},
	29: {"IQ1_M", 256, 56}, 30: {"BF16", 1, 2}, 34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66}, 39: {"MXFP4", 32, 17},
}

// cacheTypes are llama.cpp's types for K and V, by the names of its flags: bytes per block of elements.
var cacheTypes = map[string]tensorType{
	"f32": tensorTypes[0], "f16": tensorTypes[1], "bf16": tensorTypes[30], "q8_0": tensorTypes[8],
	"q4_0": tensorTypes[2], "q4_1": tensorTypes[3], "q5_0": tensorTypes[6], "q5_1": tensorTypes[7],
	"iq4_nl": tensorTypes[20],
}

// CacheTypes returns the names of llama.cpp's types for K and V, widest first.
func CacheTypes() []string {
	return []string{"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"}
}

// cacheBytes returns the size of one cache row of n elements.
func cacheBytes(typ string, n int64) (int64, error) {
	t, ok := cacheTypes[typ]
	if !ok {
		return 0, fmt.Errorf("KV cache type %q is unknown: use %s", typ, strings.Join(CacheTypes(), ", "))
	}
	if n%int64(t.block) != 0 {
		return 0, fmt.Errorf("KV cache type %q stores blocks of %d elements, this model's rows have %d: use f16", typ,
			t.block, n)
	}
	return n / int64(t.block) * int64(t.bytes), nil
}
