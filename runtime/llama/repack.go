//go:build cgo && llama_engine && !llama_no_repacked

package llama

// #include "repack.h"
import "C"

// repackedBytes is the size of the weights that the CPU backend has repacked for its vector kernels.
func (e *engine) repackedBytes() uint64 { return uint64(C.uma_repacked_bytes(e.model)) }

const builtRepacked = true
