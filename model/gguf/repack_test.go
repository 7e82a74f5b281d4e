package gguf

import (
	"path/filepath"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// Which bytes are copied: by type, processor, and whether the rows come out even. runtime/llama compares
// this with the engine's count.
func TestRepacked(t *testing.T) {
	avx2, avx512, dot, none := Processor{AVX2: true}, Processor{AVX2: true, AVX512: true}, Processor{DotProd: true},
		Processor{}
	wide := func(typ ggufgen.Type, change func(*ggufgen.Config)) Info {
		c := ggufgen.TinyWide()
		c.Type = typ
		if change != nil {
			change(&c)
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := ggufgen.Write(path, c); err != nil {
			t.Fatal(err)
		}
		info, err := Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	tied := func(c *ggufgen.Config) { c.Tied = true }
	odd := func(c *ggufgen.Config) { c.VocabSize = 516 } // a multiple of 4 and not of 8
	// Matrices of a layer: 256 × 256 twice, 128 × 256 twice, 512 × 256 three times. Output and embeddings: 512 × 256.
	const layers, matrix, output = 8, 2*256*256 + 2*128*256 + 3*512*256, 512 * 256
	const bits4 = 18 // bytes of 32 elements in Q4_0, IQ4_NL and Q4_K alike
	const more = 4 * (128*256 + 512*256)
	size := func(elements uint64) uint64 { return elements / 32 * bits4 }
	for name, c := range map[string]struct {
		info Info
		p    Processor
		want Repacking
	}{
		"q4_0": {wide(ggufgen.Q4_0, nil), avx2,
			Repacking{size(layers*matrix + output), size(layers*matrix + output)}},
		"q4_0, arm": {wide(ggufgen.Q4_0, nil), dot,
			Repacking{size(layers*matrix + output), size(layers*matrix + output)}},
		"q4_0, plain":    {wide(ggufgen.Q4_0, nil), none, Repacking{}},
		"q4_0, odd rows": {wide(ggufgen.Q4_0, odd), avx2, Repacking{size(layers * matrix), size(layers * matrix)}},
		"q4_0, odd, by four": {wide(ggufgen.Q4_0, odd), dot,
			Repacking{size(layers*matrix + 516*256), size(layers*matrix + 516*256)}},
		"q4_0, tied": {wide(ggufgen.Q4_0, tied), avx2,
			Repacking{size(layers*matrix + output), size(layers * matrix)}},
		"iq4_nl": {wide(ggufgen.IQ4_NL, nil), avx2,
			Repacking{size(layers*matrix + output), size(layers*matrix + output)}},
		"q4_k": {wide(ggufgen.Q4_K, nil), avx512,
			Repacking{size(layers*matrix + output), size(layers*matrix + output)}},
		"q4_k_m": {wide(ggufgen.Q4_K_M, nil), avx2,
			Repacking{size(layers*matrix - more), size(layers*matrix - more)}},
		"q8_0": {wide(ggufgen.Q8_0, nil), avx512, Repacking{}},
		"q6_k": {wide(ggufgen.Q6_K, nil), avx512, Repacking{}},
		"f16":  {wide(ggufgen.F16, nil), avx512, Repacking{}},
	} {
		if got := c.info.Repacked(c.p); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Nothing that our kernels multiply is repacked, and they take every format that ggml would repack.
func TestKernelsKeepWeights(t *testing.T) {
	p := Processor{AVX2: true, AVX512: true, AMX: true}
	for _, typ := range []string{"Q4_0", "Q4_1", "Q4_K", "Q2_K", "IQ4_NL", "IQ4_XS", "Q8_0", "F16"} {
		m := tensorInfo{typ: typ, shape: [4]uint64{256, 32, 1, 1}, bytes: 4096}
		with := p
		with.Kernels = true
		if p.rows(typ) == 0 && p.tiles(&m) == 0 || with.rows(typ) != 0 || with.tiles(&m) != 0 {
			t.Errorf("%s: without our kernels %d rows and %d bytes of tiles, with them %d and %d", typ, p.rows(typ),
				p.tiles(&m), with.rows(typ), with.tiles(&m))
		}
	}
}

// Stacks of experts are repacked matrix by matrix; other stacks and tensors that are no weights are not.
func TestRepackedByShape(t *testing.T) {
	const q4K = 12
	for _, c := range []struct {
		name  string
		shape []uint64
		want  uint64
	}{
		{"blk.0.ffn_up.weight", []uint64{256, 8}, 8 * 144},
		{"blk.0.ffn_up.weight", []uint64{256, 8, 1, 1}, 8 * 144},
		{"blk.0.ffn_up_exps.weight", []uint64{256, 8, 3}, 3 * 8 * 144},
		{"blk.0.attn_k_b.weight", []uint64{256, 8, 3}, 0},
		{"blk.0.ffn_up_exps.weight", []uint64{256, 8, 3, 2}, 0},
		{"per_layer_token_embd.weight", []uint64{256, 8}, 0},
		{"token_embd.weight", []uint64{256, 8}, 8 * 144}, // there is no output matrix beside it
	} {
		f := start(3, 1, 1).put("general.architecture", 8, "llama").put(c.name, len(c.shape))
		size := uint64(144)
		for _, n := range c.shape {
			f.put(n)
			size *= n
		}
		f.put(q4K, uint64(0))
		f.Write(make([]byte, size/256+64))
		info, err := read(f)
		if err != nil {
			t.Errorf("%s %v: %v", c.name, c.shape, err)
			continue
		}
		if got := info.Repacked(Processor{AVX2: true}).Copy; got != c.want {
			t.Errorf("%s %v: %d bytes, want %d", c.name, c.shape, got, c.want)
		}
	}
}
