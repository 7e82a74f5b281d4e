//go:build linux && amd64 && cgo && !llama_system

package llama

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// q8 is values rounded to Q8_0: blocks of 32 with one scale, a float16. Ties go to even in ggml's vector code and
// away from zero in its plain code: either way the result is within the tolerance of the test.
func q8(values []float32) []float64 {
	kept := make([]float64, len(values))
	for b := 0; b < len(values); b += 32 {
		var top float32
		for _, x := range values[b : b+32] {
			top = max(top, float32(math.Abs(float64(x))))
		}
		scale := top / 127
		half := float64(float16.Fromfloat32(scale).Float32())
		for i, x := range values[b : b+32] {
			if scale > 0 {
				kept[b+i] = half * math.RoundToEven(float64(x/scale))
			}
		}
	}
	return kept
}

func matmul(threads, m, n, k int, weights, x []float32) []float32 {
	p := newProduct(m, n, k, weights, x)
	defer p.free()
	p.compute(threads)
	return slices.Clone(p.out())
}

// The kernel, and ggml's, against the product of the Q8_0 values in float64.
func TestMatmul(t *testing.T) {
	if !matmulBuilt() {
		t.Skip("built for a processor without AVX-512 VNNI: ggml computes this")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range [][3]int{{16, 1, 32}, {192, 1, 192}, {576, 2, 576}, {100, 3, 64}, {1, 9, 96}, {33, 17, 1536},
		{640, 40, 256}} {
		m, n, k := c[0], c[1], c[2]
		w, x := normal(rng, m*k, 0.05), normal(rng, n*k, 1)
		copy(x[:min(32, n*k)], make([]float32, 32)) // a block of nothing but zeros
		keptW, keptX := q8(w), q8(x)
		want, size := make([]float64, n*m), make([]float64, n*m)
		for i := range n {
			for j := range m {
				for l := range k {
					p := keptW[j*k+l] * keptX[i*k+l]
					want[i*m+j] += p
					size[i*m+j] += math.Abs(p)
				}
			}
		}
		for _, threads := range []int{1, 2, 3} {
			far := func(got []float32) (worst float64) {
				for i := range got {
					if size[i] > 0 {
						worst = max(worst, math.Abs(float64(got[i])-want[i])/size[i])
					}
				}
				return worst
			}
			got := far(matmul(threads, m, n, k, w, x))
			ownMatmul(false)
			theirs := far(matmul(threads, m, n, k, w, x))
			ownMatmul(true)
			// A value on the edge between two steps may round either way: a step of 1/127 in one of k.
			if got > 1e-6 && got > 2*theirs {
				t.Errorf("%v, %d threads: off by %.2g, ggml's by %.2g", c, threads, got, theirs)
			}
		}
	}
}

// A row's result depends neither on the other rows nor on the number of threads, bit for bit.
func TestMatmulOfARowIsItsOwn(t *testing.T) {
	if !matmulBuilt() {
		t.Skip("built for a processor without AVX-512 VNNI: ggml computes this")
	}
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		m, n, k := rapid.IntRange(1, 130).Draw(t, "m"), rapid.IntRange(1, 40).Draw(t, "n"),
			32*rapid.IntRange(1, 20).Draw(t, "k/32")
		w, x := normal(rng, m*k, 0.05), normal(rng, n*k, 1)
		all := matmul(rapid.IntRange(1, 4).Draw(t, "threads"), m, n, k, w, x)
		i := rapid.IntRange(0, n-1).Draw(t, "row")
		if alone := matmul(1, m, 1, k, w, x[i*k:][:k]); !slices.Equal(alone, all[i*m:][:m]) {
			t.Errorf("row %d of %d differs when it is alone", i, n)
		}
	})
}

// Products with Q8_0 weights are our kernel's in every model that has some, beside repacked weights too: its sums
// differ from ggml's in the last bits.
func TestQ8StaysOnOurKernel(t *testing.T) {
	if !matmulBuilt() {
		t.Skip("built for a processor without AVX-512 VNNI: ggml computes this")
	}
	mixed := ggufgen.Tiny() // rows of 64: what Q4_K_M makes of Q6_K there is Q8_0
	mixed.Type, mixed.Layers = ggufgen.Q4_K_M, 8
	for name, cfg := range map[string]ggufgen.Config{"q8_0": ggufgen.TinyWide(), "mixed": mixed} {
		t.Run(name, func(t *testing.T) {
			e := mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 64})
			if got := e.Model().RepackedBytes; got != 0 {
				t.Errorf("%d bytes are repacked", got)
			}
			ours := rows(t, e, 8)
			defer ownMatmul(ownMatmul(false))
			theirs := rows(t, e, 8)
			if d := distance(ours, theirs); d == 0 || d > 0.05 {
				t.Errorf("the logits are %g apart with our kernel and without: want a few last bits", d)
			}
		})
	}
}

// go test -bench Matmul ./runtime/llama: ours and ggml's on one thread. Weights larger than the caches, as a model's
// are.
func BenchmarkMatmul(b *testing.B) {
	if !matmulBuilt() {
		b.Skip("built for a processor without AVX-512 VNNI: ggml computes this")
	}
	const m, k = 16384, 1536
	rng := rand.New(rand.NewPCG(1, 2))
	w := normal(rng, m*k, 0.05)
	for _, n := range []int{1, 2, 4, 8, 16, 64} {
		x := normal(rng, n*k, 1)
		for _, own := range []bool{true, false} {
			b.Run(fmt.Sprintf("%d rows/own=%v", n, own), func(b *testing.B) {
				defer ownMatmul(ownMatmul(own))
				p := newProduct(m, n, k, w, x)
				defer p.free()
				for b.Loop() {
					p.compute(1)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ms")
			})
		}
	}
}
