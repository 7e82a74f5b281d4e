//go:build cgo && llama_engine

package llama

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// go test -bench Engine ./runtime/llama: what a step of the 135 M model costs on all processors, so that a change of a
// kernel is seen where it counts.
func BenchmarkEngine(b *testing.B) {
	e, err := Open(runtime.Options{ModelPath: ggufgen.Cached(b, ggufgen.Bench135M()), ContextTokens: 16384,
		Sequences: 17})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	rows := func(b *testing.B, first, seqs, at, n int) {
		batch := e.Batch()
		batch.Reset()
		for s := range seqs {
			for i := range n {
				batch.Add(runtime.Token(100+(at+i)%1000), runtime.Pos(at+i), runtime.Seq(first+s), i == n-1)
			}
		}
		if err := e.Decode(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("prompt of 1024", func(b *testing.B) {
		for b.Loop() {
			e.SeqRemove(0, 0, -1)
			rows(b, 0, 1, 0, 512)
			rows(b, 0, 1, 512, 512)
		}
		b.ReportMetric(float64(b.N)*1024/b.Elapsed().Seconds(), "tokens/s")
	})
	for s := range 16 {
		rows(b, 1+s, 1, 0, 512)
	}
	for _, c := range []struct {
		name               string
		first, seqs, depth int
	}{{"1 at 1024", 0, 1, 1024}, {"4 at 512", 1, 4, 512}, {"16 at 512", 1, 16, 512}} {
		cut := func() {
			for s := range c.seqs {
				e.SeqRemove(runtime.Seq(c.first+s), runtime.Pos(c.depth), -1)
			}
		}
		b.Run(c.name, func(b *testing.B) {
			more := 0
			for b.Loop() {
				rows(b, c.first, c.seqs, c.depth+more, 1)
				if more++; more == 64 {
					cut()
					more = 0
				}
			}
			cut()
			b.ReportMetric(float64(b.N)*float64(c.seqs)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
