package fake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/views"
)

// Images make the fake engine read images: of each it makes Rows rows between two tokens of text.
type Images struct {
	Rows     int
	Together bool
	// SampleRate has it read sounds too, of each it makes as many rows; Blind that it reads sounds alone.
	SampleRate int
	Blind      bool
	Projector  string // another one than that of an engine with another text
	// Encode is called for each picture that is not cached, on the goroutine that asks for it; its error refuses the
	// picture. nil: it is encoded at once.
	Encode func(*runtime.Picture) error
	// MakeWay is called in WaitEncoded; then a picture is always said to be encoded. nil: never.
	MakeWay func(most time.Duration)

	views views.Cache
}

var _ runtime.Viewer = (*Engine)(nil)

// imageValues are the values of a row of the fake's embeddings.
const imageValues = 2

// Images implements runtime.Viewer.
func (e *Engine) Images() *runtime.Images {
	if e.cfg.Images == nil {
		return nil
	}
	im := e.cfg.Images
	return &runtime.Images{Projector: "fake" + im.Projector, Sees: !im.Blind, Together: im.Together,
		SampleRate: im.SampleRate, Width: imageValues}
}

// View implements runtime.Viewer.
func (e *Engine) View(m *runtime.Medium, ns uint64, goOn func() bool) (*runtime.View, error) {
	im := e.cfg.Images
	return im.views.View(m.Hash, ns, m.Sound != nil, func() (*runtime.View, error) {
		if err := im.decode(m); err != nil {
			return nil, err
		}
		if !goOn() {
			return nil, runtime.ErrAborted
		}
		return im.view(m), nil
	})
}

func (im *Images) view(m *runtime.Medium) *runtime.View {
	v := &runtime.View{Tokens: []runtime.Token{'<'}, Segments: []runtime.ViewSegment{{At: 1, N: im.Rows,
		Rows: make([]float32, imageValues*im.Rows), Together: im.Together && m.Sound == nil}}}
	for i := range im.Rows {
		v.Tokens = append(v.Tokens, runtime.ImageToken(binary.LittleEndian.Uint32(m.Hash[:])+uint32(i), i == 0))
		v.Segments[0].Rows[imageValues*i] = float32(i)
	}
	v.Tokens = append(v.Tokens, '>')
	return v
}

func (im *Images) decode(m *runtime.Medium) error {
	if m.Sound != nil {
		_, err := m.Sound(im.SampleRate)
		return err
	}
	p, err := m.Picture()
	if err == nil && im.Encode != nil {
		err = im.Encode(p)
	}
	return err
}

// Encoding implements runtime.Viewer.
func (e *Engine) Encoding() bool { return e.cfg.Images != nil && e.cfg.Images.MakeWay != nil }

// WaitEncoded implements runtime.Viewer.
func (e *Engine) WaitEncoded(most time.Duration) { e.cfg.Images.MakeWay(most) }

// ImageCounts implements runtime.Viewer.
func (e *Engine) ImageCounts() runtime.ImageCounts { return e.cfg.Images.views.Counts() }

// KeptViews implements runtime.Viewer.
func (e *Engine) KeptViews() runtime.KeptViews { return &e.cfg.Images.views }

// checkImages refuses what a real engine could not compute: rows of an image without their embedding, rows with logits
// before one, and, where the rows of an image see each other, a segment of them.
func (e *Engine) checkImages() error {
	b := &e.batch
	if len(b.Images) > 0 && e.cfg.Images == nil {
		return fmt.Errorf("%w: rows of images, and the model reads none", runtime.ErrDecode)
	}
	rows := map[*runtime.ViewSegment]int{}
	for _, r := range b.Images {
		if r.Segment == nil || r.At >= r.Segment.N || len(r.Segment.Row(r.At)) != imageValues ||
			r.Segment.Row(r.At)[0] != float32(r.At) {
			return fmt.Errorf("%w: row %d has not the embedding of its image", runtime.ErrDecode, r.Row)
		}
		if rows[r.Segment]++; b.Logits[r.Row] != 0 {
			return fmt.Errorf("%w: row %d of an image has logits", runtime.ErrDecode, r.Row)
		}
	}
	for segment, n := range rows {
		if segment.Together && n != segment.N {
			return errors.Join(runtime.ErrDecode, fmt.Errorf("%d of the %d rows of an image", n, segment.N))
		}
	}
	return nil
}
