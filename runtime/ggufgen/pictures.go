package ggufgen

import (
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
)

// Projectors returns the families of projectors that fit an architecture.
func (a Arch) Projectors() []ProjectorKind {
	switch a {
	case Qwen2VL:
		return []ProjectorKind{Qwen2VLMerger, Qwen25VLMerger}
	case Qwen3VL:
		return []ProjectorKind{Qwen3VLMerger}
	case Qwen35:
		return []ProjectorKind{Qwen35Merger}
	case LFM2:
		return []ProjectorKind{LFM2Vision}
	}
	return []ProjectorKind{Idefics3, Gemma3Vision, Llava, Ultravox}
}

// WriteVision writes a projector of each family that fits the model of c, three pictures, the last of them large, and
// two recordings to dir.
func WriteVision(dir string, c Config) error {
	for _, kind := range c.Arch.Projectors() {
		p := Projector{Kind: kind, Width: c.Embedding, Seed: 1}
		if err := WriteProjector(filepath.Join(dir, string(kind)+".gguf"), p); err != nil {
			return err
		}
	}
	for i, size := range []image.Point{{100, 80}, {300, 200}, {300, 600}} {
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
	for i, seconds := range []int{8, 40} { // one part, and two
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("sound%d.wav", i+1)), Chirp(seconds), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Chirp returns a WAV of a tone that rises and falls, 16,000 samples a second of 16 bits.
func Chirp(seconds int) []byte {
	const rate, width = 16000, 2
	le, n := binary.LittleEndian, uint32(seconds*rate*width)
	out := le.AppendUint32([]byte("RIFF"), 36+n)
	out = append(out, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	out = le.AppendUint32(out, rate)
	out = le.AppendUint32(out, rate*width)
	out = append(out, width, 0, 8*width, 0)
	out = le.AppendUint32(append(out, "data"...), n)
	phase := 0.
	for i := range seconds * rate {
		phase += 2 * math.Pi * (600 + 400*math.Sin(float64(i)/rate*2)) / rate
		out = le.AppendUint16(out, uint16(int16(8000*math.Sin(phase))))
	}
	return out
}

// waves returns a picture that differs everywhere.
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
