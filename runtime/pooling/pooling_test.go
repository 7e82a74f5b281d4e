package pooling

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/runtime"
)

// TestPooling compares each kind with exact arithmetic over random rows.
func TestPooling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, width := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 9).Draw(t, "width")
		rows := make([][]float32, n)
		for i := range rows {
			for range width {
				rows[i] = append(rows[i], rapid.Float32Range(-1e3, 1e3).Draw(t, "value"))
			}
		}
		for _, kind := range []runtime.Pooling{runtime.PoolMean, runtime.PoolCLS, runtime.PoolLast} {
			p := New(kind, width)
			p.Add(rows[n-1]) // forgotten
			p.Reset()
			for _, r := range rows {
				p.Add(slices.Clone(r))
			}
			got := p.AppendTo(nil)
			for i := range width {
				want := rows[0][i]
				switch kind {
				case runtime.PoolLast:
					want = rows[n-1][i]
				case runtime.PoolMean:
					sum := new(big.Float).SetPrec(200)
					for _, r := range rows {
						sum.Add(sum, big.NewFloat(float64(r[i])))
					}
					exact, _ := sum.Quo(sum, big.NewFloat(float64(n))).Float64()
					if math.Abs(exact-float64(got[i])) > 1e-6*max(1, math.Abs(exact)) {
						t.Fatalf("mean of value %d: %g, want %g", i, got[i], exact)
					}
					continue
				}
				if got[i] != want {
					t.Fatalf("%s, value %d: %g, want %g", kind, i, got[i], want)
				}
			}
		}
	})
	if EveryRow(runtime.PoolLast) || !EveryRow(runtime.PoolMean) || !EveryRow(runtime.PoolCLS) ||
		!EveryRow(runtime.PoolNone) {
		t.Error("which rows are needed")
	}
}

func TestNormalize(t *testing.T) {
	for _, c := range []struct {
		norm     int
		in, want []float32
	}{
		{-1, []float32{3, 4}, []float32{3, 4}},
		{0, []float32{3, -4}, []float32{24570, -32760}},
		{1, []float32{3, -5}, []float32{0.375, -0.625}},
		{2, []float32{3, 4}, []float32{0.6, 0.8}},
		{3, []float32{3, 4, 5}, []float32{0.5, 4.0 / 6, 5.0 / 6}}, // 3³ + 4³ + 5³ = 6³
		{2, []float32{0, 0}, []float32{0, 0}},
		{64, []float32{2e38, 1e38}, []float32{1, 0.5}},
		{2, []float32{3e-40, 4e-40}, []float32{0.6, 0.8}},
	} {
		got := slices.Clone(c.in)
		Normalize(got, c.norm)
		for i := range got {
			if math.Abs(float64(got[i]-c.want[i])) > 1e-5*max(1, math.Abs(float64(c.want[i]))) {
				t.Errorf("norm %d of %v: %v, want %v", c.norm, c.in, got, c.want)
			}
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	if Finite([]float32{1, nan}) || Finite([]float32{inf}) || !Finite([]float32{1, -math.MaxFloat32}) {
		t.Error("what is finite")
	}
}
