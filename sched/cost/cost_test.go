package cost_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/cost/costtest"
)

// TestPriceList says how far the synthetic machine is from the measured list, so that what is tested on it means
// something.
func TestPriceList(t *testing.T) {
	m := costtest.New(1, 0)
	for _, c := range []struct {
		chunk int
		p50   float64
	}{{0, 15}, {4, 27}, {8, 40}, {12, 53}, {16, 67}, {24, 93}, {32, 114}, {64, 193}, {128, 369}, {256, 763}} {
		got := m.Mean(costtest.Mixed(2, 300, 750, c.chunk))
		if r := got / c.p50; r < 0.87 || r > 1.14 {
			t.Errorf("chunk %d: %.1f ms, measured %.0f", c.chunk, got, c.p50)
		}
	}
}

// TestCostLearns: from a cold start the model comes to predict a machine within its noise, over all contexts.
func TestCostLearns(t *testing.T) {
	for _, sigma := range []float64{0, 0.05, 0.15} {
		m, truth := cost.New(&cost.State{}), costtest.New(3, sigma)
		start := 0
		for i := range 400 {
			chunk := 4 + i%13
			l := costtest.Mixed(1+i%3, 100+i, start, chunk)
			m.Observe(l, truth.Took(l), true)
			start = (start + 5*chunk) % 1500
		}
		worst := 0.0
		for _, chunk := range []int{0, 4, 8, 12, 16} {
			for _, start := range []int{0, 750, 1480} {
				l := costtest.Mixed(2, 300, start, chunk)
				worst = max(worst, math.Abs(m.Predict(l)/truth.Mean(l)-1))
			}
		}
		if bound := 0.04 + sigma; worst > bound {
			t.Errorf("noise %.2f: worst prediction is off by %.3f, bound %.3f; learned %+v", sigma, worst, bound,
				m.Cost())
		}
		if bound := 0.02 + 1.2*sigma; m.RelativeError() > bound {
			t.Errorf("noise %.2f: says its error is %.3f, bound %.3f", sigma, m.RelativeError(), bound)
		}
	}
}

// TestCostLearnsWhatRowsShare: the rows of a chunk share what they read of their context, so few of them cost nearly as
// much as many, and one row more costs little. Learned beside a chat while a long prompt is computed; the coefficients
// are those of 143 M parameters in Q8_0 (2 cores of a Zen 4, AVX-512).
func TestCostLearnsWhatRowsShare(t *testing.T) {
	for _, sigma := range []float64{0, 0.08} {
		m, truth := cost.New(&cost.State{}), costtest.New(17, sigma)
		truth.Cost = cost.Cost{A: 5, B: 0.6, C: 1.5, D: 0.00032, E: 0.0011}
		rng := rand.New(rand.NewPCG(17, 17))
		for start := 0; start < 14_000; {
			l := costtest.Mixed(1, 200+start/40, start, 0)
			if start%5 != 0 {
				chunk := 4 + rng.IntN(40)
				l = costtest.Mixed(1, 200+start/40, start, chunk)
				start += chunk
			} else {
				start++
			}
			m.Observe(l, truth.Took(l), l.Prefill > 0)
		}
		bound := 0.02 + 0.7*sigma
		for _, l := range []cost.Load{costtest.Mixed(1, 550, 0, 0), costtest.Mixed(1, 550, 14_000, 4),
			costtest.Mixed(1, 550, 14_000, 8), costtest.Mixed(1, 550, 14_000, 40)} {
			if r := m.Predict(l) / truth.Mean(l); math.Abs(r-1) > bound {
				t.Errorf("noise %.2f: %+v is predicted to take %.3f of what it does", sigma, l, r)
			}
		}
		l := costtest.Mixed(1, 550, 14_000, 8)
		more := l
		more.ExtendPrompt(14_008, 1)
		r := (m.Predict(more) - m.Predict(l)) / (truth.Mean(more) - truth.Mean(l))
		if math.Abs(r-1) > 2*bound {
			t.Errorf("noise %.2f: a row more is predicted to take %.3f of what it does", sigma, r)
		}
	}
}

// TestCostUpper: about 95 of 100 steps stay below the bound, whatever the noise.
func TestCostUpper(t *testing.T) {
	for _, sigma := range []float64{0.02, 0.08, 0.2} {
		m, truth := cost.New(&cost.State{}), costtest.New(5, sigma)
		over, n := 0, 0
		for i := range 4000 {
			l := costtest.Mixed(2, 300, (i*11)%1500, 10)
			took := truth.Took(l)
			if i > 300 {
				n++
				if float64(took)/1e6 > m.Upper(l) {
					over++
				}
			}
			m.Observe(l, took, true)
		}
		if share := float64(over) / float64(n); share < 0.02 || share > 0.06 {
			t.Errorf("noise %.2f: %.3f of the steps were over the bound, margin %.2f", sigma, share, m.Margin())
		}
	}
}

// TestCostFollowsDisturbances: where a disturbed step is followed by others, the bound moves with them and is closer
// to the steps than the same errors in any order would allow; where errors are independent it is about as close.
func TestCostFollowsDisturbances(t *testing.T) {
	const sigma, steps = 0.1, 8000
	for _, carry := range []float64{0, 0.6} {
		truth := costtest.New(11, 0)
		errs := make([]float64, steps)
		for i := range errs {
			errs[i] = math.Sqrt(1-carry*carry) * sigma * truth.Rng.NormFloat64()
			if i > 0 {
				errs[i] += carry * errs[i-1]
			}
		}
		run := func(errs []float64) (bound, over, beyond float64) {
			m := cost.New(&cost.State{})
			for i, e := range errs {
				l := costtest.Mixed(2, 300, (i*11)%1500, 10)
				ms := truth.Mean(l) * math.Exp(e)
				if i >= 500 {
					bound += m.Upper(l) / truth.Mean(l) / float64(steps-500)
					if ms > m.Upper(l) {
						over += 1 / float64(steps-500)
					}
					if ms > m.Predict(l)*m.Margin() {
						beyond += 1 / float64(steps-500)
					}
				}
				m.Observe(l, time.Duration(ms*1e6), true)
			}
			return bound, over, beyond
		}
		bound, over, beyond := run(errs)
		truth.Rng.Shuffle(steps, func(i, j int) { errs[i], errs[j] = errs[j], errs[i] })
		apart, _, _ := run(errs)
		if over < 0.02 || over > 0.06 || beyond < 0.02 || beyond > 0.07 {
			t.Errorf("carried %.1f: %.3f of the steps were over the bound, %.3f over the margin", carry, over, beyond)
		}
		if r := bound / apart; carry == 0 && math.Abs(r-1) > 0.01 || carry > 0 && r > 0.98 {
			t.Errorf("carried %.1f: the bound is %.3f of the mean, %.3f with the same errors in another order", carry,
				bound, apart)
		}
	}
}

// TestCostForgetsADisturbance: what disturbed a step with a prompt says nothing about one a hundred answers later.
func TestCostForgetsADisturbance(t *testing.T) {
	m, truth := cost.New(&cost.State{}), costtest.New(13, 0)
	step := func(chunk int, speed float64) {
		l := costtest.Mixed(2, 300, 700, chunk)
		truth.Speed = speed
		m.Observe(l, truth.Took(l), chunk > 0)
	}
	for i := range 400 { // slow and fast by turns, four steps each
		step(10, 1+0.2*float64(i/4%2))
	}
	l := costtest.Mixed(2, 300, 700, 10)
	step(10, 1.2)
	slow := m.Upper(l) / m.Predict(l)
	for range 100 {
		step(0, 1)
	}
	calm := m.Upper(l) / m.Predict(l)
	if m.NextError() > 0.001 || slow < 1.02*calm {
		t.Errorf("right after a slow step the bound is %.3f of the prediction, later %.3f (%.4f carried)", slow, calm,
			m.NextError())
	}
}

// TestCostSpeedChange: when everything takes 2.5 times as long from one step to the next, or as long as before
// again, few steps are predicted wrongly; one outlier moves nothing much.
func TestCostSpeedChange(t *testing.T) {
	m, truth := cost.New(&cost.State{}), costtest.New(9, 0.04)
	run := func(n int) (wrong int) {
		for i := range n {
			l := costtest.Mixed(2, 300, (i*37)%1500, 4+i%9)
			if r := m.Predict(l) / truth.Mean(l); r < 0.8 || r > 1.25 {
				wrong++
			}
			m.Observe(l, truth.Took(l), true)
		}
		return wrong
	}
	run(300)
	for _, speed := range []float64{2.5, 1, 0.4, 1} {
		truth.Speed = speed
		if wrong := run(100); wrong > 8 {
			t.Errorf("after a change to %v: %d steps were predicted wrongly", speed, wrong)
		}
	}
	l := costtest.Mixed(2, 300, 500, 8)
	before := m.Predict(l)
	m.Observe(l, 30*time.Second, true)
	if r := m.Predict(l) / before; r > 1.1 {
		t.Errorf("one step of 30 s moved the prediction by %.2f", r)
	}
}

// TestCostFits: the chunk that fits is the largest that does, and what was never measured makes it smaller.
func TestCostFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, truth := cost.New(&cost.State{}), costtest.New(rapid.Uint64().Draw(t, "seed"), 0.05)
		for i := range rapid.IntRange(0, 200).Draw(t, "steps") {
			l := costtest.Mixed(i%4, 10*i, 7*i, i%20)
			m.Observe(l, truth.Took(l), i%2 == 0)
		}
		base := costtest.Mixed(rapid.IntRange(0, 8).Draw(t, "decode"), rapid.IntRange(0, 2000).Draw(t, "ctx"), 0, 0)
		start, most := rapid.IntRange(0, 4000).Draw(t, "start"), rapid.IntRange(0, 2048).Draw(t, "most")
		limit := rapid.Float64Range(0, 500).Draw(t, "limit")
		n := m.Fits(limit, base, start, most)
		at := func(n int) float64 {
			l := base
			l.AddPrompt(start, n)
			return m.Upper(l)
		}
		switch {
		case n < 0 || n > most:
			t.Fatalf("%d of %d", n, most)
		case n > 0 && at(n) > limit:
			t.Fatalf("%d tokens take %.2f of %.2f ms", n, at(n), limit)
		case n < most && at(n+1) <= limit:
			t.Fatalf("%d tokens fit, %d would too: %.2f of %.2f ms", n, n+1, at(n+1), limit)
		}
	})
}

// TestCostColdStart: the very first chunk on a machine that was never measured is small, and a dozen steps are enough
// to come near the one that fits.
func TestCostColdStart(t *testing.T) {
	m, truth := cost.New(&cost.State{}), costtest.New(11, 0.05)
	for i := range 20 { // answers alone, as before every storm
		l := costtest.Mixed(2, 20+i, 0, 0)
		m.Observe(l, truth.Took(l), false)
	}
	base := costtest.Mixed(2, 40, 0, 0)
	first := m.Fits(50, base, 0, 512)
	var sizes []int
	for i := range 12 {
		n := max(1, min(m.Fits(50, base, 10*i, 512), max(4, int(2*m.Largest()))))
		sizes = append(sizes, n)
		l := base
		l.AddPrompt(10*i, n)
		m.Observe(l, truth.Took(l), true)
	}
	if first > 16 {
		t.Errorf("the first chunk of a machine never measured is %d tokens", first)
	}
	sort.Ints(sizes)
	if got := sizes[len(sizes)-1]; got < 12 {
		t.Errorf("after 12 steps chunks of %v tokens were tried; some 25 fit", sizes)
	}
}

func BenchmarkCost(b *testing.B) {
	m, truth := cost.New(&cost.State{}), costtest.New(1, 0.05)
	l := costtest.Mixed(2, 300, 700, 10)
	took := truth.Took(l)
	b.Run("observe", func(b *testing.B) {
		for b.Loop() {
			m.Observe(l, took, true)
		}
	})
	for _, most := range []int{8, 2048} {
		b.Run(fmt.Sprintf("fits/%d", most), func(b *testing.B) {
			for b.Loop() {
				m.Fits(50, l, 700, most)
			}
		})
	}
}

// TestCostArithmetic: the exported sums are those of the steps they stand for.
func TestCostArithmetic(t *testing.T) {
	if got := cost.Attended(10, 3); got != 11+12+13 {
		t.Errorf("three rows from position 10 attend to %v cells", got)
	}
	var l cost.Load
	l.AddPrompt(10, 3)
	l.ExtendPrompt(13, 2)
	if l.Attended != cost.Attended(10, 5) || l.Read != 15 || l.Prefill != 5 {
		t.Errorf("five rows from position 10, three and two: %+v", l)
	}
	c := cost.Cost{A: 5, B: 1, C: 3, D: 0.01, E: 0.5}
	if got, want := c.Predict(4, 2, 100, 6), 19*time.Millisecond; got != want {
		t.Errorf("predicts %v, want %v", got, want)
	}
	m, truth := cost.New(&cost.State{}), costtest.New(1, 0)
	for i := range 300 {
		l := costtest.Mixed(1+i%3, 100+i, 5*(i%300), 4+i%13)
		m.Observe(l, truth.Took(l), true)
	}
	n := m.Fits(50, cost.Load{Decode: 2, Attended: 2 * 300, Read: 2 * 300}, 700, 98)
	l = costtest.Mixed(2, 299, 700, n)
	if ms := truth.Mean(l); ms > 50 || ms < 38 {
		t.Errorf("%d tokens are said to fit into 50 ms; they take %.1f", n, ms)
	}
}

// TestCostBend: after many small chunks, whose time is that of reading the weights, the first large one takes little
// longer than the limit, although a token of it costs twice as much; when such chunks are known they are not made
// smaller.
func TestCostBend(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		m, truth := cost.New(&cost.State{}), costtest.New(seed, 0.04)
		truth.Cost = cost.Cost{A: 7, B: 0.5, C: 0.4, D: 2e-4, E: 1.5e-3}
		truth.Bumps = func(l cost.Load) float64 { // from ten rows on a row takes twice as long
			linear := *truth
			linear.Bumps, linear.Speed = nil, 1
			return 1 + truth.B*max(0, l.Prefill-10)/linear.Mean(l)
		}
		step := func(start, chunk int) {
			l := costtest.Mixed(1, 500, start, chunk)
			m.Observe(l, truth.Took(l), true)
		}
		chunk := func(limit float64) int { return m.Fits(limit, costtest.Mixed(1, 500, 0, 0), 0, 2048) }
		for i := range 2000 {
			step(4*i, 6+i%3)
		}
		first := chunk(90)
		if ms := truth.Mean(costtest.Mixed(1, 500, 0, first)); ms > 1.15*90 || first < 30 {
			t.Errorf("seed %d: the first chunk has %d tokens, which take %.0f ms of 90", seed, first, ms)
		}
		// After a restart it is no longer either.
		st := m.State()
		restarted := cost.New(&st)
		if n := restarted.Fits(90, costtest.Mixed(1, 500, 0, 0), 0, 2048); n > first+16 {
			t.Errorf("seed %d: the first chunk has %d tokens, after a restart %d", seed, first, n)
		}
		for i := range 60 {
			step(70*i, min(chunk(90), 70))
		}
		if known := chunk(90); known < 65 {
			t.Errorf("seed %d: chunks of %d tokens after 60 of up to 70", seed, known)
		}
	}
}

// TestCostAnswers: how long answers alone take is known after thousands of steps beside prompts, for more answers than
// there were, and with fewer threads.
func TestCostAnswers(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		m, truth := cost.New(&cost.State{}), costtest.New(seed, 0.05)
		truth.Cost = cost.Cost{A: 5, B: 1, C: 3, D: 3e-4, E: 1.1e-3}
		step := func(decode, ctx, start, chunk int) {
			l := costtest.Mixed(decode, ctx, start, chunk)
			m.Observe(l, truth.Took(l), chunk > 0)
		}
		check := func(what string, l cost.Load, least, most float64) {
			t.Helper()
			if got := m.Answers(l); got < least || got > most {
				t.Errorf("seed %d: %s: %.1f ms, expected %.1f … %.1f (predicted %.1f)", seed, what, got, least, most,
					m.Predict(l))
			}
		}
		two, four := costtest.Mixed(2, 300, 0, 0), costtest.Mixed(4, 300, 0, 0)
		for range 100 {
			step(2, 300, 0, 0)
		}
		alone, more := truth.Mean(two), truth.Mean(four)
		truth.A += 12 // steps with prompts take longer, whatever the reason
		for i := range 4000 {
			step(2, 300, 4*(i%2000), 6+i%3)
		}
		if p := m.Predict(two); p < 1.4*alone {
			t.Fatalf("seed %d: %.1f ms are predicted, %.1f true: nothing is tested", seed, p, alone)
		}
		check("two", two, 0.9*alone, 1.1*alone)
		check("four", four, 0.9*more, 2.1*alone)

		before := m
		truth.Speed = 3
		truth.A -= 12
		m.Observe(two, truth.Took(two), false)
		check("two after a slow step", two, 0.9*alone, 1.3*alone)
		m = before
		m.ForThreads(2, 1)
		check("two with half the threads", two, 1.6*alone, 2*alone)
	}
}
