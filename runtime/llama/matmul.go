//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_products

package llama

// The linker resolves ggml's calls of quantize_row_q8_K, _q8_0 and _q8_1 to activations.cpp.

// #cgo amd64 LDFLAGS: -Wl,--wrap=quantize_row_q8_K -Wl,--wrap=quantize_row_q8_0 -Wl,--wrap=quantize_row_q8_1
// #include <stdlib.h>
// #include "ggml.h"
// #include "kernels/matmul.h"
// #include "product.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime/llama/kernels"
)

// UseKernels chooses the products of weights by name: "amx", "avx512", "avxvnni", "avx2", "i8mm" or "neon", "ggml" for
// none of ours, "auto" for the fastest that this processor has. Models opened afterwards have their weights repacked by
// ggml where the kernels do not take them. It must not be called during a Decode of any engine.
func UseKernels(name string) error {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if !C.uma_matmul_use(c) {
		return fmt.Errorf("kernels %q: want auto, ggml, or one that this processor has: amx, avx512, avxvnni, "+
			"avx2 (amd64), i8mm, neon (arm64)", name)
	}
	kernels.UseNorms(Kernels() != "ggml")
	return nil
}

// registerKernels has ggml offer its products to the kernels.
func registerKernels() { C.uma_matmul_register() }

// Kernels names the products of weights in use, as UseKernels takes it; never "auto".
func Kernels() string { return C.GoString(C.uma_matmul_used()) }

// kernelsTake reports whether the kernels in use compute products with weights of a type (ggml's number).
func kernelsTake(typ int) bool { return bool(C.uma_matmul_takes(C.int(typ))) }

// product is x [n][k] times the transpose of weights [m][k], rounded to a type (ggml's number), on the CPU backend.
type product struct {
	c *C.uma_product
	n int // outputs
	m int // outputs of a row
}

// newProduct makes one; weights may be nil: some constant.
func newProduct(typ, m, n, k int, weights, x []float32) product {
	return productOf(C.uma_shape{_type: C.int(typ), m: C.int64_t(m), n: C.int64_t(n), k: C.int64_t(k)}, n*m, weights, x,
		nil)
}

// choice is the experts that multiply each of n rows: ids[n][used]. each: a row of activations for each of them.
type choice struct {
	experts, used int
	ids           []int32
	each          bool
}

// newExperts makes a product with experts: weights [experts][m][k], outputs [n][used][m].
func newExperts(typ, m, n, k int, e choice, weights, x []float32) product {
	return productOf(C.uma_shape{_type: C.int(typ), m: C.int64_t(m), n: C.int64_t(n), k: C.int64_t(k),
		experts: C.int64_t(e.experts), used: C.int64_t(e.used), each: C.bool(e.each)}, n*e.used*m, weights, x, e.ids)
}

func productOf(s C.uma_shape, outputs int, weights, x []float32, ids []int32) product {
	start()
	c := C.uma_product_new(&s, (*C.float)(unsafe.SliceData(weights)), (*C.float)(unsafe.SliceData(x)),
		(*C.int32_t)(unsafe.SliceData(ids)))
	if c == nil {
		panic("no memory for the graph")
	}
	return product{c, outputs, int(s.m)}
}

// rows returns the product of n rows of x from row first on, without experts. It uses the weights of p: free it before
// p.
func (p product) rows(first, n int) product {
	c := C.uma_product_rows(p.c, C.int64_t(first), C.int64_t(n))
	if c == nil {
		panic("no memory for the graph")
	}
	return product{c, n * p.m, p.m}
}

// again is p computed twice in one graph, with something between (enum uma_between): the second may follow the first.
func (p product) again(between int) product {
	return product{C.uma_product_again(p.c, uint32(between)), p.n, p.m}
}

// joined reports whether the second of again's products was computed with the first one.
func (p product) joined() bool { return bool(C.uma_product_joined(p.c)) }

func (p product) compute(threads int) { C.uma_product_compute(p.c, C.int(threads)) }

// out returns a view of compute's result: [n][m].
func (p product) out() []float32 { return unsafe.Slice((*float32)(C.uma_product_out(p.c)), p.n) }

// exact returns the product of what the weights and the activations are rounded to, in float64, and for each output the
// sum of the magnitudes of its terms.
func (p product) exact() (want, size []float64) {
	want, size = make([]float64, p.n), make([]float64, p.n)
	C.uma_product_exact(p.c, (*C.double)(unsafe.SliceData(want)), (*C.double)(unsafe.SliceData(size)))
	return want, size
}

func (p product) free() { C.uma_product_free(p.c) }

const builtProducts = true

// tryProducts multiplies weights of each format that the kernels take with one row and with as many as ggml has other
// functions for, and a stack of experts.
func tryProducts() (ours, missed []string) {
	const outputs, values = 64, 256
	for typ := range int(C.GGML_TYPE_COUNT) {
		if !kernelsTake(typ) {
			continue
		}
		taken := true
		try := func(p product) {
			C.uma_matmul_computed(C.int(typ))
			p.compute(2)
			p.free()
			taken = taken && bool(C.uma_matmul_computed(C.int(typ)))
		}
		for _, rows := range []int{1, 3, 16} {
			try(newProduct(typ, outputs, rows, values, nil, make([]float32, rows*values)))
		}
		try(newExperts(typ, outputs, 1, values, choice{experts: 2, used: 1, ids: []int32{1}}, nil,
			make([]float32, values)))
		if name := C.GoString(C.ggml_type_name(C.enum_ggml_type(typ))); taken {
			ours = append(ours, name)
		} else {
			missed = append(missed, name)
		}
	}
	return ours, missed
}
