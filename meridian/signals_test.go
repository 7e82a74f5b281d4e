package meridian

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// TestEATVectors: the reference update by hand, and against its definition.
func TestEATVectors(t *testing.T) {
	var e EAT
	for i, want := range []EAT{ // α = 0.5
		{1, 2, 2, 0},
		{2, 1, 1.5, 0.125},
		{3, 1, 1.25, 0.09375},
		{4, 3, 2.125, 0.4296875},
	} {
		e.Add(want.X, 0.5)
		if e != want {
			t.Errorf("probe %d: %+v, want %+v", i+1, e, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		alpha := rapid.Float64Range(0.01, 1).Draw(t, "alpha")
		var e EAT
		m, v := 0.0, 0.0
		for i, x := range rapid.SliceOfN(rapid.Float64Range(0, 12), 1, 50).Draw(t, "x") {
			if i == 0 {
				m = x
			} else {
				m = alpha*x + (1-alpha)*m
				v = alpha*(x-m)*(x-m) + (1-alpha)*v
			}
			e.Add(x, alpha)
			if !near(e.Mean, m, 1e-12) || !near(e.Var, v, 1e-12) {
				t.Fatalf("probe %d: %+v, want mean %v variance %v", i+1, e, m, v)
			}
		}
	})
}

// TestEATStartsFromTheFirstSample: meridian-core began its averages at 0.5 and 0.25, so that the time to converge was
// (1−α)ᵏ(1−(1−α)ᵏ)(x−0.5)², whatever the model did: 108 probes for x = 0. Here a constant has no variance at all, and
// only the warm-up decides.
func TestEATStartsFromTheFirstSample(t *testing.T) {
	for _, x := range []float64{0, 0.5, 0.95} {
		var e EAT
		steady := 0
		for steady == 0 {
			e.Add(x, 0.1)
			if e.Var != 0 {
				t.Fatalf("constant %v: variance %v", x, e.Var)
			}
			if e.Steady(4/0.1, 1e-9) {
				steady = e.N
			}
		}
		if steady != 41 {
			t.Errorf("constant %v is steady at probe %d, want 41: the first past 4/α", x, steady)
		}
	}
}

// TestEATStep: an answer that settles after 60 probes. The numbers are those of the reference procedure, which counts
// from 0 and forgets the first variance, so it names a probe two earlier than the one it has looked at.
func TestEATStep(t *testing.T) {
	text, err := os.ReadFile("testdata/eat_step.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(text), "\n") // below the comment
	var xs []float64
	for line := range strings.Lines(lines) {
		x, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			t.Fatal(err)
		}
		xs = append(xs, x)
	}
	for _, c := range []struct {
		alpha, threshold float64
		reference        int
	}{
		{0.075, 1. / 1024, 165}, {0.1, 1. / 1024, 137}, {0.2, 1. / 1024, 95},
		{0.075, 1. / 64, 129}, {0.1, 1. / 64, 110}, {0.2, 1. / 64, 82},
	} {
		var e EAT
		exit := 0
		for i, x := range xs {
			if e.Add(x, c.alpha); e.Steady(4/c.alpha, c.threshold) {
				exit = i + 1
				break
			}
		}
		if exit != c.reference+2 {
			t.Errorf("α %v, δ %v: exit at probe %d, want %d", c.alpha, c.threshold, exit, c.reference+2)
		}
	}
}

func TestNotFiniteIsDropped(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		var e EAT
		r := NewRPDI(2)
		var ind Indicator
		if e.Add(x, 0.1) || r.Add(x) || ind.Add(x, 1, 0.1) {
			t.Errorf("%v was taken", x)
		}
		if e.N+r.N()+ind.N != 0 {
			t.Errorf("%v was counted", x)
		}
	}
}

func TestRPDIVectors(t *testing.T) {
	r := NewRPDI(4)
	for i, c := range []struct{ h, want float64 }{
		{1, 0}, {1, 0}, {1, 0},
		{1, 1},              // the window is full: local = global
		{1, 1},              //
		{3, 1.5 / (8. / 6)}, // (1+1+1+3)/4 over 8/6
		{3, 2 / (11. / 7)},  //
		{3, 2.5 / (14. / 8)},
		{3, 3 / (17. / 9)},
	} {
		r.Add(c.h)
		if !near(r.Index(), c.want, 1e-12) {
			t.Errorf("after %d: %v, want %v", i+1, r.Index(), c.want)
		}
	}
	sure := NewRPDI(2)
	sure.Add(0)
	sure.Add(0)
	if sure.Index() != 0 {
		t.Errorf("no entropy at all: %v", sure.Index())
	}
}

// TestRPDIBound: the index cannot exceed N/W, so no threshold λ fires before λW tokens, and it is its definition.
func TestRPDIBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.IntRange(1, 20).Draw(t, "window")
		r := NewRPDI(w)
		var hs []float64
		for range rapid.IntRange(1, 120).Draw(t, "n") {
			h := rapid.Float64Range(0, 12).Draw(t, "h")
			hs = append(hs, h)
			r.Add(h)
			got, n := r.Index(), len(hs)
			if got > float64(n)/float64(w)+1e-9 {
				t.Fatalf("index %v after %d of window %d", got, n, w)
			}
			if n < w {
				continue
			}
			local, global := 0.0, 0.0
			for i, h := range hs {
				global += h / float64(n)
				if i >= n-w {
					local += h / float64(w)
				}
			}
			if global > 1e-3 && !near(got, local/global, 1e-9) {
				t.Fatalf("index %v, by definition %v", got, local/global)
			}
		}
	})
}

// TestIndicatorTrace is meridian-core's example (α 0.05, transitions at 4 and 5), where every token is a sample.
func TestIndicatorTrace(t *testing.T) {
	var x Indicator
	want := map[int][2]float64{4: {.05, .25}, 5: {.0975, .4}, 6: {.092625, 1. / 3}}
	for i, h := range []float64{0, 0, 0, 3, 3, 0} {
		x.Add(h, 2.5, 0.05)
		if w, ok := want[i+1]; ok && (!near(x.Local, w[0], 1e-12) || !near(x.Global(), w[1], 1e-12)) {
			t.Errorf("after %d: local %v global %v, want %v", i+1, x.Local, x.Global(), w)
		}
	}
}

// TestIndicatorDenominator: with one sample in 32 tokens and all of them transitions, meridian-core's ratio was 5.67
// after 17 samples, because it divided by 544 tokens; by samples it is at most 1.
func TestIndicatorDenominator(t *testing.T) {
	var x Indicator
	for range 17 {
		x.Add(3, 2.5, 0.05)
	}
	if !near(x.Local, .582, .001) || x.Global() != 1 || x.Index() > 1 {
		t.Errorf("local %v global %v index %v", x.Local, x.Global(), x.Index())
	}
}
