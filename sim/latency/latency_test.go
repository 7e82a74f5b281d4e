package latency

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
)

func TestTicks(t *testing.T) {
	for in, want := range map[float64]int64{1.999: 1, -0.5: 0, 0: 0, 1e30: math.MaxInt64, math.Inf(1): math.MaxInt64} {
		if got := Ticks(in); got != want {
			t.Errorf("Ticks(%v) = %d, want %d", in, got, want)
		}
	}
	if Ticks(math.NaN()) != math.MaxInt64 {
		t.Error("NaN must become the largest tick")
	}
}

func TestLinearModels(t *testing.T) {
	m, err := NewBlackbox([]float64{100, 1.5, 7.9}, []float64{1000, 10, 5.5})
	if err != nil {
		t.Fatal(err)
	}
	if m.Step(&Batch{}) != 1000 || m.Step(&Batch{PrefillTokens: 3, DecodeTokens: 1}) != 1035 || m.Enqueue(3) != 104 ||
		m.Token() != 7 || m.NeedsItems() {
		t.Errorf("steps %d and %d, enqueue %d, token %d", m.Step(&Batch{}),
			m.Step(&Batch{PrefillTokens: 3, DecodeTokens: 1}), m.Enqueue(3), m.Token())
	}
	fitted, err := ParseCostModel([]byte(`{"a": 2, "b": 0.5, "c": 1, "d": 0.001, "e": 0.002, "updated": "x"}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCalibrated([]float64{0, 0, 0}, fitted.Us)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Step(&Batch{PrefillTokens: 4, DecodeTokens: 2, Attended: 1000, Read: 500}); got !=
		2000+2000+2000+1000+1000 {
		t.Errorf("calibrated step %d", got)
	}
	saved, err := ParseCostModel([]byte(
		`{"a_ms":2,"b_ms_prefill":0.5,"c_ms_decode":1,"d_ms_attended":0.001,"e_ms_read":0.002,` +
			`"cov":[1,0,0,0,0,1,0,0,0,1,0,0,1,0,1],"noise":0.01,` +
			`"error":0.1,"ratio":1.2,"steps":9,"prompt_steps":3,"largest_chunk":64}`))
	if err != nil || !slices.Equal(saved.Us, fitted.Us) || saved.Noise != 0.01 || saved.State == nil ||
		saved.State.Steps != 9 {
		t.Errorf("the daemon's saved state: %+v, %v", saved, err)
	}
	text, err := json.Marshal(&Fitted{Us: fitted.Us, Noise: 0.02, Between: []float64{300, 20}})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseCostModel(text); err != nil || !slices.Equal(again.Us, fitted.Us) || again.Noise != 0.02 ||
		!slices.Equal(again.Between, []float64{300, 20}) {
		t.Errorf("%s: %+v, %v", text, again, err)
	}
	if old, err := ParseCostModel([]byte(`{"a": 2, "b": 0.5, "c": 1, "d": 0.001}`)); err != nil ||
		!slices.Equal(old.Us, []float64{2000, 500, 1000, 1, 0}) {
		t.Errorf("without e: %+v, %v", old, err)
	}
	for _, bad := range []string{`{"a_ms":2,"steps":0}`, `{"a_ms":-2,"steps":4}`,
		`{"a":1,"b":1,"c":1,"d":1,"between":[1]}`, `{"a":1,"b":1,"c":1,"d":1,"noise":-1}`, `{`, `{}`,
		`{"a":1,"b":1,"c":1}`, `{"a":1,"b":1,"c":1,"d":1,"e":-1}`, `{"a":-1,"b":1,"c":1,"d":1}`} {
		if _, err := ParseCostModel([]byte(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	if _, err := NewCalibrated([]float64{0, 0, 0}, []float64{0, 0, 0, 0}); err == nil {
		t.Error("an unfitted cost model was accepted")
	}
}

// TestFitCosts finds the coefficients that made the samples, through noise and outliers, and never a negative one.
func TestFitCosts(t *testing.T) {
	want := []float64{3000, 120, 900, 0.4, 1.5}
	var samples []Sample
	noise := uint64(1)
	for i := range 400 {
		s := Sample{PrefillTokens: i * 7 % 64 * (i % 2), DecodeTokens: 1 + i%5, Attended: float64(i * 13 % 4000),
			Read: float64(i * 29 % 1500)}
		noise = noise*6364136223846793005 + 1442695040888963407
		s.Us = predict([costTerms]float64(want), s) * (0.98 + 0.04*float64(noise>>40)/float64(1<<24))
		if i%40 == 0 {
			s.Us *= 20
		}
		samples = append(samples, s)
	}
	got, median, err := FitCosts(samples)
	if err != nil || median > 0.02 {
		t.Fatalf("median error %v, %v", median, err)
	}
	for i := range want {
		if math.Abs(got.Us[i]-want[i]) > 0.1*want[i] {
			t.Errorf("coefficient %d is %v, want %v", i, got.Us[i], want[i])
		}
	}
	// Only decodes of one token: what cannot be told apart is not made up, and nothing is negative.
	samples = samples[:0]
	for i := range 50 {
		samples = append(samples, Sample{DecodeTokens: 1, Attended: float64(100 - i), Us: 5000})
	}
	got, _, err = FitCosts(samples)
	if c := got.Us; err != nil || c[0] < 0 || c[1] != 0 || c[2] < 0 || c[3] < 0 || c[4] < 0 ||
		math.Abs(predict([costTerms]float64(c), samples[0])-5000) > 50 {
		t.Errorf("%v, %v", got, err)
	}
	if _, _, err := FitCosts(samples[:3]); err == nil {
		t.Error("three samples were enough")
	}
}

// TestFitCurve finds step times that are no line: kernels that take tiles of four rows.
func TestFitCurve(t *testing.T) {
	truth := func(s *Sample) float64 {
		n := s.PrefillTokens + s.DecodeTokens
		return 2000 + 5000*float64(n/4) + 4000*float64(n%4) + 2500*float64(
			s.Rows) + 3*s.Attended + 2*s.Read + 4*float64(s.Runs) + 0.25*float64(n*s.Resident)
	}
	var samples []Sample
	noise := uint64(1)
	for i := range 3000 {
		s := Sample{DecodeTokens: i % 9, PrefillTokens: i * 7 % 11, Attended: float64(i * 37 % 6000)}
		if i%6 == 0 {
			s.PrefillTokens = i * 13 % 500
		}
		s.Rows = s.DecodeTokens + i%2
		s.Read, s.Runs, s.Resident = s.Attended/float64(1+i%3*s.PrefillTokens), i*31%700, i*29%8000
		noise = noise*6364136223846793005 + 1442695040888963407
		s.Us = truth(&s) * (0.97 + 0.06*float64(noise>>40)/float64(1<<24))
		if i%50 == 0 {
			s.Us *= 2
		}
		samples = append(samples, s)
	}
	f, median, err := FitCosts(samples)
	if err != nil || median > 0.03 || f.Curve == nil {
		t.Fatalf("%+v, median %v, %v", f, median, err)
	}
	if err := f.Curve.Check(); err != nil {
		t.Fatal(err)
	}
	if c := f.Curve; math.Abs(c.Row-2500) > 200 || math.Abs(c.Attended-3) > 0.3 || math.Abs(c.Read-2) > 0.3 ||
		math.Abs(c.Run-4) > 0.6 || math.Abs(c.Resident-0.25) > 0.02 {
		t.Errorf("row %v, attended %v, read %v, run %v, resident %v", c.Row, c.Attended, c.Read, c.Run, c.Resident)
	}
	slow := slices.Clone(samples)
	for i := range slow {
		slow[i].Us *= 1.25
	}
	before := f.Predict(&samples[100])
	if k := f.AsFastAs(slow); math.Abs(k-1.25) > 0.02 || math.Abs(f.Predict(&samples[100])/before/k-1) > 1e-9 {
		t.Errorf("a machine 1.25 times slower is %v times slower, and a step of %v takes %v", k, before,
			f.Predict(&samples[100]))
	}
	if k := f.AsFastAs(samples); math.Abs(k-0.8) > 0.02 || f.AsFastAs(nil) != 1 {
		t.Errorf("back again: %v", k)
	}
	m := Calibrated{Curve: f.Curve}
	for n := 1; n < 17; n++ {
		s := Sample{PrefillTokens: n, Attended: 100}
		if got := float64(m.Step(&Batch{PrefillTokens: n, Attended: 100})); math.Abs(got/truth(&s)-1) > 0.08 {
			t.Errorf("%d tokens: %.0f, want %.0f", n, got, truth(&s))
		}
	}
	if got, want := float64(m.Step(&Batch{PrefillTokens: 2000, Attended: 0})),
		truth(&Sample{PrefillTokens: 2000}); math.Abs(got/want-1) > 0.15 {
		t.Errorf("beyond the data: %.0f, want about %.0f", got, want)
	}
}

// TestSpread: how steps lie around the model is fitted for steps of several lengths, and drawn as it was.
func TestSpread(t *testing.T) {
	var samples []Sample
	noise := uint64(1)
	for i := range 4000 {
		s := Sample{PrefillTokens: 1 + i%2*99}
		noise = noise*6364136223846793005 + 1442695040888963407
		u := float64(noise>>40) / float64(1<<24)
		s.Us = 1000 * float64(s.PrefillTokens) * (1 + 0.1*u)
		if s.PrefillTokens == 1 && u > 0.9 {
			s.Us *= 1.8 // one of ten short steps is disturbed
		}
		samples = append(samples, s)
	}
	f, _, err := FitCosts(samples)
	if err != nil || len(f.Spread) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	if err := f.Spread.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tokens int
		ratio  float64 // of the quantiles 0.99 and 0.5
	}{{1, 1.09 * 1.8 / 1.05}, {100, 1.1 / 1.05}} {
		us := f.Predict(&Sample{PrefillTokens: c.tokens})
		if got := f.Spread.At(us, 0.99) / f.Spread.At(us, 0.5); math.Abs(got/c.ratio-1) > 0.03 {
			t.Errorf("%d tokens: quantile 0.99 is %.2f of the median, want %.2f", c.tokens, got, c.ratio)
		}
		if lo, hi := f.Spread.At(us, 0), f.Spread.At(us, 0.9999999); !(lo > 0 && lo <= hi) {
			t.Errorf("%d tokens: from %v to %v", c.tokens, lo, hi)
		}
	}
	text, err := f.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCostModel(text)
	if err != nil || len(again.Spread) != 2 || again.Spread.At(3000, 0.7) != f.Spread.At(3000, 0.7) {
		t.Errorf("%s is read as %+v, %v", text, again, err)
	}
	for _, bad := range []string{`[{"from_us":1,"ratios":[1,1,1]}]`, `[{"from_us":0,"ratios":[1]}]`,
		`[{"from_us":0,"ratios":[2,1,1]}]`, `[{"from_us":0,"ratios":[0,1,1]}]`, `[{}]`} {
		if _, err := ParseCostModel([]byte(`{"a":1,"b":1,"c":1,"d":1,"spread":` + bad + `}`)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// TestFitBetween finds what passes between two steps, fixed and for each row.
func TestFitBetween(t *testing.T) {
	var samples []Sample
	for i := range 100 {
		rows := i % 5
		samples = append(samples, Sample{Rows: rows, BetweenUs: 200 + 30*float64(rows) + float64(i%7) - 3})
	}
	samples = append(samples, Sample{Rows: 2, BetweenUs: 90_000}, Sample{Rows: 2})
	if c := FitBetween(samples); len(c) != 2 || math.Abs(c[0]-200) > 3 || math.Abs(c[1]-30) > 2 {
		t.Errorf("%v, want 200 and 30", c)
	}
	if c := FitBetween(samples[:1]); len(c) != 2 || c[1] != 0 {
		t.Errorf("one sample: %v", c)
	}
	if c := FitBetween(nil); c != nil {
		t.Errorf("no sample: %v", c)
	}
}

func FuzzParseCostModel(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":2,"c":3,"d":4,"noise":0.1,"between":[1,2]}`))
	f.Add([]byte(`{"a_ms":1,"steps":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseCostModel(data)
		if err != nil {
			return
		}
		for _, v := range append(append([]float64{m.Noise}, m.Us...), m.Between...) {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Errorf("%q: %v was accepted", data, v)
			}
		}
	})
}
