//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_attention

package llama

// The linker redirects ggml's calls of its attention function to attention.cpp, which calls ggml's own function for
// every case that it does not handle.

// #cgo LDFLAGS: -Wl,--wrap=ggml_compute_forward_flash_attn_ext
// #include "kernels/attention.h"
// #include "ggml.h"
import "C"

import "unsafe"

// ownAttention switches between our kernel and ggml's, for tests and benchmarks that compare them. It returns the
// previous setting.
func ownAttention(on bool) bool { return bool(C.uma_attention_enable(C.bool(on))) }

// attentionCase is one attention operation: q [rows][heads][width] float32, k and v [cells][kvHeads][width] encoded as
// kind (ggml's number of the type), mask [rows][cells] as float16 bits.
type attentionCase struct {
	width, rows, cells, heads, kvHeads int
	kind                               int
	scale                              float32
	q                                  []float32
	k, v                               []byte
	mask                               []uint16 // nil: every row sees every cell
	positions                          []int32  // of the cells; nil: not known
}

// attention computes c on the CPU backend with as many threads: [rows][heads][width].
func attention(c *attentionCase, threads int) []float32 {
	out := make([]float32, c.rows*c.heads*c.width)
	if !C.uma_attention_graph(C.int(threads), C.int(c.kind), C.int64_t(c.width), C.int64_t(c.rows), C.int64_t(c.cells),
		C.int64_t(c.heads), C.int64_t(c.kvHeads), C.float(c.scale),
		(*C.float)(unsafe.SliceData(c.q)), unsafe.Pointer(unsafe.SliceData(c.k)), unsafe.Pointer(unsafe.SliceData(c.v)),
		(*C.uint16_t)(unsafe.SliceData(c.mask)),
		(*C.int32_t)(unsafe.SliceData(c.positions)), (*C.float)(unsafe.SliceData(out))) {
		panic("no memory for the graph")
	}
	return out
}

// tryAttention computes one row over a few cells of float16 keys and values.
func tryAttention() (ours, missed []string) {
	const width, cells = 64, 8
	C.uma_attention_computed()
	start()
	attention(&attentionCase{width: width, rows: 1, cells: cells, heads: 1, kvHeads: 1, kind: C.GGML_TYPE_F16, scale: 1,
		q: make([]float32, width), k: make([]byte, 2*width*cells), v: make([]byte, 2*width*cells)}, 2)
	if !C.uma_attention_computed() {
		missed = []string{"f16"}
	}
	return nil, missed
}

const builtAttention = true
