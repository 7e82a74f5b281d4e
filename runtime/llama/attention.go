//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_attention

package llama

// The linker redirects ggml's calls of its attention function to attention.cpp, which calls ggml's own function for
// every case that it does not handle.

// #cgo LDFLAGS: -Wl,--wrap=ggml_compute_forward_flash_attn_ext -Wl,--wrap=ggml_graph_compute
// #include "kernels/attention.h"
// #include "ggml.h"
import "C"

import "unsafe"

// ownAttention switches between our kernel and ggml's, for tests and benchmarks that compare them. It returns the
// previous setting.
func ownAttention(on bool) bool { return bool(C.uma_attention_enable(C.bool(on))) }

// attentionCase is one attention operation: q [rows][heads][width] float32, k [cells][kvHeads][width] and
// v [cells][kvHeads][vWidth] encoded as kind (ggml's number of the type), mask [rows][cells] as float16 bits.
type attentionCase struct {
	width, vWidth, rows, cells, heads, kvHeads int
	kind                                       int
	layers                                     int // as often in one graph, with one mask; 0: once
	scale                                      float32
	maxBias                                    float32   // ALiBi's; 0: the mask is added as it is
	softcap                                    float32   // 0: none
	sinks                                      []float32 // a score of each head; nil: none
	q                                          []float32
	k, v                                       []byte
	mask                                       []uint16 // nil: every row sees every cell
	positions                                  []int32  // of the cells; nil: not known
	lines                                      []int32  // their order at one position; nil: none share one
}

// attention computes c on the CPU backend with as many threads: [rows][heads][vWidth].
func attention(c *attentionCase, threads int) []float32 {
	out := make([]float32, c.rows*c.heads*c.vWidth)
	shape := C.uma_attention_shape{threads: C.int(threads), kind: C.int(c.kind), layers: C.int(max(c.layers, 1)),
		width: C.int64_t(c.width), v_width: C.int64_t(c.vWidth), rows: C.int64_t(c.rows), cells: C.int64_t(c.cells),
		heads: C.int64_t(c.heads), kv_heads: C.int64_t(c.kvHeads), scale: C.float(c.scale),
		max_bias: C.float(c.maxBias), softcap: C.float(c.softcap)}
	if !C.uma_attention_graph(&shape, (*C.float)(unsafe.SliceData(c.q)), unsafe.Pointer(unsafe.SliceData(c.k)),
		unsafe.Pointer(unsafe.SliceData(c.v)), (*C.uint16_t)(unsafe.SliceData(c.mask)),
		(*C.float)(unsafe.SliceData(c.sinks)), (*C.int32_t)(unsafe.SliceData(c.positions)),
		(*C.int32_t)(unsafe.SliceData(c.lines)), (*C.float)(unsafe.SliceData(out))) {
		panic("no memory for the graph")
	}
	return out
}

// attentionComputed reports whether our kernels computed attention since the last call.
func attentionComputed() bool { return bool(C.uma_attention_computed()) }

// tryAttention computes one row over a few cells of float16 keys and values.
func tryAttention() (ours, missed []string) {
	const width, cells = 64, 8
	attentionComputed()
	start()
	attention(&attentionCase{width: width, vWidth: width, rows: 1, cells: cells, heads: 1, kvHeads: 1,
		kind: C.GGML_TYPE_F16, scale: 1, q: make([]float32, width), k: make([]byte, 2*width*cells),
		v: make([]byte, 2*width*cells)}, 2)
	if !attentionComputed() {
		missed = []string{"f16"}
	}
	return nil, missed
}

const builtAttention = true
