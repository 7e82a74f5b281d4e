//go:build cgo && (llama_engine || llama_system) && (!linux || (!amd64 && !arm64) || llama_system || llama_no_attention)

package llama

func tryAttention() (ours, missed []string) { return nil, nil }

const builtAttention = false
