//go:build linux && amd64 && cgo && !llama_system

package llama

// The linker resolves ggml's calls of its matrix product to the one in matmul.cpp, and the calls that it
// does not handle to ggml's function.

// #cgo LDFLAGS: -Wl,--wrap=llamafile_sgemm
// #include "matmul.h"
import "C"

import "unsafe"

// ownMatmul switches between our kernel and ggml's, for tests and benchmarks that compare them. It returns the
// previous setting.
func ownMatmul(on bool) bool { return bool(C.uma_matmul_enable(C.bool(on))) }

// matmulBuilt reports whether this build has our kernel.
func matmulBuilt() bool { return bool(C.uma_matmul_built()) }

// Exact reports whether a row's logits depend on its sequence alone, bit for bit, in a model of Q8_0 weights: not on
// the rows that share its step, nor on the places of its cells. ggml's code guarantees neither.
func Exact() bool { return matmulBuilt() }

// product is x [n][k] times the transpose of weights [m][k], quantised to Q8_0, on the CPU backend: for tests.
type product struct {
	c *C.uma_product
	n int // outputs
}

func newProduct(m, n, k int, weights, x []float32) product {
	c := C.uma_product_new(C.int64_t(m), C.int64_t(n), C.int64_t(k), (*C.float)(unsafe.SliceData(weights)),
		(*C.float)(unsafe.SliceData(x)))
	if c == nil {
		panic("no memory for the graph")
	}
	return product{c, n * m}
}

func (p product) compute(threads int) { C.uma_product_compute(p.c, C.int(threads)) }

// out is a view of compute's result: [n][m].
func (p product) out() []float32 { return unsafe.Slice((*float32)(C.uma_product_out(p.c)), p.n) }

func (p product) free() { C.uma_product_free(p.c) }
