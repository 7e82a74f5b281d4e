package gpucheck

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// Decoder decodes whole blocks of weights of a type (of enum ggml_type): as many as to has elements.
type Decoder func(typ uint32, from []byte, to []float32) error

// A processor's products with quantised weights round the other operand, the activations, to eight bits, and those with
// F16 weights to eleven; many devices round them otherwise or not at all. With F32 weights nothing is rounded.

// rounded reports whether products with weights of t round activations.
func rounded(t *gguffile.Tensor) bool {
	typ, _ := gguffile.TypeOf(t.Type)
	return !slices.Contains([]string{"F32", "F64", "I8", "I16", "I32", "I64"}, typ.Name)
}

// hasRounded reports whether a model has weights whose products round activations.
func hasRounded(path string) (bool, error) {
	in, _, tensors, err := open(path)
	if err != nil {
		return false, err
	}
	in.Close()
	return slices.ContainsFunc(tensors, func(t gguffile.Tensor) bool { return rounded(&t) }), nil
}

// open reads the header of a model, whose tensors' data are read from the file later.
func open(path string) (*os.File, []gguffile.KV, []gguffile.Tensor, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	st, err := in.Stat()
	if err != nil {
		in.Close()
		return nil, nil, nil, err
	}
	kvs, tensors, err := gguffile.Read(in, st.Size())
	if err != nil {
		in.Close()
		return nil, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return in, kvs, tensors, nil
}

// writeFloats copies a model to dst with all its weights in F32: what its own weights stand for, exactly. It records
// the bytes of the copy and the tensors that changed. After an error there is no dst.
func writeFloats(ctx context.Context, path, dst string, decode Decoder, v values) (err error) {
	in, kvs, tensors, err := open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	for i := range kvs {
		switch key := kvs[i].Key; {
		case key == "general.file_type":
			kvs[i].Value = uint32(0) // LLAMA_FTYPE_ALL_F32
		case strings.HasPrefix(key, "split."):
			return fmt.Errorf("%s is one of several files of a model: --reference own compares with it as it is", path)
		}
	}
	var bytes uint64
	changed := 0
	for i := range tensors {
		t := &tensors[i]
		if rounded(t) {
			t.Data = &floats{ctx: ctx, decode: decode, typ: t.Type, from: t.Data}
			t.Type = 0 // F32
			changed++
		}
		n, err := t.Size()
		if err != nil {
			return err
		}
		bytes += n
	}
	v["bytes"], v["tensors"] = bytes, changed
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(dst)
			err = fmt.Errorf("%d bytes of F32 weights in %s (TMPDIR names another folder; --reference own needs "+
				"none): %w", bytes, dst, err)
		}
	}()
	if err := gguffile.Write(out, kvs, tensors); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// floats are a tensor's data in F32.
type floats struct {
	ctx    context.Context
	decode Decoder
	typ    uint32
	from   io.WriterTo

	to      io.Writer
	written int64
	kept    []byte    // less than a block
	values  []float32 // scratch
	bytes   []byte    // scratch
}

func (f *floats) WriteTo(w io.Writer) (int64, error) {
	f.to = w
	_, err := f.from.WriteTo(f)
	return f.written, err
}

// Write decodes the whole blocks of what came so far.
func (f *floats) Write(b []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	t, _ := gguffile.TypeOf(f.typ)
	f.kept = append(f.kept, b...)
	blocks := len(f.kept) / int(t.Bytes)
	n := blocks * int(t.Block)
	f.values = slices.Grow(f.values[:0], n)[:n]
	if err := f.decode(f.typ, f.kept[:blocks*int(t.Bytes)], f.values); err != nil {
		return 0, err
	}
	f.kept = slices.Delete(f.kept, 0, blocks*int(t.Bytes))
	f.bytes = f.bytes[:0]
	for _, x := range f.values {
		f.bytes = binary.LittleEndian.AppendUint32(f.bytes, math.Float32bits(x))
	}
	m, err := f.to.Write(f.bytes)
	f.written += int64(m)
	return len(b), err
}
