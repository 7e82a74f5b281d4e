package ggufgen

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// encoder appends the stored form of row to dst. len(row) is a multiple of the type's block.
type encoder func(dst []byte, row []float32) []byte

// storage is one ggml tensor type: its number in the file, how many elements make a block of how many bytes, and
// how a row is encoded. Numbers and layouts: ggml.h (enum ggml_type) and ggml-common.h (block_q8_0, block_q4_K, …).
type storage struct {
	kind       uint32 // enum ggml_type
	ftype      uint32 // enum llama_ftype: what a file mostly made of it is called
	block      int    // elements
	blockBytes int
	encode     encoder
}

var storages = map[Type]storage{
	F32:    {kind: 0, ftype: 0, block: 1, blockBytes: 4, encode: encodeF32},
	F16:    {kind: 1, ftype: 1, block: 1, blockBytes: 2, encode: encodeF16},
	BF16:   {kind: 30, ftype: 32, block: 1, blockBytes: 2, encode: encodeBF16},
	Q4_0:   {kind: 2, ftype: 2, block: quantBlock, blockBytes: 18, encode: encodeQ4_0},
	Q5_0:   {kind: 6, ftype: 8, block: quantBlock, blockBytes: 22, encode: encodeQ5_0},
	Q8_0:   {kind: 8, ftype: 7, block: quantBlock, blockBytes: 34, encode: encodeQ8_0},
	IQ4_NL: {kind: 20, ftype: 25, block: quantBlock, blockBytes: 18, encode: encodeIQ4NL},
	Q4_K:   {kind: 12, ftype: 14, block: superBlock, blockBytes: 144, encode: encodeQ4K},
	Q5_K:   {kind: 13, ftype: 16, block: superBlock, blockBytes: 176, encode: encodeQ5K},
	Q6_K:   {kind: 14, ftype: 18, block: superBlock, blockBytes: 210, encode: encodeQ6K},
}

// ftypeQ4KM is llama.cpp's number of the mixture that Config.storageOf deals out.
const ftypeQ4KM = 15

// fileType returns the number that general.file_type has for weights of type t.
func (t Type) fileType() uint32 {
	if t == Q4_K_M {
		return ftypeQ4KM
	}
	return storages[t].ftype
}

// storageOf returns the tensor type of a matrix with cols elements a row, by its part of the model and its layer.
//
// A mixture is dealt out as llama.cpp's quantiser does it without an importance matrix: in Q4_K_M the output matrix,
// or the embeddings that stand for it, is Q6_K, and so are the value and the down projections of the first eighth of
// the layers, the last eighth, and every third between; the rest is Q4_K. Where rows are no whole super-blocks, Q6_K
// becomes Q8_0 and Q4_K becomes Q5_0.
func (c Config) storageOf(part string, layer, cols int) storage {
	t := c.Type
	if t == Q4_K_M {
		t = Q4_K
		eighth := c.Layers / 8
		more := layer < eighth || layer >= 7*c.Layers/8 || (layer-eighth)%3 == 2
		switch part {
		case partOutput:
			t = Q6_K
		case partValue, partDown:
			if more {
				t = Q6_K
			}
		}
		if cols%superBlock != 0 {
			t = map[Type]Type{Q4_K: Q5_0, Q6_K: Q8_0}[t]
		}
	}
	return storages[t]
}

// The parts of a model that a mixture tells apart; "" is every other matrix.
const (
	partOutput = "output" // also embeddings that are tied to it
	partValue  = "value"
	partDown   = "down"
)

func encodeF32(dst []byte, row []float32) []byte {
	for _, v := range row {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

func encodeF16(dst []byte, row []float32) []byte {
	for _, v := range row {
		dst = appendHalf(dst, v)
	}
	return dst
}

func appendHalf(dst []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint16(dst, float16.Fromfloat32(v).Bits())
}

// encodeQ8_0: per block a half-precision scale d = max|x| / 127, then 32 signed bytes round(x/d), halves away
// from zero. As in ggml, x is divided by the scale before that is rounded to half precision.
func encodeQ8_0(dst []byte, row []float32) []byte {
	for ; len(row) > 0; row = row[quantBlock:] {
		var amax float32
		for _, v := range row[:quantBlock] {
			amax = max(amax, v, -v)
		}
		d := amax / 127
		dst = appendHalf(dst, d)
		inv := reciprocal(d)
		for _, v := range row[:quantBlock] {
			q := float32(v * inv) // the conversion keeps the compiler from fusing this into the sum below
			if q < 0 {
				q -= 0.5
			} else {
				q += 0.5
			}
			dst = append(dst, byte(int8(q)))
		}
	}
	return dst
}

// encodeQ4_0: per block a half-precision scale d = m / -8, m the element of largest magnitude with its sign, then
// 16 bytes: byte j holds x[j]/d + 8 in its low and x[j+16]/d + 8 in its high four bits, each rounded and at most 15.
func encodeQ4_0(dst []byte, row []float32) []byte {
	for ; len(row) > 0; row = row[quantBlock:] {
		d := peak(row[:quantBlock]) / -8
		dst = appendHalf(dst, d)
		inv := reciprocal(d)
		nibble := func(v float32) byte { return min(15, byte(float32(v*inv)+8.5)) }
		for j := range quantBlock / 2 {
			dst = append(dst, nibble(row[j])|nibble(row[j+quantBlock/2])<<4)
		}
	}
	return dst
}

func reciprocal(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// encodeBF16 keeps the upper half of each float32, rounded to nearest, ties to even.
func encodeBF16(dst []byte, row []float32) []byte {
	for _, v := range row {
		bits := math.Float32bits(v)
		if v != v { // rounding could carry a NaN's payload into infinity
			bits |= 1 << 22
		} else {
			bits += 0x7fff + bits>>16&1
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(bits>>16))
	}
	return dst
}

// peak returns the element of largest magnitude, with its sign.
func peak(row []float32) (m float32) {
	var amax float32
	for _, v := range row {
		if a := max(v, -v); a > amax {
			amax, m = a, v
		}
	}
	return m
}

// round is x rounded to the nearest integer and held in lo … hi.
func round(x float32, lo, hi int) int {
	return min(max(int(math.RoundToEven(float64(x))), lo), hi)
}

// encodeQ5_0: per block a half-precision scale d = m / -16, m as in Q4_0, then 32 bits, the fifth of each element, then
// 16 bytes of the lower four as in Q4_0: an element is (q - 16) · d.
func encodeQ5_0(dst []byte, row []float32) []byte {
	for ; len(row) > 0; row = row[quantBlock:] {
		d := peak(row[:quantBlock]) / -16
		dst = appendHalf(dst, d)
		inv := reciprocal(d)
		var fifth uint32
		var low [quantBlock / 2]byte
		for j, v := range row[:quantBlock] {
			q := round(v*inv, -16, 15) + 16
			fifth |= uint32(q>>4) << j
			low[j%16] |= byte(q&15) << (j / 16 * 4)
		}
		dst = binary.LittleEndian.AppendUint32(dst, fifth)
		dst = append(dst, low[:]...)
	}
	return dst
}

// levelsIQ4NL are the sixteen values an element of IQ4_NL can have, in scales: ggml's kvalues_iq4nl.
var levelsIQ4NL = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// nearestIQ4NL is the level nearest to each integer from -128 on.
var nearestIQ4NL = func() (table [256]byte) {
	for i := range table {
		best := math.Inf(1)
		for l, level := range levelsIQ4NL {
			if d := math.Abs(float64(i - 128 - int(level))); d < best {
				best, table[i] = d, byte(l)
			}
		}
	}
	return table
}()

// encodeIQ4NL: per block a half-precision scale d that puts the element of largest magnitude on the lowest level, then
// 16 bytes, each with the numbers of two levels, placed as in Q4_0.
func encodeIQ4NL(dst []byte, row []float32) []byte {
	for ; len(row) > 0; row = row[quantBlock:] {
		d := peak(row[:quantBlock]) / float32(levelsIQ4NL[0])
		dst = appendHalf(dst, d)
		inv := reciprocal(d)
		level := func(v float32) byte { return nearestIQ4NL[round(v*inv, -128, 127)+128] }
		for j := range quantBlock / 2 {
			dst = append(dst, level(row[j])|level(row[j+quantBlock/2])<<4)
		}
	}
	return dst
}

// A super-block of 256 elements has 8 groups of 32 in Q4_K and Q5_K, and 16 of 16 in Q6_K.
const (
	superBlock = 256
	groups     = superBlock / 32
)

// affine is a super-block of Q4_K or Q5_K: element = d·scale·q - dmin·min, with a scale and a min of six bits for each
// group of 32 and d and dmin for all.
type affine struct {
	d, dmin    float32
	scale, min [groups]byte
	q          [superBlock]byte
}

// fit makes q run from 0 to top. Groups that are nowhere negative have no min, as it can only be subtracted.
func (a *affine) fit(row []float32, top int) {
	var scale, least [groups]float32
	var most, deepest float32
	for g := range groups {
		var lo, hi float32
		for _, v := range row[32*g : 32*g+32] {
			lo, hi = min(lo, v), max(hi, v)
		}
		scale[g], least[g] = (hi-lo)/float32(top), -lo
		most, deepest = max(most, scale[g]), max(deepest, least[g])
	}
	a.d, a.dmin = most/63, deepest/63
	for g := range groups {
		a.scale[g] = byte(round(scale[g]*reciprocal(a.d), 0, 63))
		a.min[g] = byte(round(least[g]*reciprocal(a.dmin), 0, 63))
		step, shift := reciprocal(a.d*float32(a.scale[g])), a.dmin*float32(a.min[g])
		for j, v := range row[32*g : 32*g+32] {
			a.q[32*g+j] = byte(round((v+shift)*step, 0, top))
		}
	}
}

// appendHead writes d, dmin and the twelve bytes of scales and mins: groups 0 … 3 have theirs in the lower six bits of
// bytes 0 … 3 and 4 … 7; those of groups 4 … 7 are cut: four bits of both in bytes 8 … 11, the upper two in what is
// left of the first eight.
func (a *affine) appendHead(dst []byte) []byte {
	dst = appendHalf(appendHalf(dst, a.d), a.dmin)
	var packed [12]byte
	for g := range 4 {
		packed[g] = a.scale[g] | a.scale[g+4]>>4<<6
		packed[g+4] = a.min[g] | a.min[g+4]>>4<<6
		packed[g+8] = a.scale[g+4]&15 | a.min[g+4]&15<<4
	}
	return append(dst, packed[:]...)
}

// appendNibbles writes the lower four bits: groups in pairs, the first of a pair in the lower half of 32 bytes and the
// second in the upper.
func (a *affine) appendNibbles(dst []byte) []byte {
	for pair := 0; pair < superBlock; pair += 64 {
		for j := range 32 {
			dst = append(dst, a.q[pair+j]&15|a.q[pair+32+j]<<4)
		}
	}
	return dst
}

func encodeQ4K(dst []byte, row []float32) []byte {
	var a affine
	for ; len(row) > 0; row = row[superBlock:] {
		a.fit(row[:superBlock], 15)
		dst = a.appendNibbles(a.appendHead(dst))
	}
	return dst
}

// encodeQ5K has the fifth bits between head and nibbles: bit g of byte j is that of element j of group g.
func encodeQ5K(dst []byte, row []float32) []byte {
	var a affine
	for ; len(row) > 0; row = row[superBlock:] {
		a.fit(row[:superBlock], 31)
		dst = a.appendHead(dst)
		var fifth [32]byte
		for i, q := range a.q {
			fifth[i%32] |= q >> 4 << (i / 32)
		}
		dst = a.appendNibbles(append(dst, fifth[:]...))
	}
	return dst
}

// encodeQ6K: element = d·scale·(q - 32), with a signed scale of eight bits for each group of 16. Each half of the
// super-block has 64 bytes of the lower four bits, elements 0 … 63 below 64 … 127; behind those of both halves come 32
// bytes of the upper two for each, element 32·k + j in bits 2k of byte j; then the scales, then d.
func encodeQ6K(dst []byte, row []float32) []byte {
	for ; len(row) > 0; row = row[superBlock:] {
		var scale [16]float32
		for g := range scale {
			scale[g] = peak(row[16*g:16*g+16]) / -32
		}
		d := peak(scale[:]) / -127
		inv := reciprocal(d)
		var low [128]byte
		var high [64]byte
		var scales [16]byte
		for g := range scale {
			s := round(scale[g]*inv, -127, 127)
			scales[g] = byte(int8(s))
			step := reciprocal(d * float32(s))
			for i := 16 * g; i < 16*g+16; i++ {
				q := byte(round(row[i]*step, -32, 31) + 32)
				half, at := i/128, i%128
				low[64*half+at%64] |= q & 15 << (at / 64 * 4)
				high[32*half+at%32] |= q >> 4 << (at / 32 * 2)
			}
		}
		dst = append(append(append(dst, low[:]...), high[:]...), scales[:]...)
		dst = appendHalf(dst, d)
	}
	return dst
}
