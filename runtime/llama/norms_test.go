//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_products && !llama_no_norms

package llama

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/llama/kernels"
)

// normsEqual compares what is computed here with what ggml computes, bit for bit.
func normsEqual(t *testing.T, c kernels.Norms, name string, rng *rand.Rand, factors int) {
	t.Helper()
	normal := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	c.X = normal(c.Width * c.Heads * c.Tokens)
	c.W = nil
	if factors > 0 {
		c.W = normal(factors)
	}
	c.Positions = make([]int32, c.Tokens)
	for i := range c.Positions {
		c.Positions[i] = int32(rng.IntN(5000))
	}
	start()
	kernels.UseNorms(false)
	want := c.Compute(1)
	kernels.UseNorms(true)
	for threads := 1; threads <= 3; threads++ {
		for range 2 { // the second time angles are those of the first
			if got := c.Compute(threads); !slices.Equal(got, want) {
				t.Errorf("%s, %d threads: not what ggml computes", name, threads)
				return
			}
		}
	}
}

// TestNorms: rows whose squares are added side by side have ggml's result, whatever their number and width.
func TestNorms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, width := range []int{1, 3, 8, 33, 576} {
		for tokens := 1; tokens <= 20; tokens += 1 + tokens/8 {
			for _, heads := range []int{1, 3} {
				for _, weighted := range []int{0, width} {
					c := kernels.Norms{Width: width, Heads: heads, Tokens: tokens, Layers: 2, Eps: 1e-5}
					name := fmt.Sprintf("%d values, %d × %d rows, %d weights", width, tokens, heads, weighted)
					normsEqual(t, c, name, rng, weighted)
				}
			}
		}
	}
}

// TestRotations: rotations are ggml's, of neighbours and of halves, of whole rows and of a part, with and without
// factors, in place and not, where angles are kept from one layer to the next and where they are not.
func TestRotations(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, width := range []int{16, 64, 80} {
		for _, dims := range []int{width, width - 6} {
			for tokens := 1; tokens <= 20; tokens += 1 + tokens/4 {
				for _, heads := range []int{1, 3} {
					for kind := range 8 {
						if testing.Short() && (kind+tokens+heads/2)%4 != 0 {
							continue
						}
						c := kernels.Norms{Width: width, Heads: heads, Tokens: tokens, Layers: 4, Dims: dims,
							Neox: kind&1 != 0, InPlace: kind&2 != 0, Base: 1e4, Scale: 0.5, Magnitude: 1.25}
						factors := 0
						if kind&4 != 0 {
							factors = dims / 2
						}
						name := fmt.Sprintf("%d of %d values, %d × %d rows, kind %d", dims, width, tokens, heads, kind)
						normsEqual(t, c, name, rng, factors)
					}
				}
			}
		}
	}
}

// TestNormsAreOurs: ggml calls our functions.
func TestNormsAreOurs(t *testing.T) {
	start()
	if missed := kernels.TryNorms(); missed != nil {
		t.Errorf("ggml computes %v itself", missed)
	}
}
