//go:build cgo && (llama_engine || llama_system) && (!linux || (!amd64 && !arm64) || llama_system || llama_no_keep)

package llama

// ggml repacks what it likes here.
func keepWeights() {}

func tryKeep() (ours, missed []string) { return nil, nil }

const builtKeep = false
