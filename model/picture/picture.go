// Package picture decodes image files: PNG, JPEG, WebP and the first frame of GIF. The bytes are a client's, so that
// every limit holds before memory or time is spent: on the bytes by the caller, on the pixels before any is decoded, on
// the time while they are. It is Go's code alone: no decoder of C sees the bytes.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"time"

	_ "golang.org/x/image/webp"

	"github.com/uma-serve/uma-serve/model/upload"
	"github.com/uma-serve/uma-serve/runtime"
)

// Limits of a picture.
const (
	MaxPixels = 40 << 20 // 8 K × 5 K
	MaxSide   = 16384
	MaxTime   = 10 * time.Second
)

// ErrPicture is wrapped by all errors about the bytes of a picture.
var ErrPicture = errors.New("image cannot be read")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrPicture, fmt.Sprintf(format, args...))
}

// formats are the formats that Decode reads, for errors.
const formats = "PNG, JPEG, WebP and GIF are read"

// FromText returns the bytes of a picture that a client sent as text (upload.Bytes).
func FromText(text string) ([]byte, error) {
	data, err := upload.Bytes(text, "image/png")
	if err != nil {
		return nil, refuse("%v", err)
	}
	return data, nil
}

// slowReader hands out a few bytes at a time and none after the deadline: a JPEG of many scans costs time and no bytes.
type slowReader struct {
	r        bytes.Reader
	deadline time.Time
	late     error // what Read has returned after it
}

const readBytes = 256

func (s *slowReader) Read(p []byte) (int, error) {
	if time.Now().After(s.deadline) {
		s.late = refuse("decoding it takes longer than %v", MaxTime)
		return 0, s.late
	}
	return s.r.Read(p[:min(len(p), readBytes)])
}

// Decode decodes a picture and turns it as its EXIF orientation says. Transparent pixels are laid on white. All errors
// wrap ErrPicture.
func Decode(data []byte) (*runtime.Picture, error) { return decode(data, time.Now().Add(MaxTime)) }

func decode(data []byte, deadline time.Time) (p *runtime.Picture, err error) {
	defer func() {
		if r := recover(); r != nil { // of a decoder
			p, err = nil, refuse("its decoder fails: %v", r)
		}
	}()
	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case errors.Is(err, image.ErrFormat):
		return nil, refuse("%s; it begins with %q", formats, data[:min(len(data), 8)])
	case err != nil:
		return nil, refuse("%s: %v", format, err)
	case config.Width < 1 || config.Height < 1:
		return nil, refuse("it has %d × %d pixels", config.Width, config.Height)
	case config.Width > MaxSide || config.Height > MaxSide || config.Width*config.Height > MaxPixels:
		return nil, refuse("it has %d × %d pixels, and the limit is %d, %d a side: make it smaller", config.Width,
			config.Height, MaxPixels, MaxSide)
	}
	in := &slowReader{deadline: deadline}
	in.r.Reset(data)
	m, _, err := image.Decode(in)
	switch {
	case in.late != nil:
		return nil, in.late
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse("%s: it ends too early", format)
	case err != nil:
		return nil, refuse("%s: %v", format, err)
	}
	b := m.Bounds()
	// A frame of a GIF may be smaller than the canvas; none may be larger than what was checked.
	if b.Dx() < 1 || b.Dy() < 1 || b.Dx() > config.Width || b.Dy() > config.Height {
		return nil, refuse("%s: its frame has %d × %d pixels", format, b.Dx(), b.Dy())
	}
	p = &runtime.Picture{Width: b.Dx(), Height: b.Dy(), RGB: pixels(m)}
	if format == "jpeg" {
		turn(p, orientation(data))
	}
	return p, nil
}

// pixels returns the pixels of m, a strip at a time, so that no second copy of it has four bytes a pixel.
func pixels(m image.Image) []byte {
	const rows = 64
	b := m.Bounds()
	out := make([]byte, 0, 3*b.Dx()*b.Dy())
	strip := image.NewRGBA(image.Rect(0, 0, b.Dx(), rows))
	for y := b.Min.Y; y < b.Max.Y; y += rows {
		n := min(rows, b.Max.Y-y)
		part := image.Rect(0, 0, b.Dx(), n)
		draw.Draw(strip, part, image.NewUniform(color.White), image.Point{}, draw.Src)
		draw.Draw(strip, part, m, image.Pt(b.Min.X, y), draw.Over)
		for i := 0; i < n*strip.Stride; i += 4 {
			out = append(out, strip.Pix[i], strip.Pix[i+1], strip.Pix[i+2])
		}
	}
	return out
}
