package gguffile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// data is a tensor's data in memory, written in pieces.
type data []byte

func (d data) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for part := range bytesInPieces(d, 1000) {
		n, err := w.Write(part)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func bytesInPieces(b []byte, size int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

func write(t testing.TB, kvs []gguffile.KV, tensors []gguffile.Tensor) ([]byte, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "m.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := gguffile.Write(f, kvs, tensors); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return b, nil
}

// value draws a value of any type that a file can hold.
func value(rng *rand.Rand) any {
	text := func() string {
		b := make([]byte, rng.IntN(20))
		for i := range b {
			b[i] = byte(rng.Uint32()) // texts need not be UTF-8
		}
		return string(b)
	}
	n := rng.IntN(40)
	switch rng.IntN(24) {
	case 0:
		return uint8(rng.Uint32())
	case 1:
		return int8(rng.Uint32())
	case 2:
		return uint16(rng.Uint32())
	case 3:
		return int16(rng.Uint32())
	case 4:
		return rng.Uint32()
	case 5:
		return int32(rng.Uint32())
	case 6:
		return rng.Float32()
	case 7:
		return rng.IntN(2) == 0
	case 8:
		return text()
	case 9:
		return rng.Uint64()
	case 10:
		return int64(rng.Uint64())
	case 11:
		return rng.NormFloat64()
	case 12:
		return list(n, func() uint8 { return uint8(rng.Uint32()) })
	case 13:
		return list(n, func() int8 { return int8(rng.Uint32()) })
	case 14:
		return list(n, func() uint16 { return uint16(rng.Uint32()) })
	case 15:
		return list(n, func() int16 { return int16(rng.Uint32()) })
	case 16:
		return list(n, rng.Uint32)
	case 17:
		return list(n, func() int32 { return int32(rng.Uint32()) })
	case 18:
		return list(n, rng.Float32)
	case 19:
		return list(n, func() bool { return rng.IntN(2) == 0 })
	case 20:
		return list(n, text)
	case 21:
		return list(n, rng.Uint64)
	case 22:
		return list(n, func() int64 { return int64(rng.Uint64()) })
	default:
		return list(n, rng.NormFloat64)
	}
}

func list[T any](n int, draw func() T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = draw()
	}
	return all
}

// random draws a file: pairs of every type, tensors of every type of ggml, any alignment.
func random(seed uint64) (kvs []gguffile.KV, tensors []gguffile.Tensor, align int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	kvs = append(kvs, gguffile.KV{Key: "general.architecture", Value: "llama"})
	align = 32
	if rng.IntN(2) == 0 {
		align = 8 << rng.IntN(8)
		kvs = append(kvs, gguffile.KV{Key: "general.alignment", Value: uint32(align)})
	}
	for i := range rng.IntN(30) {
		kvs = append(kvs, gguffile.KV{Key: fmt.Sprintf("x.%d", i), Value: value(rng)})
	}
	for i := range rng.IntN(20) {
		t := gguffile.Tensor{Name: fmt.Sprintf("t%d", i)}
		var typ gguffile.Type
		for ok := false; !ok; typ, ok = gguffile.TypeOf(t.Type) {
			t.Type = rng.Uint32N(64)
		}
		t.Shape = []uint64{typ.Block * (1 + rng.Uint64N(5))}
		size := t.Shape[0] / typ.Block * typ.Bytes
		for range rng.IntN(4) {
			n := 1 + rng.Uint64N(4)
			t.Shape = append(t.Shape, n)
			size *= n
		}
		t.Data = data(list(int(size), func() byte { return byte(rng.Uint32()) }))
		tensors = append(tensors, t)
	}
	return kvs, tensors, align
}

// What Write writes, Read takes apart into the same values of the same types and the same bytes, gguf reads,
// and Write writes again to the byte.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(150) {
		kvs, tensors, align := random(seed)
		file, err := write(t, kvs, tensors)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		gotKVs, gotTensors, err := gguffile.Read(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(gotKVs, kvs) {
			t.Fatalf("seed %d: pairs\n%v\nwere read as\n%v", seed, kvs, gotKVs)
		}
		var total uint64
		for i, want := range tensors {
			got := gotTensors[i]
			var b bytes.Buffer
			if _, err := got.Data.WriteTo(&b); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got.Name != want.Name || got.Type != want.Type || !reflect.DeepEqual(got.Shape, want.Shape) ||
				!bytes.Equal(b.Bytes(), want.Data.(data)) {
				t.Fatalf("seed %d: tensor %q of type %d and shape %d was read as %q, %d, %d", seed, want.Name,
					want.Type, want.Shape, got.Name, got.Type, got.Shape)
			}
			if at := bytes.Index(file, b.Bytes()); b.Len() > 64 && at%align != 0 {
				t.Fatalf("seed %d: the data of %q are at byte %d, the alignment is %d", seed, want.Name, at, align)
			}
			total += uint64(b.Len())
		}
		if len(gotTensors) != len(tensors) {
			t.Fatalf("seed %d: %d tensors, want %d", seed, len(gotTensors), len(tensors))
		}
		info, err := gguf.Read(bytes.NewReader(file), int64(len(file)))
		if err != nil || info.Architecture != "llama" || info.Tensors != len(tensors) || info.TensorBytes != total {
			t.Fatalf("seed %d: gguf reads %d tensors of %d bytes, want %d of %d (%v)", seed, info.Tensors,
				info.TensorBytes, len(tensors), total, err)
		}
		again, err := write(t, gotKVs, gotTensors)
		if err != nil || !bytes.Equal(again, file) {
			t.Fatalf("seed %d: a file read and written again has %d bytes and differs (was %d, %v)", seed, len(again),
				len(file), err)
		}
	}
}

// failing is a tensor's data whose source breaks.
type failing struct{}

func (failing) WriteTo(io.Writer) (int64, error) { return 0, io.ErrUnexpectedEOF }

func TestWriteRefuses(t *testing.T) {
	kv := func(key string, v any) []gguffile.KV { return []gguffile.KV{{Key: key, Value: v}} }
	tensor := func(name string, typ uint32, d io.WriterTo, shape ...uint64) []gguffile.Tensor {
		return []gguffile.Tensor{{Name: name, Type: typ, Shape: shape, Data: d}}
	}
	two := tensor("same", 0, data(make([]byte, 4)), 1)
	for _, c := range []struct {
		want    string
		kvs     []gguffile.KV
		tensors []gguffile.Tensor
	}{
		{`the key "" has 0 bytes`, kv("", true), nil},
		{"has 65536 bytes, want 1 to 65535", kv(strings.Repeat("k", 1<<16), true), nil},
		{`two values have the key "k"`, append(kv("k", true), kv("k", false)...), nil},
		{"k has a value of type int, which", kv("k", 1), nil},
		{"k has a value of type [][]uint8, which", kv("k", [][]uint8{}), nil},
		{"k has a value of type <nil>, which", kv("k", nil), nil},
		{"general.alignment is int32 32, want", kv("general.alignment", int32(32)), nil},
		{"general.alignment is uint32 24, want", kv("general.alignment", uint32(24)), nil},
		{`the name of tensor "" has 0 bytes`, nil, tensor("", 0, data{}, 1)},
		{"has 64 bytes, want 1 to 63", nil, tensor(strings.Repeat("n", 64), 0, data{}, 1)},
		{`two tensors have the name "same"`, nil, append(two, two...)},
		{`tensor "t" has no data`, nil, tensor("t", 0, nil, 1)},
		{"type 31, which ggml does not have", nil, tensor("t", 31, data{}, 1)},
		{"has 0 dimensions, want 1 to 4", nil, tensor("t", 0, data{})},
		{"has 5 dimensions, want 1 to 4", nil, tensor("t", 0, data{}, 1, 1, 1, 1, 1)},
		{"impossible shape [1 0]", nil, tensor("t", 0, data{}, 1, 0)},
		{"impossible shape", nil, tensor("t", 0, data{}, 1<<40, 1<<40)},
		{"rows of 33 elements, Q8_0 wants multiples of 32", nil, tensor("t", 8, data{}, 33)},
		{`tensor "t" gave 3 bytes less than its shape has`, nil, tensor("t", 0, data(make([]byte, 5)), 2)},
		{"it gave 1 bytes more than its shape has", nil, tensor("t", 0, data(make([]byte, 9)), 2)},
	} {
		if _, err := write(t, c.kvs, c.tensors); !errors.Is(err, gguffile.ErrInvalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
	_, err := write(t, nil, tensor("t", 0, failing{}, 1))
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), `tensor "t"`) {
		t.Errorf("the source's error became %v", err)
	}
	f, err := os.Open(os.DevNull) // not open for writing
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := gguffile.Write(f, nil, nil); err == nil || errors.Is(err, gguffile.ErrInvalid) {
		t.Errorf("a file that cannot be written: %v", err)
	}
}

// A tensor that gives too much leaves its neighbour as it is.
func TestATensorStaysInItsPlace(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "m.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	good := data(bytes.Repeat([]byte{0xaa}, 128))
	err = gguffile.Write(f, nil, []gguffile.Tensor{
		{Name: "a", Shape: []uint64{32}, Data: data(bytes.Repeat([]byte{0xbb}, 256))},
		{Name: "b", Shape: []uint64{32}, Data: good},
	})
	if !errors.Is(err, gguffile.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || bytes.Contains(b, []byte{0xbb}) || !bytes.HasSuffix(b, good) {
		t.Errorf("the neighbour's data are not at the file's end (%v)", err)
	}
}

// A file cut anywhere, or with lengths beyond its end, is refused, and costs no more memory than it is long.
func TestReadRefuses(t *testing.T) {
	kvs, tensors, _ := random(7)
	file, err := write(t, kvs, tensors)
	if err != nil || len(tensors) == 0 {
		t.Fatalf("%d tensors, %v", len(tensors), err)
	}
	for n := range len(file) {
		if _, _, err := gguffile.Read(bytes.NewReader(file[:n]), int64(n)); !errors.Is(err, gguffile.ErrInvalid) {
			t.Fatalf("cut at %d of %d: %v", n, len(file), err)
		}
	}
	for want, patch := range map[string]struct {
		at int
		b  string
	}{
		`it begins with "GGML"`: {0, "GGML"},
		"its version is 1":      {4, "\x01"},
		"beyond the end":        {8, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"},
	} {
		b := bytes.Clone(file)
		copy(b[patch.at:], patch.b)
		if _, _, err := gguffile.Read(bytes.NewReader(b), int64(len(b))); !errors.Is(err, gguffile.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for seed := range uint64(3) {
		kvs, tensors, _ := random(seed)
		file, err := write(f, kvs, tensors)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		kvs, tensors, err := gguffile.Read(bytes.NewReader(b), int64(len(b)))
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > uint64(1<<20+64*len(b)) {
			t.Fatalf("%d bytes allocated for %d bytes of file", spent, len(b))
		}
		if err != nil {
			if !errors.Is(err, gguffile.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		again, err := write(t, kvs, tensors)
		if err != nil {
			return // a key twice, a name that is too long
		}
		if gotKVs, got, err := gguffile.Read(bytes.NewReader(again), int64(len(again))); err != nil ||
			len(gotKVs) != len(kvs) || len(got) != len(tensors) {
			t.Fatalf("written again: %d pairs, %d tensors, %v", len(gotKVs), len(got), err)
		}
	})
}
