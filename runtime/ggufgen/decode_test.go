package ggufgen

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/x448/float16"
)

// The decoders below are written from the layouts of ggml-common.h alone, one element at a time in float64: they share
// nothing with the encoders.

func half(b []byte) float64 {
	return float64(float16.Frombits(binary.LittleEndian.Uint16(b)).Float32())
}

// nibble is element i of 16 bytes that hold 32: the first half of them in the lower four bits.
func nibble(b []byte, i int) byte { return b[i%16] >> (i / 16 * 4) & 15 }

// sixBits is scale and min of group g in the twelve bytes of Q4_K and Q5_K.
func sixBits(b []byte, g int) (scale, least float64) {
	if g < 4 {
		return float64(b[g] & 63), float64(b[g+4] & 63)
	}
	return float64(b[g+4]&15 | b[g-4]>>6<<4), float64(b[g+4]>>4 | b[g]>>6<<4)
}

// decoded is element i of the block b.
var decoded = map[Type]func(b []byte, i int) float64{
	F32: func(b []byte, i int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) },
	F16: func(b []byte, i int) float64 { return half(b) },
	BF16: func(b []byte, i int) float64 {
		return float64(math.Float32frombits(uint32(b[0])<<16 | uint32(b[1])<<24))
	},
	Q8_0: func(b []byte, i int) float64 { return half(b) * float64(int8(b[2+i])) },
	Q4_0: func(b []byte, i int) float64 { return half(b) * (float64(nibble(b[2:], i)) - 8) },
	Q5_0: func(b []byte, i int) float64 {
		fifth := binary.LittleEndian.Uint32(b[2:]) >> i & 1
		return half(b) * (float64(nibble(b[6:], i)) + 16*float64(fifth) - 16)
	},
	IQ4_NL: func(b []byte, i int) float64 {
		levels := []float64{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
		return half(b) * levels[nibble(b[2:], i)]
	},
	Q4_K: func(b []byte, i int) float64 {
		scale, least := sixBits(b[4:], i/32)
		q := b[16+i/64*32+i%32] >> (i / 32 % 2 * 4) & 15
		return half(b)*scale*float64(q) - half(b[2:])*least
	},
	Q5_K: func(b []byte, i int) float64 {
		scale, least := sixBits(b[4:], i/32)
		q := b[48+i/64*32+i%32]>>(i/32%2*4)&15 + b[16+i%32]>>(i/32)&1*16
		return half(b)*scale*float64(q) - half(b[2:])*least
	},
	Q6_K: func(b []byte, i int) float64 {
		n, l := i/128, i%128
		low := b[64*n+l%64] >> (l / 64 * 4) & 15
		high := b[128+32*n+l%32] >> (l / 32 * 2) & 3
		return half(b[208:]) * float64(int8(b[192+i/16])) * (float64(low) + 16*float64(high) - 32)
	},
}

// allowed is the largest error of element i of b: half a step, or a whole one where the largest value of one sign has
// no code, plus the rounding of the group's scale and min.
var allowed = map[Type]func(b []byte, i int, x float64) float64{
	F32:    func(b []byte, i int, x float64) float64 { return 0 },
	F16:    func(b []byte, i int, x float64) float64 { return math.Abs(x)/(1<<11) + 1.0/(1<<25) },
	BF16:   func(b []byte, i int, x float64) float64 { return math.Abs(x) / (1 << 8) },
	Q8_0:   func(b []byte, i int, x float64) float64 { return 0.5 * math.Abs(half(b)) },
	Q4_0:   func(b []byte, i int, x float64) float64 { return math.Abs(half(b)) },
	Q5_0:   func(b []byte, i int, x float64) float64 { return math.Abs(half(b)) },
	IQ4_NL: func(b []byte, i int, x float64) float64 { return 14 * math.Abs(half(b)) },
	Q4_K: func(b []byte, i int, x float64) float64 {
		scale, _ := sixBits(b[4:], i/32)
		return half(b)*(scale/2+15.0/2) + half(b[2:])/2
	},
	Q5_K: func(b []byte, i int, x float64) float64 {
		scale, _ := sixBits(b[4:], i/32)
		return half(b)*(scale/2+31.0/2) + half(b[2:])/2
	},
	Q6_K: func(b []byte, i int, x float64) float64 {
		return math.Abs(half(b[208:])) * (math.Abs(float64(int8(b[192+i/16]))) + 16)
	},
}

func decode(t Type, b []byte) []float64 {
	s := storages[t]
	var out []float64
	for ; len(b) > 0; b = b[s.blockBytes:] {
		for i := range s.block {
			out = append(out, decoded[t](b[:s.blockBytes], i))
		}
	}
	return out
}

// Each encoder writes ggml's block, and each element is decoded to within the type's step. Groups differ in size by
// orders of magnitude, so that a group decoded with another's scale is far off.
func TestEncodersAgainstTheBlockLayout(t *testing.T) {
	sizes := map[Type][2]int{ // elements and bytes, from the static_asserts of ggml-common.h
		F32: {1, 4}, F16: {1, 2}, BF16: {1, 2}, Q8_0: {32, 34}, Q5_0: {32, 22}, Q4_0: {32, 18}, IQ4_NL: {32, 18},
		Q6_K: {256, 210}, Q5_K: {256, 176}, Q4_K: {256, 144},
	}
	for _, typ := range Types() {
		if typ == Q4_K_M {
			continue // of the types above
		}
		t.Run(string(typ), func(t *testing.T) {
			s := storages[typ]
			if got := [2]int{s.block, s.blockBytes}; got != sizes[typ] {
				t.Fatalf("a block is %v elements and bytes, want %v", got, sizes[typ])
			}
			rapid.Check(t, func(t *rapid.T) {
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				row := make([]float32, 2*superBlock)
				for g := 0; g < len(row); g += 16 {
					size := []float32{0, 1e-3, 0.1, 1, 50}[rng.IntN(5)]
					shift := float32(rng.IntN(3) - 1)
					for i := range 16 {
						row[g+i] = size * (2*rng.Float32() - 1 + shift)
					}
				}
				b := s.encode(nil, row)
				if len(b) != len(row)/s.block*s.blockBytes {
					t.Fatalf("%d bytes for %d elements", len(b), len(row))
				}
				for i, got := range decode(typ, b) {
					x := float64(row[i])
					// Scales are halves: off by 2⁻¹¹ of themselves, or 2⁻²⁵ where they are subnormal, times the largest
					// factors that are multiplied with one.
					at := i / s.block
					slack := (math.Abs(got)+100)/1024 + 127*32.0/(1<<25)
					if s.block == 1 {
						slack = 0
					}
					if limit := allowed[typ](b[at*s.blockBytes:][:s.blockBytes], i%s.block,
						x) + slack; math.Abs(got-x) > limit {
						t.Fatalf("element %d: %v came back as %v, allowed is %v", i, x, got, limit)
					}
				}
			})
		})
	}
}

// Relative error of normal weights, as models have them: an encoder that meets each bound above but wastes bits
// fails here. Published figures for round-to-nearest are of this size.
func TestErrorOfNormalWeights(t *testing.T) {
	row := normalRow(16 * superBlock)
	for typ, limit := range map[Type]float64{
		F32: 0, F16: 3e-4, BF16: 2.5e-3, Q8_0: 0.008, Q6_K: 0.03, Q5_K: 0.045, Q5_0: 0.055, Q4_K: 0.09, IQ4_NL: 0.105,
		Q4_0: 0.11,
	} {
		var square, size float64
		for i, got := range decode(typ, storages[typ].encode(nil, row)) {
			square += math.Pow(got-float64(row[i]), 2)
			size += math.Pow(float64(row[i]), 2)
		}
		if off := math.Sqrt(square / size); off > limit {
			t.Errorf("%s: the error is %.4f of the weights, want at most %v", typ, off, limit)
		}
	}
}

// A row of zeros has scales of zero and is decoded as zeros.
func TestZerosStayZero(t *testing.T) {
	for typ, s := range storages {
		for i, got := range decode(typ, s.encode(nil, make([]float32, superBlock))) {
			if got != 0 {
				t.Errorf("%s: element %d is %v", typ, i, got)
				break
			}
		}
	}
}

// BF16 rounds to nearest, ties to even, and keeps what is no number.
func TestBF16Rounds(t *testing.T) {
	for x, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, // 1
		0x3f808000: 0x3f80, // half way, down to even
		0x3f818000: 0x3f82, // half way, up to even
		0x3f808001: 0x3f81,
		0x7f7fffff: 0x7f80, // beyond the largest: infinity
		0xff800000: 0xff80, // -infinity
		0x7f800001: 0x7fc0, // a NaN stays one
	} {
		b := encodeBF16(nil, []float32{math.Float32frombits(x)})
		if got := binary.LittleEndian.Uint16(b); got != want {
			t.Errorf("%08x became %04x, want %04x", x, got, want)
		}
	}
}
