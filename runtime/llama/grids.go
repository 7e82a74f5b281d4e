//go:build cgo && llama_engine && !llama_no_images && !llama_no_grids

package llama

// #include "grids.h"
import "C"

import (
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/grid"
)

const builtGrids = true

func cPosition(p grid.Position) C.uma_position {
	return C.uma_position{C.int32_t(p.T), C.int32_t(p.Y), C.int32_t(p.X)}
}

// knowsGrids reports whether the functions below find the cells of the engine's memory.
func (e *engine) knowsGrids() bool { return e.window == 0 && bool(C.uma_grid_known(e.ctx)) }

// freeCells returns the number of cells that no sequence has.
func (e *engine) freeCells() int { return int(C.uma_grid_free(e.ctx)) }

// gridEnd returns the position of the first or the last cell of s; its T is -1 where s has none.
func (e *engine) gridEnd(s runtime.Seq, last bool) grid.Position {
	p := C.uma_grid_end(e.ctx, C.int32_t(s), C.bool(last))
	return grid.Position{T: int32(p.t), Y: int32(p.y), X: int32(p.x)}
}

// gridRemove removes the cells of s at positions [from, to).
func (e *engine) gridRemove(s runtime.Seq, from, to grid.Position) {
	C.uma_grid_remove(e.ctx, C.int32_t(s), cPosition(from), cPosition(to))
}

// gridCopy has dst share the cells of src at positions [from, to).
func (e *engine) gridCopy(src, dst runtime.Seq, from, to grid.Position) {
	C.uma_grid_copy(e.ctx, C.int32_t(src), C.int32_t(dst), cPosition(from), cPosition(to))
}
