//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"slices"
	"strings"
)

func orDefault(v, d int) int {
	if v == 0 {
		return d
	}
	return v
}

// kvTypes are the types of llama.cpp's KV cache, by the names that its tools use.
var kvTypes = []struct {
	name string
	ggml int32
}{
	{"f16", C.GGML_TYPE_F16}, {"f32", C.GGML_TYPE_F32}, {"bf16", C.GGML_TYPE_BF16}, {"q8_0", C.GGML_TYPE_Q8_0},
	{"q5_1", C.GGML_TYPE_Q5_1}, {"q5_0", C.GGML_TYPE_Q5_0}, {"q4_1", C.GGML_TYPE_Q4_1}, {"q4_0", C.GGML_TYPE_Q4_0},
	{"iq4_nl", C.GGML_TYPE_IQ4_NL},
}

func kvType(what, name string) (int32, error) {
	if name == "" {
		name = "f16"
	}
	var known []string
	for _, t := range kvTypes {
		if strings.EqualFold(t.name, name) {
			return t.ggml, nil
		}
		known = append(known, t.name)
	}
	return 0, fmt.Errorf("%s is %q, want one of %s", what, name, strings.Join(known, ", "))
}

func kvTypeName(ggml int32) string {
	i := slices.IndexFunc(kvTypes, func(t struct {
		name string
		ggml int32
	}) bool {
		return t.ggml == ggml
	})
	return kvTypes[i].name
}

func flashAttn(name string) (int32, error) {
	switch strings.ToLower(name) {
	case "", "auto":
		return C.LLAMA_FLASH_ATTN_TYPE_AUTO, nil
	case "on":
		return C.LLAMA_FLASH_ATTN_TYPE_ENABLED, nil
	case "off":
		return C.LLAMA_FLASH_ATTN_TYPE_DISABLED, nil
	}
	return 0, fmt.Errorf("flash attention is %q, want auto, on or off", name)
}
