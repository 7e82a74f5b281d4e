package gguf

import (
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
)

// Processor has the features by which the engine decides which weights ggml repacks. A repacked copy interleaves 4 or 8
// rows for ggml's vector kernels. Weights that our kernels multiply stay as the file has them.
type Processor struct {
	AVX2    bool `json:"avx2"`
	AVX512  bool `json:"avx512"`
	AMX     bool `json:"amx"`     // ggml's products of bytes in tiles
	DotProd bool `json:"dotprod"` // arm64
	I8MM    bool `json:"i8mm"`    // arm64
	// Kernels: our kernels multiply the matrices, in every format that ggml would repack (runtime/llama's matmul.cpp).
	Kernels bool `json:"kernels"`
}

// ThisProcessor returns this machine's processor. A uma-serve built for another one (make MARCH=…) may repack less. On
// macOS the layers are on the GPU, and nothing is repacked.
func ThisProcessor() Processor {
	if runtime.GOOS == "darwin" {
		return Processor{}
	}
	return Processor{AVX2: cpu.X86.HasAVX2, AVX512: cpu.X86.HasAVX512F,
		AMX:     cpu.X86.HasAMXInt8 && cpu.X86.HasAVX512VNNI,
		DotProd: cpu.ARM64.HasASIMDDP, I8MM: cpu.ARM64.HasI8MM,
		Kernels: runtime.GOOS == "linux" && (cpu.X86.HasAVX2 && cpu.X86.HasFMA || cpu.ARM64.HasASIMDDP)}
}

// rows returns the number of interleaved rows for a matrix of type typ on p, 0 = not repacked:
// ggml_repack_get_optimal_repack_type of ggml's repack.cpp.
func (p Processor) rows(typ string) uint64 {
	switch {
	case p.Kernels: // they take every format that ggml would rearrange
	case typ == "Q4_0" && p.AVX2, typ == "Q4_K" && (p.AVX2 || p.DotProd || p.I8MM), typ == "IQ4_NL" && p.AVX2,
		typ == "Q2_K" && p.AVX512:
		return 8
	case typ == "Q4_0" && (p.DotProd || p.I8MM), typ == "IQ4_NL" && p.DotProd:
		return 4
	}
	return 0
}

// amx are the formats of ggml's products in tiles: a row is a multiple of align elements, and for each block of them
// the copy has more bytes than the file (get_row_size of ggml's amx/mmq.cpp).
var amx = map[string]struct{ align, block, more uint64 }{
	"F16": {align: 16}, "Q4_0": {32, 32, 0}, "Q4_1": {32, 32, 0}, "Q8_0": {32, 32, 4}, "Q4_K": {256, 256, 4},
	"Q5_K": {256, 256, 4}, "Q6_K": {align: 256}, "IQ4_XS": {256, 256, 2},
}

// tiles returns the bytes of the copy that ggml makes of matrix t for AMX; 0 = none. It has no tiles for stacks.
func (p Processor) tiles(t *tensorInfo) uint64 {
	f, known := amx[t.typ]
	if !p.AMX || !known || t.shape[2] > 1 || t.shape[0]%f.align != 0 || t.shape[1]%32 != 0 || p.Kernels {
		return 0
	}
	if f.block == 0 {
		return t.bytes
	}
	return t.bytes + t.shape[0]/f.block*f.more*t.shape[1]
}

// Repacking is the memory cost of repacking, in bytes.
type Repacking struct {
	// Copy is anonymous memory that the engine fills while it loads: the system cannot drop it, as it can drop a page
	// of a mapped file.
	Copy uint64 `json:"copy_bytes"`
	// Spared is the part of the file that is not read after the copy, so that the system may drop it.
	Spared uint64 `json:"spared_bytes"`
}

// Repacked returns the cost of repacking the model on p when all layers are computed on the processor.
func (i Info) Repacked(p Processor) (r Repacking) {
	for _, t := range i.matrices {
		size := p.tiles(&t)
		if n := p.rows(t.typ); size == 0 && n > 0 && t.shape[1]%n == 0 {
			size = t.bytes
		}
		if size == 0 {
			continue
		}
		r.Copy += size
		if !t.lookedUp() {
			r.Spared += t.bytes
		}
	}
	return r
}

// multiplied returns the tensors of matrix products that ggml may repack: matrices, and stacks of them for experts.
// Embeddings are looked up by row; without an output matrix they are multiplied with too.
func (h *header) multiplied() (list []tensorInfo) {
	tied := true
	for _, t := range h.tensors {
		tied = tied && t.name != "output.weight"
	}
	for _, t := range h.tensors {
		switch {
		case !strings.HasSuffix(t.name, ".weight"):
		case t.lookedUp() && !(tied && t.name == "token_embd.weight"):
		case t.shape[3] > 1, t.shape[2] > 1 && !strings.Contains(t.name, "_exps."), t.shape[2] == 1 && t.shape[1] == 1:
		default:
			list = append(list, t)
		}
	}
	return list
}

// lookedUp reports whether t is read by row number.
func (t *tensorInfo) lookedUp() bool {
	switch t.name {
	case "token_embd.weight", "position_embd.weight", "token_types.weight", "per_layer_token_embd.weight":
		return true
	}
	return strings.HasSuffix(t.name, ".nextn.embed_tokens.weight")
}
