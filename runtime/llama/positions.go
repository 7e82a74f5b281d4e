//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_positions

package llama

// #include "positions.h"
import "C"

import "unsafe"

// knowPositions gives the kernel the positions of e's cells, so that it sums in their order, and reports whether there
// are cells that it knows. forgetPositions must be called before the context is freed.
func (e *engine) knowPositions() bool { return C.uma_positions_know(e.ctx) > 0 }
func (e *engine) forgetPositions()    { C.uma_positions_remove(unsafe.Pointer(e.ctx)) }

// shifts reports whether llama.cpp survives a change of positions. Where it says that it can, a memory whose windowed
// layers, or whose others, have no rotation (all layers of the file are windowed, or the others' positions are not
// rotated) fails an assertion at the next Decode.
func (e *engine) shifts() bool { return C.uma_positions_shift(e.ctx) != 0 }

const builtPositions = true
