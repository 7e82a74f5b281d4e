package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Limits of a header. Real files are far below: the largest vocabularies have about 260,000 tokens and half a million
// merges, and a header has a few tens of megabytes.
const (
	maxHeaderBytes = 512 << 20
	maxStringBytes = 16 << 20
	maxArrayLen    = 8 << 20
	maxPairs       = 1 << 16
	maxTensors     = 1 << 20
	maxKeyBytes    = 64 << 10
	maxDims        = 4 // GGML_MAX_DIMS
)

// reader decodes the header from start to end. It checks every length against the rest of the file before it reads or
// allocates. After the first error, reads return zero values.
type reader struct {
	in   *bufio.Reader
	at   int64 // bytes consumed
	size int64 // bytes of the file
	err  error
	buf  [8]byte

	lastArray arrayType // of the array that was read last
}

func newReader(r io.Reader, size int64) *reader {
	return &reader{in: bufio.NewReaderSize(r, 64<<10), size: size}
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s (at byte %d of %d)", ErrInvalid, fmt.Sprintf(format, args...), r.at, r.size)
	}
}

// has reports whether n more bytes can follow, and records an error if not.
func (r *reader) has(n uint64, what string) bool {
	if r.err != nil {
		return false
	}
	if left := min(r.size, maxHeaderBytes) - r.at; left < 0 || n > uint64(left) {
		if r.size >= maxHeaderBytes {
			r.fail("%s of %d bytes goes beyond the %d MiB a header may have", what, n, maxHeaderBytes>>20)
		} else {
			r.fail("%s of %d bytes goes beyond the end of the file: it is truncated or damaged; download it again",
				what, n)
		}
		return false
	}
	return true
}

func (r *reader) fixed(n int, what string) []byte {
	b := r.buf[:n]
	clear(b)
	if !r.has(uint64(n), what) {
		return b
	}
	if _, err := io.ReadFull(r.in, b); err != nil {
		r.fail("read %s: %v", what, err)
		clear(b)
	}
	r.at += int64(n)
	return b
}

func (r *reader) u32(what string) uint32 { return binary.LittleEndian.Uint32(r.fixed(4, what)) }
func (r *reader) u64(what string) uint64 { return binary.LittleEndian.Uint64(r.fixed(8, what)) }

// strLen reads the length of a string.
func (r *reader) strLen(what string, limit uint64) uint64 {
	n := r.u64(what)
	if n > limit {
		r.fail("%s claims %d bytes, the limit is %d", what, n, limit)
	}
	return n
}

func (r *reader) str(what string, limit uint64) string {
	n := r.strLen(what, limit)
	if !r.has(n, what) {
		return ""
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.in, b); err != nil {
		r.fail("read %s: %v", what, err)
		return ""
	}
	r.at += int64(n)
	return string(b)
}

func (r *reader) skip(n uint64, what string) {
	if !r.has(n, what) {
		return
	}
	if _, err := r.in.Discard(int(n)); err != nil {
		r.fail("read %s: %v", what, err)
	}
	r.at += int64(n)
}

// valueType is gguf_type, the type of a stored value.
type valueType uint32

const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// width returns a scalar's size in bytes, 0 for strings, arrays and unknown types.
func (t valueType) width() int {
	switch t {
	case typeUint8, typeInt8, typeBool:
		return 1
	case typeUint16, typeInt16:
		return 2
	case typeUint32, typeInt32, typeFloat32:
		return 4
	case typeUint64, typeInt64, typeFloat64:
		return 8
	}
	return 0
}

// value reads one value: integers as int64 (uint64 above its range as MaxInt64), floats as float64, bool, string,
// arrays as []int64, []float64, []bool or []string. Without keep it skips an array's elements and returns nil.
func (r *reader) value(t valueType, what string, keep bool) any {
	switch t {
	case typeString:
		return r.str(what, maxStringBytes)
	case typeArray:
		return r.array(what, keep)
	}
	if t.width() == 0 {
		r.fail("%s has unknown type %d", what, t)
		return nil
	}
	return scalar(t, r.fixed(t.width(), what))
}

func scalar(t valueType, b []byte) any {
	switch t {
	case typeUint8:
		return int64(b[0])
	case typeInt8:
		return int64(int8(b[0]))
	case typeBool:
		return b[0] != 0
	case typeUint16:
		return int64(binary.LittleEndian.Uint16(b))
	case typeInt16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case typeUint32:
		return int64(binary.LittleEndian.Uint32(b))
	case typeInt32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case typeFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case typeUint64:
		return int64(min(binary.LittleEndian.Uint64(b), math.MaxInt64))
	case typeInt64:
		return int64(binary.LittleEndian.Uint64(b))
	default: // typeFloat64
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
}

func (r *reader) array(what string, keep bool) any {
	t, n := valueType(r.u32("element type of "+what)), r.u64("length of "+what)
	r.lastArray = arrayType{t, n}
	if r.err == nil && n > maxArrayLen {
		r.fail("%s claims %d elements, the limit is %d", what, n, maxArrayLen)
	}
	if r.err != nil {
		return nil
	}
	if t == typeString {
		// A string takes at least its eight length bytes: refuse an impossible count before the loop.
		if !r.has(n*8, what) {
			return nil
		}
		if !keep {
			for range n {
				r.skip(r.strLen(what, maxStringBytes), what)
				if r.err != nil {
					break
				}
			}
			return nil
		}
		var list []string
		for range n {
			s := r.str(what, maxStringBytes)
			if r.err != nil {
				return nil
			}
			list = append(list, s)
		}
		return list
	}
	w := t.width()
	if w == 0 {
		r.fail("%s is an array of type %d, which GGUF does not allow", what, t)
		return nil
	}
	if !keep {
		r.skip(n*uint64(w), what)
		return nil
	}
	if !r.has(n*uint64(w), what) {
		return nil
	}
	return r.numbers(t, int(n), what)
}

func (r *reader) numbers(t valueType, n int, what string) any {
	var ints []int64
	var floats []float64
	var bools []bool
	for range n {
		v := scalar(t, r.fixed(t.width(), what))
		if r.err != nil {
			return nil
		}
		switch v := v.(type) {
		case int64:
			ints = append(ints, v)
		case float64:
			floats = append(floats, v)
		case bool:
			bools = append(bools, v)
		}
	}
	switch {
	case floats != nil:
		return floats
	case bools != nil:
		return bools
	}
	return ints
}
