//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_heads)

package llama

// A model's head is not loaded.
const builtHeads = false
