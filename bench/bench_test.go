package bench

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestSideAndMedian(t *testing.T) {
	gaps := make([]float64, 100)
	for i := range gaps {
		gaps[i] = float64(100 - i) // 1 … 100, backwards
	}
	if s := side(7, gaps); s.TokensPerSecond != 7 || s.ITLp50Ms != 50 || s.ITLp95Ms != 95 || s.ITLp99Ms != 99 {
		t.Errorf("%+v", s)
	}
	for want, xs := range map[float64][]float64{0: nil, 3: {3}, 2: {9, 1, 2}} {
		if got := median(xs); got != want {
			t.Errorf("median of %v is %v, want %v", xs, got, want)
		}
	}
	if r := ratios([]Side{{ITLp95Ms: 3}}, []Side{{ITLp95Ms: 2}},
		func(s Side) float64 { return s.ITLp95Ms }); r[0] != 1.5 {
		t.Errorf("%v", r)
	}
}

// TestMedianInterval: the ranks are those of tables of the sign test's intervals (95 %, two-sided); of many samples of
// one distribution the interval misses the median about as often as it may.
func TestMedianInterval(t *testing.T) {
	upTo := func(n int) (xs []float64) {
		for i := range n {
			xs = append(xs, float64(n-i)) // backwards
		}
		return xs
	}
	for n, want := range map[int][2]float64{0: {}, 5: {}, 6: {1, 6}, 9: {2, 8}, 10: {2, 9}, 15: {4, 12}, 20: {6, 15},
		31: {10, 22}} {
		if got := medianInterval(upTo(n)); got != want {
			t.Errorf("of %d: %v, want %v", n, got, want)
		}
	}
	rng, missed := rand.New(rand.NewPCG(1, 2)), 0
	const series = 2000
	for range series {
		var xs []float64
		for range 21 {
			xs = append(xs, rng.ExpFloat64())
		}
		if in := medianInterval(xs); math.Ln2 < in[0] || math.Ln2 > in[1] {
			missed++
		}
	}
	if missed == 0 || missed > series*6/100 {
		t.Errorf("the median is missed %d times of %d", missed, series)
	}
}

func TestTimesRoundTrip(t *testing.T) {
	times := [][]int64{{1, 2, 3}, {4, 5, 1 << 60}}
	got, err := DecodeTimes(EncodeTimes(times), ClientJob{Streams: 2, Tokens: 3})
	if err != nil || !reflect.DeepEqual(got, times) {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range [][]byte{{1}, nil, EncodeTimes(times[:1]), EncodeTimes(append(times, times[0]))} {
		if got, err := DecodeTimes(bad, ClientJob{Streams: 2, Tokens: 3}); err == nil {
			t.Errorf("%v is read as %v", bad, got)
		}
	}
}

func TestPromptsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for i := range 16 {
		for round := range 8 {
			p := prompt(i, round, 4)
			if seen[p] || len(p) < 12 {
				t.Errorf("prompt(%d, %d) is %q", i, round, p)
			}
			seen[p] = true
		}
	}
}
