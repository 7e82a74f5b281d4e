package meridian_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

var inf, nan = float32(math.Inf(1)), float32(math.NaN())

// TestReferenceProbe: numbers worked out by hand or published for meridian-kernels, and what a row that is not
// a row of logits gives.
func TestReferenceProbe(t *testing.T) {
	minusInf := math.Inf(-1)
	for _, c := range []struct {
		name  string
		row   []float32
		close []int32
		want  runtime.RowStats
	}{
		{"ramp", []float32{0, 1, 2, 3}, []int32{3}, runtime.RowStats{Max: 3, Argmax: 3, LogSumExp: 3.4401897,
			Entropy: 0.9475370, CloseMass: 0.6439143}},
		{"flat", []float32{0, 0, 0, 0}, []int32{1, 2}, runtime.RowStats{Max: 0, Argmax: 0, LogSumExp: math.Log(4),
			Entropy: 1.3862944, CloseMass: 0.5}},
		{"sure", []float32{10, 0, 0, 0}, []int32{0}, runtime.RowStats{Max: 10, Argmax: 0, LogSumExp: 10.0001362,
			Entropy: 0.0014980, CloseMass: 0.9998638}},
		{"two of five", []float32{-2, -1, 0.5, 4, 4}, []int32{3, 4},
			runtime.RowStats{Max: 4, Argmax: 3, LogSumExp: 4.7126622, Entropy: 0.7882985, CloseMass: 0.9806738}},
		{"no close ids", []float32{0, 1}, nil, runtime.RowStats{Max: 1, Argmax: 1, LogSumExp: math.Log(1 + math.E),
			Entropy: 0.5822034, CloseRank: -1}},
		{"ids outside", []float32{0, 1}, []int32{-1, 2, math.MaxInt32},
			runtime.RowStats{Max: 1, Argmax: 1, LogSumExp: math.Log(1 + math.E), Entropy: 0.5822034, CloseRank: -1}},
		{"rank", []float32{1, 5, 4, 3, 5}, []int32{0, 3, 9}, runtime.RowStats{Max: 5, Argmax: 1, LogSumExp: 5.9248660,
			Entropy: 1.2071599, CloseMass: 0.0609356, CloseRank: 3}},
		{"masked", []float32{-inf, 0, -inf, 0}, []int32{0}, runtime.RowStats{Max: 0, Argmax: 1, LogSumExp: math.Ln2,
			Entropy: math.Ln2, CloseRank: 2}},
		{"dropped", []float32{nan, 0, inf, 0, -nan}, []int32{0, 2},
			runtime.RowStats{Max: 0, Argmax: 1, LogSumExp: math.Ln2, Entropy: math.Ln2, CloseRank: -1, NonFinite: 3}},
		{"all masked", []float32{-inf, -inf}, []int32{0}, runtime.RowStats{Max: -inf, Argmax: -1, LogSumExp: minusInf}},
		{"all dropped", []float32{nan, inf}, nil, runtime.RowStats{Max: -inf, Argmax: -1, LogSumExp: minusInf,
			CloseRank: -1, NonFinite: 2}},
		{"empty", nil, []int32{0}, runtime.RowStats{Max: -inf, Argmax: -1, LogSumExp: minusInf, CloseRank: -1}},
		{"apart", []float32{1e4, -1e4, 1e4}, []int32{1},
			runtime.RowStats{Max: 1e4, Argmax: 0, LogSumExp: 1e4 + math.Ln2, Entropy: math.Ln2, CloseRank: 2}},
		{"widest", []float32{math.MaxFloat32, -math.MaxFloat32}, nil, runtime.RowStats{Max: math.MaxFloat32, Argmax: 0,
			LogSumExp: math.MaxFloat32, CloseRank: -1}},
	} {
		near(t, c.name, meridian.ReferenceProbe(c.row, c.close), c.want, 1e-6)
		var fast runtime.RowStats
		meridian.ProbeRow(c.row, c.close, &fast)
		near(t, c.name+", fast", fast, c.want, 1e-6)
	}
}

func near(t interface{ Errorf(string, ...any) }, what string, got, want runtime.RowStats, tol float64) {
	apart := func(a, b float64) bool { return a != b && !(math.Abs(a-b) <= tol) }
	if got.Max != want.Max || got.Argmax != want.Argmax || got.CloseRank != want.CloseRank ||
		got.NonFinite != want.NonFinite ||
		apart(got.Entropy, want.Entropy) || apart(got.LogSumExp, want.LogSumExp) ||
		apart(got.CloseMass, want.CloseMass) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// TestProbeRow: what is left out of the sums is not missed.
func TestProbeRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		spread := rapid.SampledFrom([]float64{0, 0.1, 1, 4, 10, 30, 1e4}).Draw(t, "spread")
		row := make([]float32, rapid.IntRange(0, 3000).Draw(t, "n"))
		for i := range row {
			row[i] = float32(r.NormFloat64() * spread)
			if r.IntN(100) == 0 {
				row[i] = []float32{nan, inf, -inf}[r.IntN(3)]
			}
		}
		close := rapid.SliceOfN(rapid.Int32Range(-1, 3000), 0, 4).Draw(t, "close")
		var fast runtime.RowStats
		meridian.ProbeRow(row, close, &fast)
		near(t, "fast", fast, meridian.ReferenceProbe(row, close), 1e-7)
	})
}

func TestProbeRowAllocs(t *testing.T) {
	e := fake.New(fake.Config{})
	e.Batch().Add(10, 0, 0, true)
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	p, close := meridian.ProberOf(e), []int32{1, 2}
	var st runtime.RowStats
	p.ProbeRow(0, close, &st)
	if n := testing.AllocsPerRun(100, func() { p.ProbeRow(0, close, &st) }); n != 0 {
		t.Errorf("%v allocations a row", n)
	}
}

func BenchmarkProbeGo(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, 152_064)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 3)
	}
	var st runtime.RowStats
	b.ReportAllocs()
	for b.Loop() {
		meridian.ProbeRow(row, []int32{7}, &st)
	}
}
