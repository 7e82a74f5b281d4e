// Package ggufmut damages GGUF files in ways that a checksum would find and a parser must survive: metadata and tensor
// records are changed within their types, so that most files still parse and reach the code behind the parser. For
// tests.
package ggufmut

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// Types of values, as GGUF numbers them.
const (
	u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
)

var width = [...]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// File is a parsed GGUF file.
type File struct {
	version uint32
	pairs   []pair
	tensors []tensor
	data    []byte
}

type pair struct {
	key   string
	kind  uint32
	value []byte   // of a scalar
	text  string   // of a string
	elem  uint32   // of an array
	list  []string // of an array of strings
}

type tensor struct {
	name   string
	shape  []uint64
	kind   uint32
	offset uint64
}

// Parse parses a valid file.
func Parse(b []byte) (f *File, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("ggufmut: not a sound GGUF file")
		}
	}()
	at := 4
	next := func(n int) []byte { at += n; return b[at-n : at : at] }
	n32 := func() uint32 { return binary.LittleEndian.Uint32(next(4)) }
	n64 := func() uint64 { return binary.LittleEndian.Uint64(next(8)) }
	str := func() string { return string(next(int(n64()))) }
	f = &File{version: n32()}
	tensors, pairs := n64(), n64()
	align := 32
	for range pairs {
		p := pair{key: str(), kind: n32()}
		switch p.kind {
		case text:
			p.text = str()
		case array:
			p.elem = n32()
			n := int(n64())
			if p.elem == text {
				for range n {
					p.list = append(p.list, str())
				}
			} else {
				p.value = next(n * width[p.elem])
			}
		default:
			p.value = next(width[p.kind])
		}
		if p.key == "general.alignment" {
			align = int(binary.LittleEndian.Uint32(p.value))
		}
		f.pairs = append(f.pairs, p)
	}
	for range tensors {
		t := tensor{name: str()}
		for range n32() {
			t.shape = append(t.shape, n64())
		}
		t.kind, t.offset = n32(), n64()
		f.tensors = append(f.tensors, t)
	}
	at = (at + align - 1) / align * align
	f.data = b[at:]
	return f, nil
}

// Bytes encodes the file.
func (f *File) Bytes() []byte {
	var b []byte
	le := binary.LittleEndian
	str := func(s string) { b = append(le.AppendUint64(b, uint64(len(s))), s...) }
	b = le.AppendUint32(append(b, "GGUF"...), f.version)
	b = le.AppendUint64(le.AppendUint64(b, uint64(len(f.tensors))), uint64(len(f.pairs)))
	for i := range f.pairs {
		p := &f.pairs[i]
		str(p.key)
		b = le.AppendUint32(b, p.kind)
		switch p.kind {
		case text:
			str(p.text)
		case array:
			b = le.AppendUint32(b, p.elem)
			if p.elem == text {
				b = le.AppendUint64(b, uint64(len(p.list)))
				for _, s := range p.list {
					str(s)
				}
				continue
			}
			b = append(le.AppendUint64(b, uint64(p.len())), p.value...)
		default:
			b = append(b, p.value...)
		}
	}
	for i := range f.tensors {
		t := &f.tensors[i]
		str(t.name)
		b = le.AppendUint32(b, uint32(len(t.shape)))
		for _, n := range t.shape {
			b = le.AppendUint64(b, n)
		}
		b = le.AppendUint64(le.AppendUint32(b, t.kind), t.offset)
	}
	for len(b)%32 != 0 {
		b = append(b, 0)
	}
	return append(b, f.data...)
}

// len returns the elements of an array.
func (p *pair) len() int {
	if p.elem == text {
		return len(p.list)
	}
	if int(p.elem) >= len(width) || width[p.elem] == 0 {
		return len(p.value)
	}
	return len(p.value) / width[p.elem]
}

func (f *File) clone() *File {
	c := &File{version: f.version, pairs: slices.Clone(f.pairs), tensors: slices.Clone(f.tensors), data: f.data}
	for i := range c.pairs {
		c.pairs[i].value, c.pairs[i].list = bytes.Clone(c.pairs[i].value), slices.Clone(c.pairs[i].list)
	}
	for i := range c.tensors {
		c.tensors[i].shape = slices.Clone(c.tensors[i].shape)
	}
	return c
}
