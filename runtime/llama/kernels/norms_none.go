//go:build !linux || (!amd64 && !arm64) || !cgo || !llama_engine || llama_no_products || llama_no_norms

package kernels

// BuiltNorms is false: norms and rotations are ggml's.
const BuiltNorms = false

// UseNorms changes nothing here.
func UseNorms(bool) {}

// TryNorms has nothing to try.
func TryNorms() []string { return nil }
