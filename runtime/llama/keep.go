//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_keep

package llama

// #include "matmul.h"
import "C"

// keepWeights has ggml leave the weights that our kernels take as the file has them.
func keepWeights() { C.uma_keep_weights() }

const builtKeep = true
