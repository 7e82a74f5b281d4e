package gguffile

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Read takes a file of size bytes apart: its pairs with the types that they have in the file, and its tensors, in the
// file's order. The tensors' Data read from r when they are written, so r must stay open until then. Read checks every
// length against the rest of the file before it allocates. The error wraps ErrInvalid.
func Read(r io.ReaderAt, size int64) ([]KV, []Tensor, error) {
	d := &decoder{in: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 64<<10), size: size}
	if magic := string(d.bytes(4)); d.err == nil && magic != "GGUF" {
		return nil, nil, invalid("it begins with %q", magic)
	}
	if v := d.u32(); d.err == nil && v != 2 && v != 3 {
		return nil, nil, invalid("its version is %d, want 2 or 3", v)
	}
	tensors, pairs := d.u64(), d.u64()
	var kvs []KV
	for i := uint64(0); i < pairs && d.err == nil; i++ {
		kvs = append(kvs, KV{d.str(), d.value(valueType(d.u32()))})
	}
	var list []Tensor
	var offsets []uint64
	for i := uint64(0); i < tensors && d.err == nil; i++ {
		t := Tensor{Name: d.str()}
		dims := d.u32()
		if dims > maxDims {
			d.fail("tensor %q has %d dimensions", t.Name, dims)
		}
		for range min(dims, maxDims) {
			t.Shape = append(t.Shape, d.u64())
		}
		t.Type = d.u32()
		offsets = append(offsets, d.u64())
		list = append(list, t)
	}
	if d.err != nil {
		return nil, nil, d.err
	}
	align, err := alignment(kvs)
	if err != nil {
		return nil, nil, err
	}
	start := aligned(uint64(d.at), align)
	for i := range list {
		n, err := list[i].Size()
		if err != nil {
			return nil, nil, err
		}
		if left := uint64(size) - min(start, uint64(size)); offsets[i] > left || n > left-offsets[i] {
			return nil, nil, invalid("the data of tensor %q go beyond the end of the file", list[i].Name)
		}
		list[i].Data = section{r, int64(start + offsets[i]), int64(n)}
	}
	return kvs, list, nil
}

// section is a tensor's data in another file.
type section struct {
	r     io.ReaderAt
	at, n int64
}

func (s section) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, io.NewSectionReader(s.r, s.at, s.n))
}

// decoder reads a header from start to end. After the first error, reads return zero values.
type decoder struct {
	in       *bufio.Reader
	at, size int64 // bytes read, of the file
	err      error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = invalid(format+" (at byte %d of %d)", append(args, d.at, d.size)...)
	}
}

// has reports whether n elements of width bytes can follow.
func (d *decoder) has(n uint64, width int) bool {
	if d.err == nil && n > uint64(d.size-d.at)/uint64(width) {
		d.fail("%d bytes × %d go beyond the end of the file", n, width)
	}
	return d.err == nil
}

// bytes returns the next n bytes; after an error, as many zeros where n is small.
func (d *decoder) bytes(n uint64) []byte {
	if !d.has(n, 1) {
		return make([]byte, min(n, 8))
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.in, b); err != nil {
		d.fail("%v", err)
	}
	d.at += int64(n)
	return b
}

func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.bytes(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.bytes(8)) }

func (d *decoder) str() string {
	b := d.bytes(d.u64())
	if d.err != nil {
		return ""
	}
	return string(b)
}

func (d *decoder) value(t valueType) any {
	switch t {
	case typeUint8:
		return one[uint8](d)
	case typeInt8:
		return one[int8](d)
	case typeUint16:
		return one[uint16](d)
	case typeInt16:
		return one[int16](d)
	case typeUint32:
		return one[uint32](d)
	case typeInt32:
		return one[int32](d)
	case typeFloat32:
		return one[float32](d)
	case typeBool:
		return one[bool](d)
	case typeString:
		return d.str()
	case typeArray:
		return d.array(valueType(d.u32()), d.u64())
	case typeUint64:
		return one[uint64](d)
	case typeInt64:
		return one[int64](d)
	case typeFloat64:
		return one[float64](d)
	}
	d.fail("type %d of a value is unknown", t)
	return nil
}

func (d *decoder) array(elem valueType, n uint64) any {
	switch elem {
	case typeUint8:
		return many[uint8](d, n)
	case typeInt8:
		return many[int8](d, n)
	case typeUint16:
		return many[uint16](d, n)
	case typeInt16:
		return many[int16](d, n)
	case typeUint32:
		return many[uint32](d, n)
	case typeInt32:
		return many[int32](d, n)
	case typeFloat32:
		return many[float32](d, n)
	case typeBool:
		return many[bool](d, n)
	case typeString:
		if !d.has(n, 8) { // of its length alone
			return nil
		}
		list := make([]string, n)
		for i := range list {
			list[i] = d.str()
		}
		return list
	case typeUint64:
		return many[uint64](d, n)
	case typeInt64:
		return many[int64](d, n)
	case typeFloat64:
		return many[float64](d, n)
	}
	d.fail("type %d of a list's elements is unknown", elem)
	return nil
}

type fixed interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | float32 | bool | uint64 | int64 | float64
}

func one[T fixed](d *decoder) (v T) {
	binary.Decode(d.bytes(uint64(binary.Size(v))), binary.LittleEndian, &v) // the bytes are as many as it takes
	return v
}

func many[T fixed](d *decoder, n uint64) []T {
	var v T
	width := binary.Size(v)
	if !d.has(n, width) {
		return nil
	}
	list := make([]T, n)
	binary.Decode(d.bytes(n*uint64(width)), binary.LittleEndian, list) // the bytes are as many as it takes
	return list
}
