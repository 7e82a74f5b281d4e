//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestFloats: the weights of a model in each type, decoded, are near those of the same model in F32.
func TestFloats(t *testing.T) {
	read := func(typ ggufgen.Type) map[string][]float32 {
		cfg := ggufgen.TinyWide()
		cfg.Type, cfg.Layers = typ, 1
		in, err := os.Open(model(t, cfg))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		st, err := in.Stat()
		if err != nil {
			t.Fatal(err)
		}
		_, tensors, err := gguffile.Read(in, st.Size())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string][]float32{}
		for _, tensor := range tensors {
			var b bytes.Buffer
			if _, err := tensor.Data.WriteTo(&b); err != nil {
				t.Fatal(err)
			}
			n := 1
			for _, m := range tensor.Shape {
				n *= int(m)
			}
			to := make([]float32, n)
			if tensor.Type == 0 {
				_, err = binary.Decode(b.Bytes(), binary.LittleEndian, to)
			} else {
				err = Floats(tensor.Type, b.Bytes(), to)
			}
			if err != nil {
				t.Fatalf("%s of %s: %v", tensor.Name, typ, err)
			}
			out[tensor.Name] = to
		}
		return out
	}
	exact := read(ggufgen.F32)
	// Half a step, or a whole one where a sign has no code for its largest value; for Q8_0 also the scale's rounding.
	for typ, share := range map[ggufgen.Type]float32{ggufgen.F16: 1. / 2048, ggufgen.BF16: 1. / 256,
		ggufgen.Q8_0: 1./254 + 1./2048, ggufgen.Q6_K: 1. / 32, ggufgen.Q5_K: 1. / 16, ggufgen.Q5_0: 1. / 16,
		ggufgen.Q4_K: 1. / 8, ggufgen.Q4_0: 1. / 8, ggufgen.IQ4_NL: 1. / 8, ggufgen.Q4_K_M: 1. / 8} {
		for name, got := range read(typ) {
			want := exact[name]
			limit := share * max(slices.Max(want), -slices.Min(want))
			for i := range want {
				if d := got[i] - want[i]; !(max(d, -d) <= limit) {
					t.Errorf("%s of %s: element %d is %v, in F32 %v; the limit is %v apart", name, typ, i, got[i],
						want[i], limit)
					break
				}
			}
		}
	}
	// Q4_1: scale, least, 32 numbers of four bits.
	block := append([]byte{0x00, 0x38, 0x00, 0xbc}, bytes.Repeat([]byte{0xf1}, 16)...)
	to := make([]float32, 32)
	if err := Floats(3, block, to); err != nil || to[0] != 0.5*1-1 || to[31] != 0.5*15-1 {
		t.Errorf("Q4_1: %v, %v", to, err)
	}
}

// TestFloatsRefuses: an unknown type, and bytes that are no whole blocks, are errors.
func TestFloatsRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		typ   uint32
		bytes int
		n     int
		want  string
	}{
		"not of this llama.cpp": {4000, 34, 32, "type 4000"},
		"removed from ggml":     {4, 32, 32, "no decoder"},
		"integers":              {26, 128, 32, "no decoder"},
		"half a block":          {8, 17, 16, "want blocks of 32 weights in 34 bytes"},
		"a byte less":           {8, 33, 32, "want blocks of 32 weights in 34 bytes"},
	} {
		err := Floats(c.typ, make([]byte, c.bytes), make([]float32, c.n))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := Floats(8, nil, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}
