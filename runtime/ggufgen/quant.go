package ggufgen

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// encoder appends the stored form of row to dst. len(row) is a multiple of the type's block.
type encoder func(dst []byte, row []float32) []byte

// storage is one ggml tensor type: its number in the file, how many elements make a block of how many bytes, and
// how a row is encoded. Numbers and layouts: ggml.h (enum ggml_type) and ggml-common.h (block_q8_0, block_q4_0).
type storage struct {
	kind       uint32 // enum ggml_type
	ftype      uint32 // enum llama_ftype: what a file mostly made of it is called
	block      int    // elements
	blockBytes int
	encode     encoder
}

var storages = map[Type]storage{
	F32:  {kind: 0, ftype: 0, block: 1, blockBytes: 4, encode: encodeF32},
	F16:  {kind: 1, ftype: 1, block: 1, blockBytes: 2, encode: encodeF16},
	Q4_0: {kind: 2, ftype: 2, block: quantBlock, blockBytes: 18, encode: encodeQ4_0},
	Q8_0: {kind: 8, ftype: 7, block: quantBlock, blockBytes: 34, encode: encodeQ8_0},
}

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
		var amax, m float32
		for _, v := range row[:quantBlock] {
			if a := max(v, -v); a > amax {
				amax, m = a, v
			}
		}
		d := m / -8
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
