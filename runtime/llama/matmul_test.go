//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_attention && !llama_no_products

package llama

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	runtimego "runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// weightTypes are the types of weights that the kernels take: ggml's numbers, and how many values share a scale, or
// else are taken at once; a row is a multiple of that.
var weightTypes = []struct {
	name        string
	typ, values int
}{
	{"Q4_0", 2, 32}, {"Q5_0", 6, 32}, {"Q8_0", 8, 32}, {"Q4_K", 12, 256}, {"Q5_K", 13, 256}, {"Q6_K", 14, 256},
	{"IQ4_NL", 20, 32}, {"IQ4_XS", 23, 256}, {"F16", typeF16, 16}, {"BF16", typeBF16, 32},
	{"F32", typeF32, 16},
	{"Q4_1", 3, 32}, {"Q5_1", 7, 32}, {"Q2_K", 10, 256}, {"Q3_K", 11, 256}, {"MXFP4", 39, 32}, {"NVFP4", 40, 64},
	{"TQ1_0", 34, 256}, {"TQ2_0", 35, 256}, {"IQ2_XXS", 16, 256}, {"IQ2_XS", 17, 256}, {"IQ2_S", 22, 256},
	{"IQ3_XXS", 18, 256}, {"IQ3_S", 21, 256},
}

const typeQ8 = 8

// ownKernels are the names of our kernels that this processor has. The test may choose among them.
func ownKernels(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range []string{"amx", "avx512", "avxvnni", "avx2", "i8mm", "neon"} {
		if UseKernels(name) == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip("none of our kernels run on this processor")
	}
	t.Cleanup(func() { _ = UseKernels("auto") })
	return names
}

// eachKernels runs f with each of our kernels that this processor has.
func eachKernels(t *testing.T, f func(t *testing.T)) {
	for _, name := range ownKernels(t) {
		useOwn(t, name)
		t.Run(name, f)
	}
}

// useOwn chooses one of ownKernels.
func useOwn(t interface{ Fatal(...any) }, name string) {
	if err := UseKernels(name); err != nil {
		t.Fatal(err)
	}
}

// withKernels chooses kernels until the returned function is called.
func withKernels(t testing.TB, name string) (back func()) {
	t.Helper()
	was := Kernels()
	if err := UseKernels(name); err != nil {
		t.Skip(err)
	}
	return func() { _ = UseKernels(was) }
}

func matmul(typ, threads, m, n, k int, weights, x []float32) []float32 {
	p := newProduct(typ, m, n, k, weights, x)
	defer p.free()
	p.compute(threads)
	return slices.Clone(p.out())
}

// off returns the largest error of the product against want, relative to the sum of the terms' magnitudes.
func (p product) off(threads int, want, size []float64) (worst float64) {
	out := p.out()
	for i := range out {
		out[i] = float32(math.NaN())
	}
	p.compute(threads)
	for i, x := range out {
		d := math.Abs(float64(x) - want[i])
		switch {
		case math.IsNaN(d):
			return math.Inf(1)
		case size[i] > 0:
			worst = max(worst, d/size[i])
		case d > 0:
			return math.Inf(1)
		}
	}
	return worst
}

// exactEnough bounds off: float32 sums of a row's blocks. BF16 pairs are rounded once for both.
const exactEnough = 1e-6

// The kernels against the product of the rounded weights and activations in float64.
func TestMatmul(t *testing.T) {
	names := ownKernels(t)
	for i, w := range weightTypes {
		rng := rand.New(rand.NewPCG(1, 2))
		for j, c := range [][3]int{{16, 1, 1}, {192, 1, 3}, {576, 2, 9}, {100, 3, 2}, {1, 9, 3}, {33, 17, 6},
			{640, 40, 1}, {7, 4, 1}, {48, 5, 2}, {48, 8, 2}} {
			if testing.Short() && (i+j)%3 != 0 {
				continue
			}
			m, n, k := c[0], c[1], c[2]*w.values
			x := normal(rng, n*k, 1)
			copy(x[:min(32, n*k)], make([]float32, 32))                // a block of nothing but zeros
			p := newProduct(w.typ, m, n, k, normal(rng, m*k, 0.05), x) // rounding weights takes longest
			want, size := p.exact()
			for _, name := range names {
				useOwn(t, name)
				if !kernelsTake(w.typ) {
					t.Errorf("%s: %s is not taken", name, w.name)
				}
				for _, threads := range []int{1, 2, 3} {
					if got := p.off(threads, want, size); got > exactEnough {
						t.Errorf("%s: %s, %v, %d threads: off by %.2g", name, w.name, c, threads, got)
					}
				}
			}
			p.free()
		}
	}
}

// 10,000 take four minutes on two cores.
var randomShapes = flag.Int("shapes", 500, "random shapes of TestMatmulOfRandomShapes, for each instruction set")

// Random shapes: against float64, and each row among others as it is alone, with another number of threads.
func TestMatmulOfRandomShapes(t *testing.T) {
	shapes := *randomShapes
	if testing.Short() {
		shapes = min(shapes, 100)
	}
	names := ownKernels(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range shapes {
		w := weightTypes[i%len(weightTypes)]
		m, n, k := 1+rng.IntN(70), 1+rng.IntN(20), w.values*(1+rng.IntN(max(2, 1024/w.values)))
		threads, other, row := 1+rng.IntN(3), 1+rng.IntN(3), rng.IntN(n)
		weights, x := normal(rng, m*k, math.Exp(rng.NormFloat64())), normal(rng, n*k, math.Exp(rng.NormFloat64()))
		p := newProduct(w.typ, m, n, k, weights, x)
		alone := p.rows(row, 1)
		want, size := p.exact()
		for _, name := range names {
			useOwn(t, name)
			if got := p.off(threads, want, size); got > exactEnough {
				t.Errorf("%s: %s, %d × %d × %d, %d threads: off by %.2g", name, w.name, m, n, k, threads, got)
			}
			if alone.compute(other); !slices.Equal(alone.out(), p.out()[row*m:][:m]) {
				t.Errorf("%s: %s, %d × %d × %d: row %d differs when it is alone", name, w.name, m, n, k, row)
			}
		}
		alone.free()
		p.free()
	}
}

// A row's result depends neither on the other rows nor on the number of threads, bit for bit, nor on the kernels where
// the weights are quantised.
func TestMatmulOfARowIsItsOwn(t *testing.T) {
	names := ownKernels(t)
	for _, w := range weightTypes {
		rng := rand.New(rand.NewPCG(5, uint64(w.typ)))
		const m, k = 130, 768
		p := newProduct(w.typ, m, 40, k, normal(rng, m*k, 0.05), normal(rng, 40*k, 1))
		var first []float32
		for _, name := range names {
			useOwn(t, name)
			p.compute(2)
			for n := 1; n <= 20; n++ {
				some := p.rows(0, n)
				if some.compute(1 + n%4); !slices.Equal(some.out(), p.out()[:n*m]) {
					t.Errorf("%s: %s: %d rows are not as they are among 40", name, w.name, n)
				}
				some.free()
			}
			if first == nil {
				first = slices.Clone(p.out())
			} else if w.typ != typeF32 && w.typ != typeF16 && w.typ != typeBF16 && !slices.Equal(first, p.out()) {
				t.Errorf("%s differs between kernels", w.name)
			}
		}
		p.free()
	}
	if t.Failed() {
		return
	}
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		w := rapid.SampledFrom(weightTypes).Draw(t, "type")
		m, n, k := rapid.IntRange(1, 130).Draw(t, "m"), rapid.IntRange(1, 40).Draw(t, "n"),
			w.values*rapid.IntRange(1, 640/w.values).Draw(t, "k")
		p := newProduct(w.typ, m, n, k, normal(rng, m*k, 0.05), normal(rng, n*k, 1))
		defer p.free()
		threads, i := rapid.IntRange(1, 4).Draw(t, "threads"), rapid.IntRange(0, n-1).Draw(t, "row")
		alone := p.rows(i, 1)
		defer alone.free()
		for _, name := range names {
			useOwn(t, name)
			p.compute(threads)
			if alone.compute(1); !slices.Equal(alone.out(), p.out()[i*m:][:m]) {
				t.Errorf("%s: row %d of %d differs when it is alone", name, i, n)
			}
		}
	})
}

// Experts: each output against float64, and bit for bit what its row is alone, whatever rows choose the same expert.
func TestMatmulOfExperts(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 8))
		for i, w := range slices.Concat(weightTypes, weightTypes, weightTypes) {
			c := choice{experts: 1 + rng.IntN(9), each: i%2 == 0}
			c.used = 1 + rng.IntN(c.experts)
			m, n, k := 1+rng.IntN(70), 1+rng.IntN(40), w.values*(1+rng.IntN(max(2, 512/w.values)))
			for range n {
				for _, e := range rng.Perm(c.experts)[:c.used] {
					c.ids = append(c.ids, int32(e))
				}
			}
			from := n
			if c.each {
				from *= c.used
			}
			weights, x := normal(rng, c.experts*m*k, 0.05), normal(rng, from*k, 1)
			p := newExperts(w.typ, m, n, k, c, weights, x)
			want, size := p.exact()
			if got := p.off(1+rng.IntN(3), want, size); got > exactEnough {
				t.Errorf("%s, %d × %d × %d, %d of %d experts: off by %.2g", w.name, m, n, k, c.used, c.experts, got)
			}
			row, slot := rng.IntN(n), rng.IntN(c.used)
			e, at := int(c.ids[row*c.used+slot]), row
			if c.each {
				at = row*c.used + slot
			}
			alone := matmul(w.typ, 2, m, 1, k, weights[e*m*k:][:m*k], x[at*k:][:k])
			if !slices.Equal(alone, p.out()[(row*c.used+slot)*m:][:m]) {
				t.Errorf("%s, %d × %d × %d, %d of %d experts: row %d differs when it is alone", w.name, m, n, k, c.used,
					c.experts, row)
			}
			p.free()
		}
	})
}

// Products are our kernels' in every model that has weights of the types that they take: the sums differ from ggml's in
// the last bits, and nothing is repacked.
func TestWeightsStayOnOurKernels(t *testing.T) {
	if !Exact() {
		t.Skip("none of our kernels run on this processor")
	}
	for _, typ := range ggufgen.Types() {
		t.Run(string(typ), func(t *testing.T) {
			cfg := ggufgen.TinyWide()
			cfg.Type = typ
			e := mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 64})
			if got := e.Model().RepackedBytes; got != 0 {
				t.Errorf("%d bytes are repacked", got)
			}
			defer ownAttention(ownAttention(false))
			ours := rows(t, e, 8)
			defer withKernels(t, "ggml")()
			theirs := rows(t, e, 8)
			if d := distance(ours, theirs); d == 0 || d > 0.05 || math.IsNaN(d) {
				t.Errorf("the logits are %g apart with our kernels and without: want a few last bits", d)
			}
		})
	}
}

// A name that this processor or build does not have changes nothing.
func TestUseKernels(t *testing.T) {
	was := Kernels()
	if err := UseKernels("avx1024"); err == nil || Kernels() != was {
		t.Errorf("error %v, kernels %q, were %q", err, Kernels(), was)
	}
	back := withKernels(t, "ggml")
	if Exact() || kernelsTake(typeQ8) {
		t.Error("ggml's kernels are taken for ours")
	}
	back()
	if Kernels() != was {
		t.Errorf("kernels are %q, were %q", Kernels(), was)
	}
}

// TestMatmulOfManyRows: the last pieces that threads take are a part of a strip's rows, and none is left out.
func TestMatmulOfManyRows(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		for _, typ := range []int{3, 8, 12, 14} { // Q4_1, Q8_0, Q4_K, Q6_K
			for _, m := range []int{10, 130, 700} {
				for _, n := range []int{32, 65, 150} {
					const k = 256
					rng := rand.New(rand.NewPCG(uint64(m), uint64(n)))
					p := newProduct(typ, m, n, k, normal(rng, m*k, 1), normal(rng, n*k, 1))
					p.compute(1)
					want := slices.Clone(p.out())
					for threads := 2; threads <= 5; threads++ {
						clear(p.out())
						if p.compute(threads); !slices.Equal(p.out(), want) {
							t.Errorf("type %d, %d × %d, %d threads: not what one computes", typ, m, n, threads)
						}
					}
					p.free()
				}
			}
		}
	})
}

// TestProductsOfTheSameRows: a product whose rows one before it has prepared computes what it does alone, mostly
// together with that one, and one whose rows have changed since, or were displaced by others, prepares them again.
// Where its result lies in memory that is read until then it waits for its turn.
func TestProductsOfTheSameRows(t *testing.T) {
	const m, k, betweens, overlap = 96, 512, 5, 2
	eachKernels(t, func(t *testing.T) {
		for _, typ := range []int{3, 8, 12, 14} { // Q4_1, Q8_0, Q4_K, Q6_K
			for _, n := range []int{1, 21} {
				rng := rand.New(rand.NewPCG(uint64(typ), uint64(n)))
				weights, x := normal(rng, m*k, 1), normal(rng, n*k, 1)
				alone := newProduct(typ, m, n, k, weights, x)
				for i := range x {
					x[i] *= 2
				}
				changed := newProduct(typ, m, n, k, weights, x)
				alone.compute(1)
				changed.compute(1)
				for between := range betweens {
					want := alone.out()
					if between >= overlap { // x, or the first result, was multiplied by two
						want = changed.out()
					}
					for threads := 1; threads <= 2; threads++ {
						again := alone.again(between)
						again.compute(threads)
						if joined := again.joined(); joined != (between < overlap) {
							t.Errorf("between %d: computed with the first product: %v", between, joined)
						}
						if !slices.Equal(again.out(), want) {
							t.Errorf("type %d, %d rows, %d threads, between %d: not what it is alone",
								typ, n, threads, between)
						}
						again.free()
					}
				}
				changed.free()
				alone.free()
			}
		}
	})
}

// threadTime is the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// go test -bench Matmul ./runtime/llama: ours and ggml's on one thread, without repacking. Weights larger than the
// caches, as a model's are. Beside other programs the thread's own time (cpu-ms) tells more than the clock.
func BenchmarkMatmul(b *testing.B) {
	const m, k = 16384, 1536
	rng := rand.New(rand.NewPCG(1, 2))
	for _, w := range weightTypes {
		for _, n := range []int{1, 2, 4, 8, 16, 64} {
			p := newProduct(w.typ, m, n, k, nil, normal(rng, n*k, 1)) // rounding takes minutes for some types
			for _, name := range []string{"amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "ggml"} {
				b.Run(fmt.Sprintf("%s/%d rows/%s", w.name, n, name), func(b *testing.B) {
					defer withKernels(b, name)()
					runtimego.LockOSThread()
					defer runtimego.UnlockOSThread()
					began := threadTime(b)
					for b.Loop() {
						p.compute(1)
					}
					b.ReportMetric((threadTime(b)-began).Seconds()*1e3/float64(b.N), "cpu-ms")
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ms")
				})
			}
			p.free()
		}
	}
}
