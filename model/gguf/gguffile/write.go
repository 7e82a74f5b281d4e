package gguffile

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
)

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

// Write writes a file of these pairs and tensors, in the order given, to f, which must be empty. The tensors' data are
// written in parallel at their offsets, so memory stays at what their Data hold at a time. After an error, which wraps
// ErrInvalid or is that of f or of a Data, the file is not complete. Write does not sync or close f.
func Write(f *os.File, kvs []KV, tensors []Tensor) error {
	align, err := alignment(kvs)
	if err != nil {
		return err
	}
	header, err := appendHeader(nil, kvs, len(tensors))
	if err != nil {
		return err
	}
	offsets, sizes := make([]uint64, len(tensors)), make([]uint64, len(tensors))
	seen, end := map[string]bool{}, uint64(0)
	for i := range tensors {
		t := &tensors[i]
		switch {
		case t.Name == "" || len(t.Name) > maxName:
			return invalid("the name of tensor %q has %d bytes, want 1 to %d", t.Name, len(t.Name), maxName)
		case seen[t.Name]:
			return invalid("two tensors have the name %q", t.Name)
		case t.Data == nil:
			return invalid("tensor %q has no data", t.Name)
		}
		seen[t.Name] = true
		if sizes[i], err = t.Size(); err != nil {
			return err
		}
		offsets[i] = end
		end = aligned(end+sizes[i], align)
		header = appendString(header, t.Name)
		header = binary.LittleEndian.AppendUint32(header, uint32(len(t.Shape)))
		for _, n := range t.Shape {
			header = binary.LittleEndian.AppendUint64(header, n)
		}
		header = binary.LittleEndian.AppendUint32(header, t.Type)
		header = binary.LittleEndian.AppendUint64(header, offsets[i])
	}
	if len(tensors) > 0 {
		header = append(header, make([]byte, aligned(uint64(len(header)), align)-uint64(len(header)))...)
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range tensors {
		g.Go(func() error {
			w := &window{f: f, at: int64(len(header)) + int64(offsets[i]), left: sizes[i]}
			_, err := tensors[i].Data.WriteTo(w)
			switch {
			case err != nil:
				return fmt.Errorf("tensor %q: %w", tensors[i].Name, err)
			case w.left > 0:
				return invalid("tensor %q gave %d bytes less than its shape has", tensors[i].Name, w.left)
			}
			return nil
		})
	}
	return g.Wait()
}

// window is the part of a file that one tensor may write. A tensor that writes more would damage the next one.
type window struct {
	f    io.WriterAt
	at   int64
	left uint64
}

func (w *window) Write(b []byte) (int, error) {
	if uint64(len(b)) > w.left {
		return 0, invalid("it gave %d bytes more than its shape has", uint64(len(b))-w.left)
	}
	n, err := w.f.WriteAt(b, w.at)
	w.at += int64(n)
	w.left -= uint64(n)
	return n, err
}

// appendHeader appends the part of the file before the tensors' records.
func appendHeader(b []byte, kvs []KV, tensors int) ([]byte, error) {
	b = append(b, "GGUF"...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint64(b, uint64(tensors))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(kvs)))
	seen := map[string]bool{}
	for _, kv := range kvs {
		switch {
		case kv.Key == "" || len(kv.Key) > maxKey:
			return nil, invalid("the key %.40q has %d bytes, want 1 to %d", kv.Key, len(kv.Key), maxKey)
		case seen[kv.Key]:
			return nil, invalid("two values have the key %q", kv.Key)
		}
		seen[kv.Key] = true
		t, elem, n := typeOf(kv.Value)
		if t == typeArray && elem == typeArray || t == noType {
			return nil, invalid("%s has a value of type %T, which GGUF does not have", kv.Key, kv.Value)
		}
		b = appendString(b, kv.Key)
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
		if t == typeArray {
			b = binary.LittleEndian.AppendUint32(b, uint32(elem))
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		switch v := kv.Value.(type) {
		case string:
			b = appendString(b, v)
		case []string:
			for _, s := range v {
				b = appendString(b, s)
			}
		default:
			var err error
			// typeOf has left only types of fixed size.
			if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
				return nil, fmt.Errorf("%s: %w", kv.Key, err)
			}
		}
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// noType is the type of a value that a file cannot hold.
const noType valueType = 1 << 31

// typeOf returns the type of a value; of a slice, also that of its elements and their number.
func typeOf(v any) (t, elem valueType, n int) {
	switch v := v.(type) {
	case uint8:
		return typeUint8, 0, 0
	case int8:
		return typeInt8, 0, 0
	case uint16:
		return typeUint16, 0, 0
	case int16:
		return typeInt16, 0, 0
	case uint32:
		return typeUint32, 0, 0
	case int32:
		return typeInt32, 0, 0
	case float32:
		return typeFloat32, 0, 0
	case bool:
		return typeBool, 0, 0
	case string:
		return typeString, 0, 0
	case uint64:
		return typeUint64, 0, 0
	case int64:
		return typeInt64, 0, 0
	case float64:
		return typeFloat64, 0, 0
	case []uint8:
		return typeArray, typeUint8, len(v)
	case []int8:
		return typeArray, typeInt8, len(v)
	case []uint16:
		return typeArray, typeUint16, len(v)
	case []int16:
		return typeArray, typeInt16, len(v)
	case []uint32:
		return typeArray, typeUint32, len(v)
	case []int32:
		return typeArray, typeInt32, len(v)
	case []float32:
		return typeArray, typeFloat32, len(v)
	case []bool:
		return typeArray, typeBool, len(v)
	case []string:
		return typeArray, typeString, len(v)
	case []uint64:
		return typeArray, typeUint64, len(v)
	case []int64:
		return typeArray, typeInt64, len(v)
	case []float64:
		return typeArray, typeFloat64, len(v)
	}
	return noType, 0, 0
}
