//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_images)

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/grid"
)

const builtImages = false

// imageState is empty: this build has no libmtmd.
type imageState struct{ grids *grid.Sequences }

func (e *engine) openImages(o runtime.Options) error {
	if o.Projector == "" {
		return nil
	}
	return fmt.Errorf("%w: the projector %s: this build reads no images, because its llama.cpp has no libmtmd "+
		"that fits (docs/engines.md); serve the model with --mmproj off", runtime.ErrModel, o.Projector)
}

func (e *engine) closeImages() {}
func (e *engine) beginImages() {}

func (e *engine) decodeImages() (C.int32_t, error) {
	return 0, fmt.Errorf("%w: rows of images", runtime.ErrUnsupported)
}

func (e *engine) dropBatch() {}

func (e *engine) place(i int) int { return i }
