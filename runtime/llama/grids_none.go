//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_images || llama_no_grids)

package llama

import (
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/grid"
)

// A model whose positions have several dimensions reads no images here.
func (e *engine) knowsGrids() bool { return false }

const builtGrids = false

func (e *engine) freeCells() int { return 0 }

func (e *engine) gridEnd(runtime.Seq, bool) grid.Position              { return grid.Position{T: -1} }
func (e *engine) gridRemove(runtime.Seq, grid.Position, grid.Position) {}
func (e *engine) gridCopy(_, _ runtime.Seq, _, _ grid.Position)        {}
