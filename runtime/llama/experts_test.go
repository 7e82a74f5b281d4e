//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// mixture is a small model whose feed-forward parts are 4 experts, of which each row takes 2.
func mixture(t *testing.T, typ ggufgen.Type) string {
	cfg := ggufgen.TinyWide()
	cfg.Type, cfg.Experts = typ, 4
	return model(t, cfg)
}

func TestExperts(t *testing.T) { contract(t, mixture(t, ggufgen.Q8_0)) }

// TestExpertBytes: a mixture tells its experts and their bytes, another model none.
func TestExpertBytes(t *testing.T) {
	cfg := ggufgen.TinyWide()
	bytes := uint64(cfg.Layers * 3 * 4 * cfg.Embedding * cfg.FFN / 32 * 34) // Q8_0
	m := mustOpen(t, runtime.Options{ModelPath: mixture(t, ggufgen.Q8_0), ContextTokens: 256}).Model()
	if m.Experts != 4 || m.ExpertsUsed != 2 || m.ExpertBytes != bytes || m.ExpertBytes >= m.Bytes {
		t.Errorf("%d of %d experts with %d of %d bytes, want 2 of 4 with %d", m.ExpertsUsed, m.Experts, m.ExpertBytes,
			m.Bytes, bytes)
	}
	m = mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256}).Model()
	if m.Experts != 0 || m.ExpertsUsed != 0 || m.ExpertBytes != 0 {
		t.Errorf("a model without experts has %d, %d used, %d bytes", m.Experts, m.ExpertsUsed, m.ExpertBytes)
	}
}

// The experts of a model are multiplied by our kernels, from the file, and a row's logits are the same to the bit
// whatever rows are computed beside it, which choose the same experts or others.
func TestExpertsOfARow(t *testing.T) {
	if !Exact() {
		t.Skip("none of our kernels run on this processor")
	}
	for _, typ := range []ggufgen.Type{ggufgen.Q8_0, ggufgen.Q4_K_M, ggufgen.IQ4_NL, ggufgen.Q5_0} {
		t.Run(string(typ), func(t *testing.T) {
			e := mustOpen(t, runtime.Options{ModelPath: mixture(t, typ), ContextTokens: 64, Sequences: 24})
			if got := e.Model().RepackedBytes; got != 0 {
				t.Errorf("%d bytes are repacked", got)
			}
			ours := rows(t, e, 24)
			for i, want := range ours {
				if got := rows(t, e, i+1)[i]; !slices.Equal(got, want) {
					t.Fatalf("row %d of 24 differs from row %d of %d", i, i, i+1)
				}
			}
			e.SeqRemove(0, 0, -1)
			for i, want := range ours {
				b := e.Batch()
				b.Reset()
				b.Add(runtime.Token(100+7*i%300), runtime.Pos(i), 0, true)
				if err := e.Decode(); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(e.Logits(0), want) {
					t.Fatalf("row %d of 24 differs when it is computed alone", i)
				}
			}
			defer ownAttention(ownAttention(false))
			ours = beginnings(t, e, 24)
			defer withKernels(t, "ggml")()
			its := beginnings(t, e, 24)
			if distance(ours, its) == 0 {
				t.Error("the logits are equal with our kernels and without: ggml's have computed both")
			}
			// A difference in last bits can round an activation to another eighth bit, or at a near tie take another
			// expert: such a row is far off. Most rows meet neither, and differ by 1e-7 to 1e-6.
			var apart []float64
			for i := range ours {
				apart = append(apart, distance(ours[i:i+1], its[i:i+1]))
			}
			slices.Sort(apart)
			if d := apart[len(apart)/2-1]; d > 1e-5 {
				t.Errorf("half of the rows are at least %g apart from ggml's: want a few last bits", d)
			}
		})
	}
}

// beginnings returns the logits of n sequences of one token each: no row reads another's, so that what rounds apart in
// one does not spread.
func beginnings(t *testing.T, e runtime.Engine, n int) (out [][]float32) {
	t.Helper()
	b := e.Batch()
	b.Reset()
	for i := range n {
		e.SeqRemove(runtime.Seq(i), 0, -1)
		b.Add(runtime.Token(100+7*i), 0, runtime.Seq(i), true)
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		out = append(out, slices.Clone(e.Logits(i)))
	}
	return out
}
