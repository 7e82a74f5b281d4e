//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_keep

package llama

// #include "ggml.h"
// #include "kernels/matmul.h"
import "C"

// keepWeights has ggml leave the weights that our kernels take as the file has them.
func keepWeights() { C.uma_keep_weights() }

// tryKeep asks ggml whether it would repack weights of each format that the kernels take.
func tryKeep() (ours, missed []string) {
	for typ := range int(C.GGML_TYPE_COUNT) {
		if kernelsTake(typ) && !bool(C.uma_keeps(C.int(typ))) {
			missed = append(missed, C.GoString(C.ggml_type_name(C.enum_ggml_type(typ))))
		}
	}
	return nil, missed
}

const builtKeep = true
