//go:build cgo && llama_engine && !llama_no_images

package llama

// #include "images.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

// decodeImages is the Decode of a batch with rows of images. llama.cpp takes tokens or embeddings in one batch, so the
// rows up to the last one of an image in each sequence are computed one run after the other, and then the others
// together: among them are all rows with logits.
func (e *engine) decodeImages() (rc C.int32_t, err error) {
	b := &e.batch
	if err := e.checkImages(); err != nil {
		return 0, err
	}
	e.images.mixed = true
	// The rest moves to the front of the batch, behind which the caller finds what it has written.
	restore, has := b.Save(), slices.Clone(e.has[:len(b.Token)])
	defer func() { restore(); copy(e.has, has) }()
	if e.caps.Seals && e.freeCells() < len(b.Token) {
		return 1, nil // part of the batch would change the states
	}
	e.mixes.split, e.mixes.kept = false, 0
	e.stop.decide = 0 // of several graphs no share is known
	image, later, places := b.Images, e.images.later, e.images.at
	n, rest := len(b.Token), 0
	for i := 0; i < n && rc == 0; {
		to, s := i+1, b.Seq[i]
		if i >= later[s] { // of the rest
			b.Move(i, rest)
			e.has[rest] = e.has[i]
			places[i] = int32(rest)
			rest++
			i = to
			continue
		}
		if len(image) == 0 || image[0].Row != i {
			for to < n && b.Seq[to] == s && to < later[s] && e.sameMix(i, to) &&
				(len(image) == 0 || image[0].Row != to) {
				to++
			}
			e.useMixOf(i)
			rc = C.uma_decode_rows(e.ctx, e.cbatch, C.int32_t(i), C.int32_t(to-i), e.stop)
			e.guard(s)
			i = to
			continue
		}
		segment, at := image[0].Segment, image[0].At
		for image = image[1:]; len(image) > 0 && image[0].Row == to && image[0].Segment == segment && b.Seq[to] == s &&
			e.sameMix(i, to); to++ {
			image = image[1:]
		}
		if segment.Together && to-i != segment.N {
			return 0, fmt.Errorf("%w: rows %d … %d of an image of %d rows, which must be in one batch",
				runtime.ErrDecode, at, at+to-i-1, segment.N)
		}
		e.useMixOf(i)
		rc = e.decodeRows(segment, at, i, to)
		e.guard(s)
		i = to
	}
	if rc == 0 && rest > 0 {
		b.Shorten(rest)
		rc = e.compute(rest)
	}
	return rc, nil
}

// decodeRows computes rows [from, to) of the batch: those of p from its row at on.
func (e *engine) decodeRows(p *runtime.ViewSegment, at, from, to int) C.int32_t {
	b, width := &e.batch, e.images.width
	s, spare, t := C.llama_seq_id(b.Seq[from]), C.llama_seq_id(-1), C.llama_pos(b.Pos[from])
	inside := p.Width > 0 && at > 0
	if inside && !e.caps.Seals {
		// When llama.cpp gives up it removes from the first position of its batch on, and there the image begins: what
		// the memory has of it gets another owner meanwhile. Without one to spare, llama.cpp is not told to give up.
		if spare = C.llama_seq_id(e.emptySeq()); spare >= 0 {
			C.llama_memory_seq_cp(e.mem, s, spare, t, -1)
		}
	}
	never := e.stop.never
	e.stop.never = never || C.bool(inside && spare < 0)
	places := e.grids.Places(b, from, to, p.Width > 0)
	rc := C.uma_images_decode(e.ctx, (*C.float)(unsafe.SliceData(p.Rows[at*width:])), C.int32_t(to-from),
		(*C.int32_t)(unsafe.SliceData(places)), C.int32_t(s), C.bool(p.Together), e.stop)
	e.stop.never = never
	if spare >= 0 {
		if rc != 0 {
			C.llama_memory_seq_rm(e.mem, s, t, -1)
			C.llama_memory_seq_cp(e.mem, spare, s, t, -1)
		}
		C.llama_memory_seq_rm(e.mem, spare, -1, -1)
	}
	return rc
}

// sameMix reports whether two rows have the same adapters.
func (e *engine) sameMix(i, j int) bool {
	return len(e.batch.Mix) == 0 || e.batch.Mix[i] == e.batch.Mix[j]
}

// useMixOf applies the adapters of row i.
func (e *engine) useMixOf(i int) {
	if e.mixes.piece != nil {
		e.use(e.batch.Mix[i])
	}
}

// checkImages refuses images that the projector has not made, and sets later: for each sequence the first row behind
// those of its images.
func (e *engine) checkImages() error {
	b := &e.batch
	if e.images == nil {
		return fmt.Errorf("%w: rows of images, and the model has no projector", runtime.ErrDecode)
	}
	if e.images.later == nil {
		e.images.later, e.images.at = make([]int, e.caps.MaxSequences), make([]int32, cap(b.Token))
	}
	later := e.images.later
	clear(later)
	for _, r := range b.Images {
		if p := r.Segment; r.At < 0 || r.At >= p.N || len(p.Rows) != p.N*e.images.width {
			return fmt.Errorf("%w: row %d: row %d of an image with %d, in %d values", runtime.ErrDecode, r.Row,
				r.At, p.N, len(p.Rows))
		}
		later[b.Seq[r.Row]] = r.Row + 1
	}
	for i, s := range b.Seq {
		if i < later[s] && b.Logits[i] != 0 {
			return fmt.Errorf("%w: row %d has logits and lies before rows of an image", runtime.ErrDecode, i)
		}
	}
	return nil
}

// dropBatch removes what a batch of several segments has left in the cells: its caller sees none of it computed.
func (e *engine) dropBatch() {
	b := &e.batch
	for i, s := range b.Seq {
		if i == 0 || b.Seq[i-1] != s {
			e.SeqRemove(s, b.Pos[i], -1)
		}
	}
}

func (e *engine) beginImages() {
	if e.images != nil {
		e.images.mixed = false
	}
}

// place returns where row i of the batch was when it was computed.
func (e *engine) place(i int) int {
	if e.images != nil && e.images.mixed {
		return int(e.images.at[i])
	}
	return i
}
