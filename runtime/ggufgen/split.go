package ggufgen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

// Split writes the model in the file src, which is held in memory, as count files STEM-00001-of-0000N.gguf in dir, as
// llama.cpp's gguf-split does: the first has the metadata, every file has a share of the tensors. It returns their
// paths.
func Split(src, dir, stem string, count int) ([]string, error) {
	data, err := os.ReadFile(src)
	if err != nil {
		return nil, err
	}
	m, err := parseRaw(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	if count < 1 || count > len(m.tensors) {
		return nil, fmt.Errorf("split %s into %d files: it has %d tensors", src, count, len(m.tensors))
	}
	var paths []string
	for no := range count {
		path := filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%05d.gguf", stem, no+1, count))
		from, to := len(m.tensors)*no/count, len(m.tensors)*(no+1)/count
		if err := os.WriteFile(path, m.part(no, count, m.tensors[from:to]), 0o644); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// rawModel is a GGUF file, taken apart but not understood.
type rawModel struct {
	pairs   uint64
	kv      []byte
	tensors []rawTensor
}

type rawTensor struct {
	record []byte // of the header, without the offset
	data   []byte
}

// alignment of tensor data in the files that Write makes.
const alignment = 32

// rawReader reads a file that this package has written; another one makes it panic.
type rawReader struct {
	b  []byte
	at int
}

func (r *rawReader) u32() uint32 { r.at += 4; return binary.LittleEndian.Uint32(r.b[r.at-4:]) }
func (r *rawReader) u64() uint64 { r.at += 8; return binary.LittleEndian.Uint64(r.b[r.at-8:]) }
func (r *rawReader) skipString() { r.at += int(r.u64()) }

// skipValue skips a value of a type of enum gguf_type.
func (r *rawReader) skipValue(kind uint32) {
	widths := map[uint32]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
	switch kind {
	case 8:
		r.skipString()
	case 9:
		elem, n := r.u32(), r.u64()
		for range n {
			r.skipValue(elem)
		}
	default:
		r.at += widths[kind]
	}
}

func parseRaw(data []byte) (m *rawModel, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is not a model of ggufgen: %v", p)
		}
	}()
	r := &rawReader{b: data, at: 8} // magic and version
	tensors := r.u64()
	m = &rawModel{pairs: r.u64()}
	start := r.at
	for range m.pairs {
		r.skipString()
		r.skipValue(r.u32())
	}
	m.kv = data[start:r.at]
	var offsets []int
	for range tensors {
		start := r.at
		r.skipString()
		r.at += 8*int(r.u32()) + 4
		m.tensors = append(m.tensors, rawTensor{record: data[start:r.at]})
		offsets = append(offsets, int(r.u64()))
	}
	base := (r.at + alignment - 1) / alignment * alignment
	for i := range m.tensors {
		end := len(data) - base
		for _, o := range offsets {
			if o > offsets[i] {
				end = min(end, o)
			}
		}
		m.tensors[i].data = data[base+offsets[i] : base+end]
	}
	return m, nil
}

// part is file no of count, with these tensors.
func (m *rawModel) part(no, count int, tensors []rawTensor) []byte {
	var b bytes.Buffer
	put := func(v ...any) {
		for _, x := range v {
			if s, ok := x.(string); ok {
				binary.Write(&b, binary.LittleEndian, uint64(len(s))) // to memory: it cannot fail
				b.WriteString(s)
				continue
			}
			binary.Write(&b, binary.LittleEndian, x)
		}
	}
	b.WriteString("GGUF")
	pairs := uint64(3)
	if no == 0 {
		pairs += m.pairs
	}
	put(uint32(3), uint64(len(tensors)), pairs)
	if no == 0 {
		b.Write(m.kv)
	}
	put("split.no", uint32(2), uint16(no), "split.count", uint32(2), uint16(count),
		"split.tensors.count", uint32(5), int32(len(m.tensors)))
	offset := 0
	for _, t := range tensors {
		b.Write(t.record)
		put(uint64(offset))
		offset += (len(t.data) + alignment - 1) / alignment * alignment
	}
	for _, t := range tensors {
		b.Write(make([]byte, -b.Len()&(alignment-1)))
		b.Write(t.data)
	}
	return b.Bytes()
}
