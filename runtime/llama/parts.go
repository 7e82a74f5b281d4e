//go:build cgo && (llama_engine || llama_system)

package llama

import "github.com/uma-serve/uma-serve/internal/buildinfo"

func init() { buildinfo.Engine = engineBuild() }

// LeftOut names what this build lacks of what the binding puts beside or in the place of ggml's own code, because the
// system has no such code, or because it does not fit the llama.cpp that is linked (docs/engines.md). nil: it has all.
func LeftOut() []string {
	var names []string
	for _, p := range []struct {
		name  string
		built bool
	}{
		{"products", builtProducts}, {"attention", builtAttention}, {"positions", builtPositions}, {"keep", builtKeep},
		{"barrier", builtBarrier}, {"repacked", builtRepacked},
	} {
		if !p.built {
			names = append(names, p.name)
		}
	}
	return names
}

// Exact reports whether a row's logits depend on its sequence alone, bit for bit, in a model whose weights all have
// types that the kernels take: not on the rows that share its step, nor on the places of its cells. ggml's code
// guarantees neither.
func Exact() bool {
	return Kernels() != "ggml" && builtAttention && builtPositions && builtKeep
}
