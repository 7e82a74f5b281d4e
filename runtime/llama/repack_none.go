//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_repacked)

package llama

// #include "bridge.h"
import "C"

import "github.com/uma-serve/uma-serve/runtime"

// repackedBytes is 0: this build cannot ask the library how much it repacks.
func (e *engine) repackedBytes() uint64 { return 0 }

// placedOf is nil: this build cannot ask the library for the memory of devices.
func placedOf(*engine) []runtime.DeviceMemory { return nil }

// stateRows estimates the rows of the n cells of sequence 0: a state also lists each one's position and sequence.
func (e *engine) stateRows(n int) int { return int(C.llama_state_seq_get_size(e.ctx, 0)) - 12*n }

const builtRepacked = false
