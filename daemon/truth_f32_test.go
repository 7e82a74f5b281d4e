//go:build cgo && (llama_engine || llama_system)

package daemon

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/x448/float16"
)

// withFloats copies a GGUF file with its Q8_0 tensors as float32: the same weights to the last bit.
func withFloats(t *testing.T, path string) string {
	t.Helper()
	in, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const (
		typeF32, typeQ8  = 0, 8
		kvString, kvList = 8, 9
		align            = 32
	)
	le := binary.LittleEndian
	at := 0
	u32 := func() uint32 { at += 4; return le.Uint32(in[at-4:]) }
	u64 := func() int { at += 8; return int(le.Uint64(in[at-8:])) }
	skip := func() { n := u64(); at += n } // a string
	size := map[uint32]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
	at = 8 // magic, version
	tensors, kvs := u64(), u64()
	for range kvs {
		skip()
		kind, n := u32(), 1
		if kind == kvList {
			kind, n = u32(), u64()
		}
		if kind != kvString {
			at += n * size[kind]
			continue
		}
		for range n {
			skip()
		}
	}
	out := append([]byte(nil), in[:at]...)
	type tensor struct{ kind, elements, from int }
	var list []tensor
	offset := 0
	for range tensors {
		begin := at
		skip()
		elements := 1
		for range u32() {
			elements *= u64()
		}
		out = append(out, in[begin:at]...)
		list = append(list, tensor{int(u32()), elements, u64()})
		if k := list[len(list)-1].kind; k != typeF32 && k != typeQ8 {
			t.Fatalf("a tensor has type %d", k)
		}
		out = le.AppendUint64(le.AppendUint32(out, typeF32), uint64(offset))
		offset += (4*elements + align - 1) / align * align
	}
	data := in[(at+align-1)/align*align:]
	pad := func() {
		for len(out)%align != 0 {
			out = append(out, 0)
		}
	}
	pad()
	for _, x := range list {
		b := data[x.from:]
		if x.kind == typeF32 {
			out = append(out, b[:4*x.elements]...)
			pad()
			continue
		}
		for ; x.elements > 0; x.elements, b = x.elements-32, b[34:] {
			scale := float16.Frombits(le.Uint16(b)).Float32()
			for _, q := range b[2:34] {
				out = le.AppendUint32(out, math.Float32bits(scale*float32(int8(q))))
			}
		}
		pad()
	}
	path = filepath.Join(t.TempDir(), "f32.gguf")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
