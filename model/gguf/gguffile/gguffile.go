// Package gguffile writes GGUF files, and reads their parts back so that a file can be written again with other
// metadata.
//
// A GGUF file is key-value pairs, one record per tensor, and the tensors' data, each at a multiple of the alignment.
// The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// The package knows the container alone. What a model's metadata means, and which of it is safe to hand to the engine,
// is package gguf's.
package gguffile

import (
	"errors"
	"fmt"
	"io"
)

// ErrInvalid: Write cannot make a file of what it was given, or Read cannot take the file apart; the text says why.
var ErrInvalid = errors.New("not a GGUF file")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// KV is one key-value pair. Value is a bool, a string, an integer of a sized type (int8 to int64, uint8 to uint64), a
// float32 or float64, or a slice of one of these.
type KV struct {
	Key   string
	Value any
}

// Tensor is one tensor of a file.
type Tensor struct {
	Name  string
	Type  uint32   // of enum ggml_type
	Shape []uint64 // row length first, one to four dimensions
	// Data writes the tensor in its stored form, exactly Size bytes. Write calls it once, in a separate goroutine.
	Data io.WriterTo
}

// Size returns the bytes of the tensor's data without padding. The error wraps ErrInvalid: an unknown type, a shape
// that is empty or too large, or rows that are no whole blocks.
func (t *Tensor) Size() (uint64, error) {
	typ, ok := TypeOf(t.Type)
	switch {
	case !ok:
		return 0, invalid("tensor %q has type %d, which ggml does not have", t.Name, t.Type)
	case len(t.Shape) == 0 || len(t.Shape) > maxDims:
		return 0, invalid("tensor %q has %d dimensions, want 1 to %d", t.Name, len(t.Shape), maxDims)
	}
	elements := uint64(1)
	for _, n := range t.Shape {
		if n == 0 || n > maxElements/elements {
			return 0, invalid("tensor %q has the impossible shape %d", t.Name, t.Shape)
		}
		elements *= n
	}
	if t.Shape[0]%typ.Block != 0 {
		return 0, invalid("tensor %q has rows of %d elements, %s wants multiples of %d", t.Name, t.Shape[0], typ.Name,
			typ.Block)
	}
	return elements / typ.Block * typ.Bytes, nil
}

const (
	version          = 3
	defaultAlignment = 32
	alignmentKey     = "general.alignment"
	maxDims          = 4  // GGML_MAX_DIMS
	maxName          = 63 // GGML_MAX_NAME with its final zero is 64
	maxKey           = 1<<16 - 1
	maxElements      = 1 << 48
)

// alignment returns the multiple at which tensors' data begin.
func alignment(kvs []KV) (uint64, error) {
	for _, kv := range kvs {
		if kv.Key != alignmentKey {
			continue
		}
		n, ok := kv.Value.(uint32)
		if !ok || n < 8 || n > 1<<20 || n&(n-1) != 0 {
			return 0, invalid("%s is %T %v, want a uint32 that is a power of two from 8 to 1048576", alignmentKey,
				kv.Value, kv.Value)
		}
		return uint64(n), nil
	}
	return defaultAlignment, nil
}

// aligned rounds n up to a multiple of align, a power of two.
func aligned(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }
