package soak

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// line is a series with a value a minute: base, growing by perHour percent of it an hour, ± noise percent.
func line(rule Rule, hours, base, perHour, noise float64) *Series {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &Series{Name: "x", Rule: rule}
	for m := range int(hours * 60) {
		h := float64(m) / 60
		s.Hours = append(s.Hours, h)
		s.Values = append(s.Values, base*(1+perHour*h/100+noise*(2*rng.Float64()-1)/100))
	}
	return s
}

func TestTrendIsRobust(t *testing.T) {
	for _, perHour := range []float64{0, 0.5, 3, -2} {
		s := line(Bounded, 10, 100, perHour, 2)
		for i := range s.Values {
			if i%7 == 0 {
				s.Values[i] *= 50 // a value in seven is far off
			}
		}
		s.Values[3] = math.NaN()
		got := s.Trend(1)
		if math.Abs(got.PerHour*got.Median/100-perHour) > 0.15 {
			t.Errorf("%v %% an hour: %+v", perHour, got)
		}
		if got.Points != 540 || math.Abs(got.Hours-9+1./60) > 1e-9 {
			t.Errorf("%+v", got)
		}
	}
}

// TestThinnedTrend: a trend of more values than are compared pair by pair.
func TestThinnedTrend(t *testing.T) {
	s := line(Bounded, 24*7, 100, 0.05, 1)
	if got := s.Trend(0); math.Abs(got.PerHour-0.05*100/got.Median) > 0.002 || got.Points != 7*24*60 {
		t.Errorf("%+v", got)
	}
}

// TestKendallChance compares the approximation with all orders of a few values.
func TestKendallChance(t *testing.T) {
	for _, values := range [][]float64{{1, 2, 3, 4, 5, 6, 7}, {1, 2, 2, 3, 4, 4, 4}} {
		sum := map[int]int{}
		all := 0
		var permute func(n int)
		ys := append([]float64(nil), values...)
		permute = func(n int) {
			if n == 1 {
				s := 0
				for i := range ys {
					for j := i + 1; j < len(ys); j++ {
						switch {
						case ys[j] > ys[i]:
							s++
						case ys[j] < ys[i]:
							s--
						}
					}
				}
				sum[s]++
				all++
				return
			}
			for i := range n {
				ys[i], ys[n-1] = ys[n-1], ys[i]
				permute(n - 1)
				ys[i], ys[n-1] = ys[n-1], ys[i]
			}
		}
		permute(len(ys))
		for s := 1; s <= 21; s++ {
			exact := 0
			for at, n := range sum {
				if at >= s {
					exact += n
				}
			}
			want := float64(exact) / float64(all)
			if got := kendall(s, values); sum[s] > 0 && math.Abs(got-want) > 0.02 {
				t.Errorf("%v: a sum of at least %d has a chance of %.4f, not %.4f", values, s, want, got)
			}
		}
	}
	if kendall(0, []float64{1, 1}) != 1 {
		t.Error("equal values have a trend")
	}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		s    *Series
		want string // "" = passes
	}{
		"bounded, still":        {line(Bounded, 3, 100, 0, 5), ""},
		"bounded, slow":         {line(Bounded, 30, 100, 0.8, 5), ""},
		"bounded, fast":         {line(Bounded, 3, 100, 1.5, 1), "x grows by 1.4"},
		"bounded, short":        {line(Bounded, 0.4, 100, 50, 1), ""},
		"bounded, few":          {&Series{Rule: Bounded, Hours: []float64{0, 9}, Values: []float64{1, 9}}, ""},
		"bounded, nothing":      {&Series{Rule: Bounded, Hours: []float64{0, 9}, Values: []float64{0, 0}}, ""},
		"bounded, none":         {&Series{Rule: Bounded}, ""},
		"shown":                 {line(Shown, 3, 100, 90, 1), ""},
		"flat, wild":            {line(Flat, 3, 100, 0, 90), ""},
		"flat, slightly rising": {line(Flat, 3, 100, 5, 1), ""},
		"flat, rising":          {line(Flat, 3, 100, 20, 30), "x is not flat: it rises by"},
		"flat, falling":         {line(Flat, 3, 100, -20, 1), ""},
	} {
		trend := c.s.Trend(0)
		if got := c.s.judge(&trend); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q (%+v)", name, got, trend)
		}
	}
}

// TestMixture: the first events are one of each kind, then each hundred has the same mixture, and they come as often
// as they should. A seed gives one sequence.
func TestMixture(t *testing.T) {
	m, again := NewMixture(7, 30), NewMixture(7, 30)
	seen, last := [Kinds]int{}, Event{}
	const decks = 200
	for i := range int(Kinds) + 100*decks {
		ev := m.Next()
		if ev != again.Next() || ev.At < last.At {
			t.Fatalf("event %d: %+v after %+v", i, ev, last)
		}
		seen[ev.Kind]++
		if last = ev; i == int(Kinds)-1 {
			for k, n := range seen {
				if n != 1 {
					t.Errorf("%v occurs %d times among the first events", Kind(k), n)
				}
			}
		}
	}
	for k, n := range seen {
		if n != 1+decks*deck[k] {
			t.Errorf("%v occurs %d times", Kind(k), n)
		}
	}
	if rate := float64(100*decks) / last.At.Minutes(); math.Abs(rate-30) > 1 {
		t.Errorf("%.1f events a minute", rate)
	}
	m = NewMixture(7, 30)
	m.WarmUp(10*time.Hour, 4)
	early := 0
	for m.Next().At < 10*time.Hour {
		early++
	}
	late := 0
	for m.Next().At < 20*time.Hour {
		late++
	}
	if early < 4*30*60*9 || early > 4*30*60*11 || late < 30*60*9 || late > 30*60*11 {
		t.Errorf("%d events in a warm-up of ten hours, %d in the ten hours after it", early, late)
	}
	if NewMixture(8, 30).Next() == NewMixture(7, 30).Next() {
		t.Error("another seed gives the same event")
	}
}

func TestReport(t *testing.T) {
	r := NewReport("real", 0)
	for i := range mostTexts + 5 {
		r.Wrong("answer %d", i)
	}
	r.Leaked("a file")
	r.Happened(Storm)
	r.Count("answers", 3)
	for m := range 300 {
		at := time.Duration(m) * time.Minute
		r.Sample(at, "RSS", "MiB", Bounded, 100*(1+float64(m)/60*0.02))
		r.Sample(at, "p99", "ms", Flat, math.NaN())
		r.Sample(at, "queue", "", Shown, float64(m))
	}
	res := r.Finish(5 * time.Hour)
	if res.Passed() || len(res.Failures) != 3 {
		t.Fatalf("%q", res.Failures)
	}
	var b strings.Builder
	if err := res.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| storm | 1 |", "| answers | 3 |", "FAILS: 25 wrong answers: answer 0; answer 1; ",
		"answer 19\n", "FAILS: 1 leaks: a file\n", "FAILS: RSS grows by 1.90 % an hour",
		"| RSS, MiB | 270 | 101 | 105.5 | 110.0",
		"| p99, ms | 0 | – | – | – | – | – | – | too short to judge |", "| queue | 270 | 30 | ",
		"real, 5.00 hours, of them 0.50 of warm-up"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "passed") {
		t.Error("it says that it passed")
	}
	b.Reset()
	if err := res.WriteJSON(&b); err != nil || !strings.Contains(b.String(), `"median":null`) {
		t.Errorf("%v in %s", err, b.String())
	}
	if ok := NewReport("real", 0).Finish(time.Minute); !ok.Passed() {
		t.Errorf("%q", ok.Failures)
	}
}

func TestWarmUp(t *testing.T) {
	for length, want := range map[time.Duration]time.Duration{
		10 * time.Second: 5 * time.Second, time.Hour: 10 * time.Minute, 5 * time.Hour: 30 * time.Minute,
		30 * 24 * time.Hour: 24 * time.Hour,
	} {
		if got := WarmUp(length); got != want {
			t.Errorf("%v: %v, want %v", length, got, want)
		}
	}
}
