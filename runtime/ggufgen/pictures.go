package ggufgen

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
)

// WriteVision writes a projector of each family for a model with embeddings of that width, and two pictures, to dir.
func WriteVision(dir string, width int) error {
	for _, kind := range []ProjectorKind{Idefics3, Gemma3Vision, Llava} {
		p := Projector{Kind: kind, Width: width, Seed: 1}
		if err := WriteProjector(filepath.Join(dir, string(kind)+".gguf"), p); err != nil {
			return err
		}
	}
	for i, size := range []image.Point{{100, 80}, {300, 200}} {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("picture%d.png", i+1)))
		if err != nil {
			return err
		}
		err = png.Encode(f, waves(size))
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// waves is a picture that differs everywhere.
func waves(size image.Point) image.Image {
	m := image.NewNRGBA(image.Rectangle{Max: size})
	wave := func(x float64) uint8 { return uint8(127 + 127*math.Sin(x)) }
	for y := range size.Y {
		for x := range size.X {
			m.Set(x, y, color.NRGBA{wave(float64(x) / 9), wave(float64(y) / 7), uint8(x * y / 3), 255})
		}
	}
	return m
}
