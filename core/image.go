package core

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// Images. A row of an image has a token like every other row, made from the picture's hash: prefixes with images are
// shared, evicted, stored and restored as they are without. Two rules are added. A prefix ends at no row inside a
// segment of an image (runtime.WholeImages): the ids of all rows of a segment name the picture, those of a few may
// collide. And the batch has the embedding beside the id.

// imageRow returns the segment of r's images that has row i of its history, and the row's place in it.
func (r *Request) imageRow(i int) (*runtime.ViewSegment, int) {
	k, found := slices.BinarySearchFunc(r.Segments, i, func(p runtime.ViewSegment, i int) int {
		switch {
		case p.At > i:
			return 1
		case p.At+p.N <= i:
			return -1
		}
		return 0
	})
	if !found {
		panic(fmt.Sprintf("core: row %d of request %d stands for an image, and none of its %d segments has it", i, r.ID,
			len(r.Segments)))
	}
	return &r.Segments[k], i - r.Segments[k].At
}
