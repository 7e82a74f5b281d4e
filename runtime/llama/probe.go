//go:build cgo && (llama_engine || llama_system)

package llama

// #cgo !darwin CFLAGS: -fopenmp-simd
// #cgo darwin CFLAGS: -Wno-unknown-pragmas
// #cgo noescape uma_probe_row
// #cgo nocallback uma_probe_row
// #cgo noescape uma_probe_f32
// #cgo nocallback uma_probe_f32
// #cgo noescape uma_probe_f16
// #cgo nocallback uma_probe_f16
// #cgo noescape uma_probe_bf16
// #cgo nocallback uma_probe_bf16
// #include "probe.h"
import "C"

import (
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

var _ runtime.RowProber = (*engine)(nil)

// ProbeRow implements runtime.RowProber with the kernel of probe.c, which finds the row by its index: close is the only
// pointer passed to C.
func (e *engine) ProbeRow(i int, close []runtime.Token, out *runtime.RowStats) bool {
	if !e.hasRow(i, runtime.RowLogits|runtime.RowProbe) {
		return false
	}
	if s, ok, probed := e.probedRow(i); probed {
		if ok {
			*out = s
		}
		return ok
	}
	if row := e.keptLogits(i); row != nil {
		*out = probeF32(row, close)
		return true
	}
	ids, n := closeIDs(close)
	*out = rowStats(C.uma_probe_row(e.ctx, e.row(i), C.int32_t(e.nVoc), ids, n))
	return true
}

// probeF32 and its two siblings probe a row in Go memory. llama.cpp's logits are float32 for every type of
// weights; the 16-bit kernels are for engines with 16-bit logits.
func probeF32(row []float32, close []runtime.Token) runtime.RowStats {
	ids, n := closeIDs(close)
	return rowStats(C.uma_probe_f32((*C.float)(unsafe.SliceData(row)), C.int32_t(len(row)), ids, n))
}

func probeF16(row []uint16, close []runtime.Token) runtime.RowStats {
	ids, n := closeIDs(close)
	return rowStats(C.uma_probe_f16((*C.uint16_t)(unsafe.SliceData(row)), C.int32_t(len(row)), ids, n))
}

func probeBF16(row []uint16, close []runtime.Token) runtime.RowStats {
	ids, n := closeIDs(close)
	return rowStats(C.uma_probe_bf16((*C.uint16_t)(unsafe.SliceData(row)), C.int32_t(len(row)), ids, n))
}

func closeIDs(close []runtime.Token) (*C.int32_t, C.int32_t) {
	return (*C.int32_t)(unsafe.SliceData(close)), C.int32_t(len(close))
}

func rowStats(s C.uma_row_stats) runtime.RowStats {
	return runtime.RowStats{
		Max: float32(s.max), Argmax: runtime.Token(s.argmax), LogSumExp: float64(s.log_sum_exp),
		Entropy:   float64(s.entropy),
		CloseMass: float64(s.close_mass), CloseRank: int(s.close_rank), NonFinite: int(s.non_finite),
	}
}
