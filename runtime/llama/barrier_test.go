//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_barrier && !llama_no_products

package llama

import (
	"math"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestBarrierSleeps: with far more threads than processors, threads do not arrive in time. The others sleep, and the
// result is that of one thread.
func TestBarrierSleeps(t *testing.T) {
	const m, n, k, q8 = 512, 3, 256, 8
	weights, x := make([]float32, m*k), make([]float32, n*k)
	for i := range weights {
		weights[i] = float32(math.Sin(float64(i)))
	}
	for i := range x {
		x[i] = float32(math.Cos(float64(3 * i)))
	}
	p := newProduct(q8, m, n, k, weights, x)
	defer p.free()
	p.compute(1)
	want := slices.Clone(p.out())
	e := &engine{}
	before := e.BarrierSleeps()
	threads := 8 * goruntime.NumCPU()
	for range 200 {
		p.compute(threads)
		if !slices.Equal(p.out(), want) {
			t.Fatal("the product of many threads differs from that of one")
		}
		if e.BarrierSleeps() > before {
			return
		}
	}
	t.Errorf("%d threads on %d processors have met 200 times, and none has slept", threads, goruntime.NumCPU())
}

// TestThreadsGiveTheSameRows: the number of threads changes nothing in a row, bit for bit, from one step to the next.
func TestThreadsGiveTheSameRows(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		e := mustOpen(t, runtime.Options{ModelPath: model(t, cfg), ContextTokens: 256, Threads: 3}).(*engine)
		var want []uint32
		for _, n := range []int{3, 1, 2, 3} {
			e.SeqRemove(0, 0, -1)
			var got []uint32
			for step := range 8 {
				e.SetThreads(1 + (n+step)%n)
				rows := 1
				if step == 0 {
					rows = 50
				}
				b := e.Batch()
				b.Reset()
				_, last := e.SeqRange(0)
				for i := range rows {
					b.Add(runtime.Token(40+7*i+step), last+1+runtime.Pos(i), 0, i == rows-1)
				}
				if err := e.Decode(); err != nil {
					t.Fatal(err)
				}
				for _, x := range e.Logits(rows - 1) {
					got = append(got, math.Float32bits(x))
				}
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: with up to %d threads the rows are others", cfg.Name, n)
			}
		}
	}
}

// TestComputeThreads: the threads that compute are known while they live.
func TestComputeThreads(t *testing.T) {
	opened, err := Open(runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 64, Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	e := opened.(*engine)
	during := e.ComputeThreads(nil)
	if len(during) < 3 {
		t.Errorf("%d threads are known, at least 3 have computed", len(during))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if after := e.ComputeThreads(nil); len(after) > len(during)-2 {
		t.Errorf("%d threads are known after the engine is closed, %d before", len(after), len(during))
	}
}
