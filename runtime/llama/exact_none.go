//go:build cgo && (!linux || !amd64 || llama_system)

package llama

// Exact reports whether a row's logits depend on its sequence alone, bit for bit, in a model of Q8_0 weights: not with
// ggml's kernels.
func Exact() bool { return false }
