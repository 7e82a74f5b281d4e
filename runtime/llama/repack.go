//go:build cgo && llama_engine && !llama_no_repacked

package llama

// #include "repack.h"
import "C"

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/runtime"
)

// repackedBytes returns the size of the weights that the CPU backend has repacked for its vector kernels.
func (e *engine) repackedBytes() uint64 { return uint64(C.uma_repacked_bytes(e.model)) }

// placedOf returns what each device has of the model.
func placedOf(e *engine) (list []runtime.DeviceMemory) {
	var places [16]C.uma_place
	for _, p := range places[:C.uma_placed(e.ctx, &places[0], C.int32_t(len(places)))] {
		if p.weights+p.kv+p.compute > 0 {
			list = append(list, runtime.DeviceMemory{Device: C.GoString(&p.name[0]), Weights: uint64(p.weights),
				KV: uint64(p.kv), Compute: uint64(p.compute)})
		}
	}
	slices.SortFunc(list, func(a, b runtime.DeviceMemory) int { return strings.Compare(a.Device, b.Device) })
	return list
}

// stateRows returns the bytes of all rows in the state of sequence 0, without the list of its cells.
func (e *engine) stateRows(int) int { return int(C.uma_state_rows(e.ctx)) }

const builtRepacked = true
