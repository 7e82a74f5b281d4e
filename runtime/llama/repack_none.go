//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_repacked)

package llama

// #include "bridge.h"
import "C"

import "github.com/uma-serve/uma-serve/runtime"

// repackedBytes is 0: this build cannot ask the library how much it repacks.
func (e *engine) repackedBytes() uint64 { return 0 }

// placedOf is nil: this build cannot ask the library for the memory of devices.
func placedOf(*engine) []runtime.DeviceMemory { return nil }

// stateRows estimates the bytes of the cells' rows in the state of sequence 0. Beside them, each of n cells lists its
// position and its sequence, with M-RoPE two more positions and the token, and twice where some layers have windows.
func (e *engine) stateRows(n int) int {
	meta := 12
	if r := C.llama_model_rope_type(e.model); r == C.LLAMA_ROPE_TYPE_MROPE || r == C.LLAMA_ROPE_TYPE_IMROPE {
		meta += 12
	}
	if e.window > 0 {
		meta *= 2
	}
	return int(C.llama_state_seq_get_size(e.ctx, 0)) - n*meta
}

const builtRepacked = false
