package gguf

import (
	"fmt"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// cacheTypes are llama.cpp's types for K and V, by the names of its flags: bytes per block of elements.
var cacheTypes = func() map[string]gguffile.Type {
	byName := map[string]gguffile.Type{}
	for number := range uint32(64) {
		if t, ok := gguffile.TypeOf(number); ok {
			byName[strings.ToLower(t.Name)] = t
		}
	}
	cache := map[string]gguffile.Type{}
	for _, name := range CacheTypes() {
		cache[name] = byName[name]
	}
	return cache
}()

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
	if n%int64(t.Block) != 0 {
		return 0, fmt.Errorf("KV cache type %q stores blocks of %d elements, this model's rows have %d: use f16", typ,
			t.Block, n)
	}
	return n / int64(t.Block) * int64(t.Bytes), nil
}
