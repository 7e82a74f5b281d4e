//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_products && !llama_no_norms

package kernels

// The linker resolves ggml's calls of its norms and rotations to norms.cpp.

// #cgo LDFLAGS: -Wl,--wrap=ggml_compute_forward_rms_norm -Wl,--wrap=ggml_compute_forward_rms_norm_mul_fused
// #cgo LDFLAGS: -Wl,--wrap=ggml_compute_forward_rope
// #include "norms.h"
import "C"

import "unsafe"

// BuiltNorms reports whether norms and rotations are computed here.
const BuiltNorms = true

// UseNorms has norms and rotations computed here, as at first, or by ggml. No decode may be running.
func UseNorms(on bool) { C.uma_norms_use(C.bool(on)) }

// Norms is norms, or rotations if Dims is not 0, one of the other's result (uma_norms_case): X is
// [Tokens][Heads][Width]. W is what a norm is multiplied with, or the frequencies' factors, Dims/2; nil: neither.
type Norms struct {
	Width, Heads, Tokens, Layers, Dims int
	Neox, InPlace                      bool
	Eps, Base, Scale, Magnitude        float32
	X, W                               []float32
	Positions                          []int32
}

// Compute has ggml compute them on its CPU backend, with as many threads.
func (c *Norms) Compute(threads int) []float32 {
	out := make([]float32, len(c.X))
	s := C.uma_norms_case{width: C.int64_t(c.Width), heads: C.int64_t(c.Heads), tokens: C.int64_t(c.Tokens),
		layers: C.int(c.Layers), dims: C.int(c.Dims), neox: C.bool(c.Neox), in_place: C.bool(c.InPlace),
		eps: C.float(c.Eps), base: C.float(c.Base), scale: C.float(c.Scale), magnitude: C.float(c.Magnitude)}
	if !C.uma_norms_graph(&s, (*C.float)(unsafe.SliceData(c.X)), (*C.float)(unsafe.SliceData(c.W)),
		(*C.int32_t)(unsafe.SliceData(c.Positions)), C.int(threads), (*C.float)(unsafe.SliceData(out))) {
		panic("no memory for the graph")
	}
	return out
}

// TryNorms has ggml compute a norm and a rotation of two rows, and returns which of them it computed itself.
func TryNorms() (missed []string) {
	const width, tokens = 8, 2
	c := Norms{Width: width, Heads: 1, Tokens: tokens, Layers: 1, Eps: 1, Base: 1e4, Scale: 1, Magnitude: 1,
		X: make([]float32, width*tokens), Positions: make([]int32, tokens), W: make([]float32, width)}
	C.uma_norms_computed()
	c.Compute(1)
	if c.W = nil; C.uma_norms_computed()&C.UMA_NORM == 0 {
		missed = append(missed, "norm*weight")
	}
	if c.Compute(1); C.uma_norms_computed()&C.UMA_NORM == 0 {
		missed = append(missed, "norm")
	}
	c.Dims = width
	if c.Compute(1); C.uma_norms_computed()&C.UMA_ROTATION == 0 {
		missed = append(missed, "rotation")
	}
	return missed
}
