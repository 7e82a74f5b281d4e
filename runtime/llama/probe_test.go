//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/x448/float16"
	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

var inf32, nan32 = float32(math.Inf(1)), float32(math.NaN())

// sameStats compares the kernel's answer with the reference's. It returns the largest difference.
func sameStats(t interface{ Errorf(string, ...any) }, what string, got, want runtime.RowStats) (worst float64) {
	apart := func(a, b, tol float64) bool {
		if a == b {
			return false
		}
		worst = max(worst, math.Abs(a-b))
		return !(math.Abs(a-b) <= tol)
	}
	if got.Max != want.Max || got.Argmax != want.Argmax || got.CloseRank != want.CloseRank ||
		got.NonFinite != want.NonFinite ||
		apart(got.Entropy, want.Entropy, runtime.EntropyError) ||
		apart(got.LogSumExp, want.LogSumExp, runtime.LogSumExpError) ||
		apart(got.CloseMass, want.CloseMass, runtime.EntropyError) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
	return worst
}

// probeRows are rows with different sources of error.
var probeRows = []struct {
	name string
	fill func(r *rand.Rand, row []float32)
}{
	{"flat", func(r *rand.Rand, row []float32) { each(row, func(int) float64 { return 0.01 * r.Float64() }) }},
	{"equal", func(_ *rand.Rand, row []float32) { each(row, func(int) float64 { return -17.3 }) }},
	{"gaussian", func(r *rand.Rand, row []float32) { each(row, func(int) float64 { return 3 * r.NormFloat64() }) }},
	{"peaked", func(r *rand.Rand, row []float32) {
		each(row, func(int) float64 { return 2 * r.NormFloat64() })
		row[r.IntN(len(row))] = 25
	}},
	{"one hot", func(r *rand.Rand, row []float32) {
		each(row, func(int) float64 { return -1e4 })
		row[r.IntN(len(row))] = 1e4
	}},
	{"extreme", func(r *rand.Rand, row []float32) {
		each(row,
			func(int) float64 { return 1e4 * (2*r.Float64() - 1) })
	}},
	{"far from zero", func(r *rand.Rand,
		row []float32) {
		each(row, func(int) float64 { return 1e4 + 3*r.NormFloat64() })
	}},
	{"ascending", func(_ *rand.Rand, row []float32) { each(row, func(i int) float64 { return 0.01 * float64(i) }) }},
	{"descending", func(_ *rand.Rand, row []float32) { each(row, func(i int) float64 { return -0.01 * float64(i) }) }},
	// Half of the mass on one entry and half on all others: the worst for an error that all of them have in common.
	{"two levels", func(_ *rand.Rand, row []float32) {
		each(row, func(int) float64 { return -math.Log(float64(len(row))) })
		row[len(row)/2] = 0
	}},
	{"two levels, far", func(_ *rand.Rand, row []float32) {
		each(row, func(int) float64 { return -7.7 })
		row[0] = 8.4
	}},
	{"tail at the bound", func(_ *rand.Rand, row []float32) {
		each(row, func(int) float64 { return -20.01 - math.Log(float64(len(row))) })
		row[0] = 0
	}},
	{"masked", func(r *rand.Rand, row []float32) {
		each(row, func(int) float64 {
			if r.IntN(2) == 0 {
				return math.Inf(-1)
			}
			return r.NormFloat64()
		})
	}},
	{"all masked", func(_ *rand.Rand, row []float32) { each(row, func(int) float64 { return math.Inf(-1) }) }},
	{"all NaN", func(_ *rand.Rand, row []float32) { each(row, func(int) float64 { return math.NaN() }) }},
	{"broken", func(r *rand.Rand, row []float32) {
		each(row, func(int) float64 { return 3 * r.NormFloat64() })
		for range 20 {
			row[r.IntN(len(row))] = []float32{nan32, inf32, -inf32, -nan32}[r.IntN(4)]
		}
	}},
	{"denormal", func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = math.Float32frombits(r.Uint32() & 0x807fffff)
		}
	}},
	{"widest", func(r *rand.Rand, row []float32) {
		each(row, func(int) float64 { return math.MaxFloat32 * (2*r.Float64() - 1) })
	}},
}

func each(row []float32, f func(i int) float64) {
	for i := range row {
		row[i] = float32(f(i))
	}
}

// TestProbe compares the three kernels with the float64 reference, over vocabularies of real models and the lengths
// around a block of the kernel's.
func TestProbe(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	worst := map[string]float64{}
	for _, n := range []int{1, 2, 7, 31, 1023, 1024, 1025, 2047, 4097, 32_000, 49_152, 128_256, 151_936, 152_064} {
		row, half := make([]float32, n), make([]uint16, n)
		for _, c := range probeRows {
			c.fill(r, row)
			what := fmt.Sprintf("%s, n = %d", c.name, n)
			for _, close := range [][]runtime.Token{nil, {int32(r.IntN(n))}, {-1, int32(n), 0},
				{int32(n - 1), int32(n / 2)}} {
				if len(close) == 2 && n < 3 {
					continue // the ids are distinct
				}
				d := sameStats(t, what+", f32", probeF32(row, close), meridian.ReferenceProbe(row, close))
				worst[c.name] = max(worst[c.name], d)

				for i, v := range row {
					half[i] = float16.Fromfloat32(v).Bits()
				}
				sameStats(t, what+", f16", probeF16(half, close), meridian.ReferenceProbe(fromHalf(half), close))
				for i, v := range row {
					half[i] = uint16(math.Float32bits(v) >> 16)
				}
				sameStats(t, what+", bf16", probeBF16(half, close), meridian.ReferenceProbe(fromBrain(half), close))
			}
		}
	}
	for _, c := range probeRows {
		t.Logf("%-18s %.1e", c.name, worst[c.name])
	}
	sameStats(t, "nothing", probeF32(nil, []runtime.Token{0}), meridian.ReferenceProbe(nil, []runtime.Token{0}))
}

func fromHalf(row []uint16) []float32 {
	out := make([]float32, len(row))
	for i, h := range row {
		out[i] = float16.Frombits(h).Float32()
	}
	return out
}

func fromBrain(row []uint16) []float32 {
	out := make([]float32, len(row))
	for i, h := range row {
		out[i] = math.Float32frombits(uint32(h) << 16)
	}
	return out
}

// TestProbeEveryHalf: each of the 65,536 float16 values is decoded correctly.
func TestProbeEveryHalf(t *testing.T) {
	for u := range 1 << 16 {
		row := []uint16{uint16(u)}
		if got, want := probeF16(row, nil), meridian.ReferenceProbe(fromHalf(row), nil); got != want {
			t.Fatalf("f16 %#04x: %+v, want %+v", u, got, want)
		}
		if got, want := probeBF16(row, nil), meridian.ReferenceProbe(fromBrain(row), nil); got != want {
			t.Fatalf("bf16 %#04x: %+v, want %+v", u, got, want)
		}
	}
}

// TestProbeLevels measures the error that all terms share, at every distance from the largest logit with relevant mass.
func TestProbeLevels(t *testing.T) {
	row := make([]float32, 152_064)
	worst, at := 0.0, 0.0
	for d := 0.0; d < 34; d += 0.0937 {
		each(row, func(int) float64 { return 1 - d })
		row[100_000] = 1
		if e := sameStats(t, fmt.Sprintf("d = %v", d), probeF32(row, nil),
			meridian.ReferenceProbe(row, nil)); e > worst {
			worst, at = e, d
		}
	}
	t.Logf("largest error %.1e, %.2f below the top", worst, at)
}

// TestProbeProperty: rows of a base distribution with entries of any bits.
func TestProbeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		n := rapid.IntRange(1, 5000).Draw(t, "n")
		row := make([]float32, n)
		spread := rapid.SampledFrom([]float64{0, 0.1, 1, 4, 20, 1e4}).Draw(t, "spread")
		each(row, func(int) float64 { return r.NormFloat64() * spread })
		for _, b := range rapid.SliceOfN(rapid.Uint32(), 0, 20).Draw(t, "bits") {
			row[r.IntN(n)] = math.Float32frombits(b)
		}
		close := rapid.SliceOfNDistinct(rapid.Int32Range(-1, int32(n)), 0, 4, rapid.ID).Draw(t, "close")
		sameStats(t, "f32", probeF32(row, close), meridian.ReferenceProbe(row, close))
	})
}

// FuzzProbe: any bytes are a row, and the first of them says how long a run of plain logits stands before it.
func FuzzProbe(f *testing.F) {
	bits := func(lead byte, row ...float32) []byte {
		b := []byte{lead}
		for _, v := range row {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	f.Add(bits(0, 0, 1, 2, 3), int32(3))
	f.Add(bits(255, nan32, 1e4, -1e4, inf32, -inf32), int32(0))
	f.Add(bits(3, -inf32, -inf32, math.MaxFloat32, -math.MaxFloat32), int32(-1))
	f.Fuzz(func(t *testing.T, b []byte, close int32) {
		if len(b) == 0 {
			return
		}
		row := make([]float32, 17*int(b[0]))
		each(row, func(i int) float64 { return float64(i%29) / 4 })
		halves := make([]uint16, 0, len(b)/2)
		for b := b[1:]; len(b) >= 4; b = b[4:] {
			row = append(row, math.Float32frombits(binary.LittleEndian.Uint32(b)))
			halves = append(halves, binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]))
		}
		ids := []runtime.Token{close}
		sameStats(t, "f32", probeF32(row, ids), meridian.ReferenceProbe(row, ids))
		sameStats(t, "f16", probeF16(halves, ids), meridian.ReferenceProbe(fromHalf(halves), ids))
		sameStats(t, "bf16", probeBF16(halves, ids), meridian.ReferenceProbe(fromBrain(halves), ids))
	})
}

// benchRows are logits as a language model gives them, a few hundred likely tokens over a wide bulk; several rows, so
// that the branch predictor does not learn one.
func benchRows(n int) (rows [8][]float32) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range rows {
		rows[i] = make([]float32, n)
		each(rows[i], func(int) float64 { return 2.5 * r.NormFloat64() })
		for range 200 {
			rows[i][r.IntN(n)] = float32(6 + 4*r.ExpFloat64())
		}
	}
	return rows
}

// BenchmarkProbe: one row, compared with the cost of reading it (argmax).
func BenchmarkProbe(b *testing.B) {
	close := []runtime.Token{11}
	for _, n := range []int{32_000, 152_064} {
		rows := benchRows(n)
		half, brain := make([]uint16, n), make([]uint16, n)
		for i, v := range rows[0] {
			half[i], brain[i] = float16.Fromfloat32(v).Bits(), uint16(math.Float32bits(v)>>16)
		}
		i := 0
		for _, c := range []struct {
			name string
			f    func()
		}{
			{"f32", func() { i++; probeF32(rows[i%len(rows)], close) }},
			{"f16", func() { probeF16(half, close) }},
			{"bf16", func() { probeBF16(brain, close) }},
			{"argmax", func() { i++; ArgMax(rows[i%len(rows)]) }},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.f()
				}
			})
		}
	}
}

func TestProbeAllocs(t *testing.T) {
	row, half, close := make([]float32, 5000), make([]uint16, 5000), []runtime.Token{11, 12}
	if n := testing.AllocsPerRun(100, func() {
		probeF32(row, close)
		probeF16(half, close)
		probeBF16(half, close)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkProbeAndSample is a think token's work on its row, the probe and a sampler that is told its result;
// of_sample is its ratio to sampling alone.
func BenchmarkProbeAndSample(b *testing.B) {
	close := []runtime.Token{11}
	for _, n := range []int{32_000, 152_064} {
		rows := benchRows(n)
		for _, c := range []struct {
			name string
			p    sampler.Params
		}{
			{"greedy", sampler.Params{RepeatPenalty: 1, TopP: 1}},
			{"default", sampler.DefaultParams()},
			{"top_p_0.95", sampler.Params{Temperature: 0.8, TopP: 0.95, RepeatPenalty: 1}},
			{"min_p_0.05", sampler.Params{Temperature: 0.8, TopP: 1, MinP: 0.05, RepeatPenalty: 1}},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, c.name), func(b *testing.B) {
				chain := sampler.New(c.p, sampler.VocabFacts{Size: n}, new(sampler.Scratch))
				var alone time.Duration
				b.ReportAllocs()
				var st runtime.RowStats
				i := 0
				for b.Loop() {
					i++
					row := rows[i%len(rows)]
					b.StopTimer()
					start := time.Now()
					if _, err := chain.Sample(row); err != nil {
						b.Fatal(err)
					}
					alone += time.Since(start)
					b.StartTimer()
					st = probeF32(row, close)
					if _, err := chain.SampleProbed(row, &st); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed())/float64(alone), "of_sample")
			})
		}
	}
}
