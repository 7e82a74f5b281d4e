package ggufgen

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/x448/float16"
)

// ramp is one block: 0, 1, … 31 minus 16, times step.
func ramp(step float32) []float32 {
	row := make([]float32, quantBlock)
	for i := range row {
		row[i] = float32(i-16) * step
	}
	return row
}

// Vectors worked out by hand from the block layouts of ggml-common.h.
func TestEncodeKnownVectors(t *testing.T) {
	q8 := []byte{0x00, 0x3c} // scale 127·1/127 = 1.0 as half precision
	q8Row := make([]float32, quantBlock)
	q8Row[0], q8Row[1], q8Row[2], q8Row[3], q8Row[4] = 127, -127, 2.5, -2.5, 0.49
	q8 = append(q8, 127, 0x81, 3, 0xfd, 0)
	q8 = append(q8, make([]byte, quantBlock-5)...)

	// The element of largest magnitude is -16 → scale 2; x/2 + 8.5 truncated: 0, 1, 1, 2, … 8 | 8, 9, … 15, 15 is
	// 15.5+… capped.
	q4 := []byte{0x00, 0x40}
	for j := range 16 {
		low := byte(float64(j-16)/2 + 8.5)
		high := min(15, byte(float64(j)/2+8.5))
		q4 = append(q4, low|high<<4)
	}
	for _, tc := range []struct {
		name string
		typ  Type
		row  []float32
		want []byte
	}{
		{"f32", F32, []float32{1, -2}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}},
		{"f16", F16, []float32{1, -2, 65504}, []byte{0, 0x3c, 0, 0xc0, 0xff, 0x7b}},
		{"q8_0", Q8_0, q8Row, q8},
		{"q8_0 zeros", Q8_0, make([]float32, quantBlock), make([]byte, 34)},
		{"q4_0", Q4_0, ramp(1), q4},
		{"q4_0 zeros", Q4_0, make([]float32, quantBlock), append([]byte{0, 0x80}, bytes.Repeat([]byte{0x88}, 16)...)},
	} {
		if got := storages[tc.typ].encode(nil, tc.row); !bytes.Equal(got, tc.want) {
			t.Errorf("%s: got % x, want % x", tc.name, got, tc.want)
		}
	}
}

func normalRow(n int) []float32 {
	row := make([]float32, n)
	gaussian(row, rand.NewPCG(7, 11), 0.05)
	return row
}

// Decoding a block gives back each value to within half a quantisation step (a whole one at Q4_0's clipped end).
func TestQuantisationError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.Float32Range(-100, 100), quantBlock, quantBlock).Draw(t, "row")
		scaleOf := func(b []byte) float64 {
			return float64(float16.Frombits(uint16(b[0]) | uint16(b[1])<<8).Float32())
		}
		b := encodeQ8_0(nil, row)
		d := scaleOf(b)
		for i, v := range row {
			// Half precision rounds the scale by up to 2⁻¹¹, or by 2⁻²⁵ where it is subnormal.
			slack := 127 * (math.Abs(d)/2048 + 1.0/(1<<25))
			if got := float64(int8(b[2+i])) * d; math.Abs(got-float64(v)) > math.Abs(d)/2+slack {
				t.Fatalf("q8_0[%d]: %v came back as %v, scale %v", i, v, got, d)
			}
		}
		b = encodeQ4_0(nil, row)
		d = scaleOf(b)
		for i, v := range row {
			nibble := b[2+i%16] & 15
			if i >= 16 {
				nibble = b[2+i%16] >> 4
			}
			slack := 8 * (math.Abs(d)/2048 + 1.0/(1<<25))
			if got := (float64(nibble) - 8) * d; math.Abs(got-float64(v)) > math.Abs(d)+slack {
				t.Fatalf("q4_0[%d]: %v came back as %v, scale %v", i, v, got, d)
			}
		}
	})
}
