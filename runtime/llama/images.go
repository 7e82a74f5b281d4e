//go:build cgo && llama_engine && !llama_no_images

package llama

// #include <stdlib.h>
// #include "images.h"
import "C"

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/grid"
	"github.com/uma-serve/uma-serve/runtime/views"
)

const builtImages = true

// images is the projector of an engine and what it has encoded.
type images struct {
	im    *C.struct_uma_images
	facts *runtime.Images
	mark  [32]byte // of the projector: part of every hash
	width int
	views views.Cache
	// Scratch of decodeImages.
	later []int   // by sequence
	at    []int32 // by row of the batch: its place in llama.cpp's last batch
	mixed bool    // the last Decode had rows of images
}

// imageState has an engine's projector.
type imageState struct {
	images *images         // nil: no projector
	grids  *grid.Sequences // nil: an index is a position
}

// openImages opens the projector of o. The error names its file.
func (e *engine) openImages(o runtime.Options) error {
	if o.Projector == "" {
		return nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("%w: the projector %s: %s", runtime.ErrModel, o.Projector, why)
	}
	switch {
	case e.encoder:
		return refuse("the model is an encoder, which reads text alone")
	case e.caps.Seals && !(e.info.Recurrent && e.knowsGrids()):
		return refuse(fmt.Sprintf("architecture %q has no cells, or windows that cannot go back; images are read by "+
			"models with full attention in some layers, and with windows by several sequences (--parallel 2)",
			e.info.Architecture))
	case e.everyRow || e.oneSequence || e.positions > 0:
		return refuse(fmt.Sprintf("architecture %q cannot have embeddings beside tokens in its batches",
			e.info.Architecture))
	}
	mark, size, err := views.Mark(o.Projector)
	if err != nil {
		return refuse(err.Error())
	}
	path := C.CString(o.Projector)
	defer C.free(unsafe.Pointer(path))
	flash, err := flashAttn(o.FlashAttn)
	if err != nil {
		return err
	}
	C.uma_opening(path)
	none := C.CString("")
	defer C.free(unsafe.Pointer(none))
	defer C.uma_opening(none)
	drainLogs(slog.LevelError)
	var facts C.uma_images_facts
	im := C.uma_images_open(path, e.model, C.bool(e.caps.Device != runtime.DeviceCPU), firstOf(o.Placed),
		C.int32_t(e.caps.Threads), C.int32_t(flash), &facts)
	if im == nil {
		return refuse(drainLogs(slog.LevelError))
	}
	e.images = &images{
		im: im, mark: mark, width: int(C.llama_model_n_embd_inp(e.model)),
		facts: &runtime.Images{Projector: o.Projector, Sees: bool(facts.sees), Together: bool(facts.together),
			SampleRate: int(facts.sample_rate), Bytes: size},
	}
	e.images.facts.Width, e.images.facts.Grids = e.images.width, bool(facts.plane)
	var why error
	switch {
	case !bool(facts.sees) && facts.sample_rate <= 0:
		why = refuse("it makes no embeddings of images and of sounds")
	case bool(facts.plane) && bool(facts.sees) && !bool(facts.grid):
		why = refuse(fmt.Sprintf("the rows of its images are no grid in the positions of architecture %q, which have "+
			"several dimensions (M-RoPE): serve this model with --mmproj off", e.info.Architecture))
	case bool(facts.plane) && !e.knowsGrids():
		why = refuse(fmt.Sprintf("architecture %q has positions in several dimensions (M-RoPE), by which this build "+
			"finds no cells of llama.cpp's memory (docs/engines.md): serve this model with --mmproj off",
			e.info.Architecture))
	case bool(facts.plane):
		e.grids = grid.NewSequences(e.caps.MaxSequences, cap(e.batch.Pos))
	}
	if why != nil {
		e.closeImages()
		e.images = nil
		return why
	}
	if name := C.GoString(&facts.device[0]); name != "" {
		e.caps.Placed = runtime.WithProjector(e.caps.Placed, name, uint64(facts.bytes))
	}
	return nil
}

func (e *engine) closeImages() {
	if im := e.images; im != nil {
		im.views.Close(func() {
			C.uma_images_close(im.im)
			im.im = nil
		})
	}
}

// Images implements runtime.Viewer.
func (e *engine) Images() *runtime.Images {
	if e.images == nil {
		return nil
	}
	return e.images.facts
}

// Encoding implements runtime.Viewer.
func (e *engine) Encoding() bool { return e.images != nil && e.images.views.Encoding() }

// WaitEncoded implements runtime.Viewer.
func (e *engine) WaitEncoded(d time.Duration) {
	if e.images != nil {
		e.images.views.Wait(d)
	}
}

// KeptViews implements runtime.Viewer.
func (e *engine) KeptViews() runtime.KeptViews { return &e.images.views }

// ImageCounts implements runtime.Viewer.
func (e *engine) ImageCounts() runtime.ImageCounts {
	if e.images == nil {
		return runtime.ImageCounts{}
	}
	return e.images.views.Counts()
}

// View implements runtime.Viewer.
func (e *engine) View(m *runtime.Medium, ns uint64, goOn func() bool) (*runtime.View, error) {
	im := e.images
	if im == nil || !im.facts.Reads(m.Sound != nil) {
		return nil, errors.New("this model does not read it: it has no projector for it")
	}
	hash := sha256.Sum256(append(im.mark[:], m.Hash[:]...))
	return im.views.View(hash, ns, m.Sound != nil, func() (*runtime.View, error) {
		if im.im == nil {
			return nil, errors.New("the engine is closed")
		}
		segments, err := im.cut(m)
		if err != nil {
			return nil, err
		}
		defer C.uma_images_free_cut(segments)
		return im.view(segments, hash, e.caps, goOn)
	})
}

// cut decodes a medium and cuts it into segments, all at a low priority: a large picture takes as long to decode and to
// resize as to encode.
func (im *images) cut(m *runtime.Medium) (segments *C.struct_mtmd_input_chunks, err error) {
	drainLogs(slog.LevelError)
	background(func() {
		if m.Sound != nil {
			var s *runtime.Sound
			if s, err = m.Sound(im.facts.SampleRate); err == nil {
				segments = C.uma_images_cut_sound(im.im, (*C.float)(unsafe.SliceData(s.Samples)),
					C.int64_t(len(s.Samples)))
			}
			return
		}
		var p *runtime.Picture
		switch p, err = m.Picture(); {
		case err != nil:
		case p.Width < 1 || p.Height < 1 || len(p.RGB) != 3*p.Width*p.Height:
			err = fmt.Errorf("%d × %d pixels in %d bytes", p.Width, p.Height, len(p.RGB))
		default:
			segments = C.uma_images_cut(im.im, (*C.uint8_t)(unsafe.SliceData(p.RGB)), C.int32_t(p.Width),
				C.int32_t(p.Height))
		}
	})
	if err == nil && segments == nil {
		err = fmt.Errorf("the model's projector cannot cut it into segments: %s", drainLogs(slog.LevelError))
	}
	return segments, err
}

// background runs f on a thread of low priority, which ends with it.
func background(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread() // for good: no other goroutine shall have this thread
		C.uma_images_background()
		f()
	}()
	<-done
}

// maxSegments bounds the segments of a picture or a sound and the texts between them.
const maxSegments = 1024

// view encodes the segments of a medium.
func (im *images) view(segments *C.struct_mtmd_input_chunks, hash [32]byte, caps runtime.Capabilities,
	goOn func() bool) (*runtime.View, error) {
	// Its length is known before anything is encoded, which takes seconds.
	v := &runtime.View{}
	var encoded []int
	for i := 0; ; i++ {
		var facts C.uma_images_facts_of_part
		n := int(C.uma_images_part(im.im, segments, C.int32_t(i), &facts))
		switch {
		case n < 0:
			return v, im.encodeSegments(segments, v, encoded, goOn)
		case i == maxSegments:
			return nil, fmt.Errorf("it has more than %d segments", maxSegments)
		case n == 0:
			continue
		case facts.text != nil:
			around := unsafe.Slice((*runtime.Token)(unsafe.Pointer(facts.text)), n)
			if slices.Contains(around, runtime.NoToken) {
				return nil, errors.New("the projector's family puts tokens around it that this model's " +
					"vocabulary lacks: is the projector this model's?")
			}
			v.Tokens = append(v.Tokens, around...)
			continue
		case facts.width < 0 || facts.width == 0 && int(facts.positions) != n:
			return nil, fmt.Errorf("its %d rows take %d positions in an order that this server does not know", n,
				facts.positions)
		case bool(facts.together) && n > min(caps.MaxMicroBatch, caps.MaxBatch):
			return nil, fmt.Errorf("a segment of it has %d rows, which are computed at once, and --ubatch-size is %d: "+
				"set --ubatch-size %d", n, caps.MaxMicroBatch, n)
		}
		v.Segments = append(v.Segments, runtime.ViewSegment{At: len(v.Tokens), N: n, Together: bool(facts.together),
			Width: int(facts.width)})
		v.Tokens = views.AppendRows(v.Tokens, hash, len(v.Segments), n)
		if encoded = append(encoded, i); len(v.Tokens) > caps.ContextTokens {
			return nil, fmt.Errorf("it takes more than the %d tokens of the context: make it smaller or shorter, or "+
				"start uma-serve with a larger --ctx-size", caps.ContextTokens)
		}
	}
}

func (im *images) encodeSegments(segments *C.struct_mtmd_input_chunks, v *runtime.View, encoded []int,
	goOn func() bool) error {
	if len(v.Segments) == 0 {
		return errors.New("the model's projector makes nothing of it")
	}
	for k, i := range encoded {
		if !goOn() {
			return runtime.ErrAborted
		}
		p := &v.Segments[k]
		p.Rows = make([]float32, p.N*im.width)
		done := false
		background(func() {
			done = bool(C.uma_images_encode(im.im, segments, C.int32_t(i), (*C.float)(unsafe.SliceData(p.Rows)),
				C.int64_t(len(p.Rows))))
		})
		if !done {
			return fmt.Errorf("the model's projector failed: %s", drainLogs(slog.LevelError))
		}
	}
	return nil
}
