//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"log/slog"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/grid"
)

// In a model whose positions have several dimensions (M-RoPE) the rows of an image share their first one, and a row's
// index in its sequence, which runtime.Pos is, is not its position. Which is which follows from the images of the
// sequence and their grids (package grid), and the engine keeps these with each sequence. Nothing above it knows a
// position. llama.cpp's ranges end at a first dimension: those that end inside an image are found among its cells
// (grids.cpp).

// hasGrids reports whether the indexes of s may not be positions.
func (e *engine) hasGrids(s runtime.Seq) bool { return len(e.grids.Of(s)) > 0 }

// endOf returns the index of the first or the last row of s, which has images; -1: it has no rows.
func (e *engine) endOf(s runtime.Seq, last bool) runtime.Pos {
	if i, ok := e.grids.Of(s).Index(e.gridEnd(s, last)); ok {
		return i
	}
	return -1
}

// lastOf returns the index of the last row of s; -1: it has none.
func (e *engine) lastOf(s runtime.Seq) runtime.Pos {
	_, last := e.SeqRange(s)
	return last
}

// setPositions has the batch's rows at positions until setIndexes.
func (e *engine) setPositions() error {
	if e.grids == nil {
		return nil
	}
	return e.grids.SetPositions(&e.batch, e.lastOf)
}

func (e *engine) setIndexes() { e.grids.SetIndexes(&e.batch) }

// removeRange removes the cells of s at indexes [p0, p1); -1 and -1: all.
func (e *engine) removeRange(s runtime.Seq, p0, p1 runtime.Pos) bool {
	if list := e.grids.Of(s); len(list) > 0 && p0 >= 0 {
		if list.Inside(p0) || list.Inside(p1) {
			e.gridRemove(s, list.At(p0), list.At(p1))
			return true
		}
		p0, p1 = list.At(p0).T, list.At(p1).T
	}
	return bool(C.llama_memory_seq_rm(e.mem, C.llama_seq_id(s), C.llama_pos(p0), C.llama_pos(p1)))
}

// trimGrids forgets the images behind the last row of s.
func (e *engine) trimGrids(s runtime.Seq) {
	if e.hasGrids(s) {
		e.grids.Images(s).Cut(e.lastOf(s) + 1)
	}
}

// copyRange has dst share the cells of src at indexes [p0, p1); p1 < 0: to the end.
func (e *engine) copyRange(src, dst runtime.Seq, p0, p1 runtime.Pos) {
	if list := e.grids.Of(src); len(list) > 0 {
		end := p1
		if end < 0 {
			end = e.lastOf(src) + 1
		}
		if err := e.grids.Images(dst).Join(list.Head(end)); err != nil && invariants.Enabled {
			panic(fmt.Sprintf("llama: sequence %d is not a beginning of %d: %v", dst, src, err))
		}
		p0 = max(p0, 0)
		if list.Inside(p0) || p1 >= 0 && list.Inside(p1) {
			e.gridCopy(src, dst, list.At(p0), list.At(end))
			return
		}
		if p0 = list.At(p0).T; p1 >= 0 {
			p1 = list.At(p1).T
		}
	}
	if !e.caps.CopiesBytes {
		C.llama_memory_seq_cp(e.mem, C.llama_seq_id(src), C.llama_seq_id(dst), C.llama_pos(p0), C.llama_pos(p1))
	} else if e.lastOf(src) >= 0 && !C.uma_copy(e.ctx, C.llama_seq_id(src), C.llama_seq_id(dst)) {
		panic(fmt.Sprintf("llama: sequence %d was not copied: %s", src, drainLogs(slog.LevelError)))
	}
}

// restored takes in the images of a snapshot, whose cells are all that sequence s has.
func (e *engine) restored(s runtime.Seq, list grid.Images) error {
	if e.grids == nil {
		return nil
	}
	if *e.grids.Images(s) = list; len(list) > 0 && (e.endOf(s, false) < 0 || e.endOf(s, true) < 0) {
		*e.grids.Images(s) = nil
		return fmt.Errorf("%w: its cells are not at the positions of its images", runtime.ErrSnapshot)
	}
	return nil
}

// joins reports whether sequences s and q, which have rows, may be parts of one.
func (e *engine) joins(s, q runtime.Seq) bool {
	return e.grids.Of(s).Joins(e.lastOf(s), e.grids.Of(q), e.lastOf(q))
}
