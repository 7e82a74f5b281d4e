package sched

import (
	"math"
	"testing"
	"time"
)

// TestPrices: without restores to go by cells are restored; then a tier is left alone while it is clearly slower than
// computing, tried again now and then, and used again once it has become fast.
func TestPrices(t *testing.T) {
	const store, tokens, compute = 2, 100, 100 * time.Millisecond
	var p Prices
	want := func(when string, way Way, restore time.Duration) {
		t.Helper()
		weighed := way
		if way == WayTrial {
			weighed = WayCompute
		}
		before := p
		if d := p.Weigh(store, tokens, compute); d.Way != weighed || d.Restore != restore || p != before {
			t.Errorf("%s: weighed %+v, want %v, %v, and no count", when, d, weighed, restore)
		}
		if d := p.Restore(store, tokens, compute); d.Way != way || d.Restore != restore || d.Compute != compute {
			t.Errorf("%s: %v, predicted %v; want %v, %v", when, d.Way, d.Restore, way, restore)
		}
	}
	want("nothing seen", WayRestore, 0)
	learn := func(first, token time.Duration) { p.Learn(store, 50, first, first+50*token) }
	learn(50*time.Millisecond, 3*time.Millisecond)
	learn(50*time.Millisecond, 3*time.Millisecond)
	want("two restores seen", WayRestore, 0)
	learn(50*time.Millisecond, 3*time.Millisecond)
	for round := range 2 {
		for range priceTrial - 1 {
			want("slow", WayCompute, 350*time.Millisecond)
		}
		want("slow for long", WayTrial, 350*time.Millisecond)
		if round == 1 {
			break
		}
	}
	if d := p.Restore(store, tokens, 200*time.Millisecond); d.Way != WayRestore {
		t.Errorf("less than twice as slow as computing: %v", d.Way)
	}
	if d := p.Restore(store, tokens, 0); d.Way != WayRestore {
		t.Errorf("computing was not measured: %v", d.Way)
	}
	if d := p.Restore(0, tokens, compute); d.Way != WayRestore || d.Restore != 0 {
		t.Errorf("another store: %v, predicted %v", d.Way, d.Restore)
	}
	for range 12 {
		learn(time.Millisecond, 100*time.Microsecond)
	}
	if d := p.Restore(store, tokens, compute); d.Way != WayRestore || d.Restore > 50*time.Millisecond {
		t.Errorf("fast again: %v, predicted %v", d.Way, d.Restore)
	}
	for _, bad := range []struct {
		n           int
		first, took time.Duration
	}{{0, 0, 1}, {-1, 0, 1}, {1, -1, 1}, {1, 2, 1}} {
		before := p
		if p.Learn(store, bad.n, bad.first, bad.took); p != before {
			t.Errorf("learned from %+v", bad)
		}
	}
}

// TestPriceOfACopy: cells that are cheaper to compute than to restore are not copied out, but for one in a while.
func TestPriceOfACopy(t *testing.T) {
	var p Prices
	for range priceSamples {
		p.Learn(0, 100, 0, 10*time.Millisecond)
	}
	for _, c := range []struct {
		copying, compute time.Duration
		want             Way
	}{
		{0, 5 * time.Millisecond, WayCopy},
		{5 * time.Millisecond, 5 * time.Millisecond, WayDiscard},
		{0, time.Millisecond, WayDiscard},
		{time.Hour, 0, WayCopy},
	} {
		if d := p.Copy(0, 100, c.copying, c.compute); d.Way != c.want {
			t.Errorf("copying %v, computing %v: %v, want %v", c.copying, c.compute, d.Way, c.want)
		}
	}
	copied := 0
	for range 4 * priceTrial {
		if p.Copy(0, 100, 0, time.Millisecond).Way == WayCopy {
			copied++
		}
	}
	if copied != 4 {
		t.Errorf("%d of %d were copied, want 4", copied, 4*priceTrial)
	}
}

// TestComputeTimeReadsEachStep: each step of a prompt reads what lies before its chunk.
func TestComputeTimeReadsEachStep(t *testing.T) {
	s, err := New(Config{Policy: "meridian", MaxRunning: 4, Cells: 1 << 20, MaxBatch: 256})
	if err != nil {
		t.Fatal(err)
	}
	s.cost.prompts = learnedSteps
	s.cost.theta = [terms]float64{3, 20, 1, 0.5, 7}
	for _, start := range []int{0, 1, 5000} {
		for _, n := range []int{1, 255, 256, 257, 512, 1000, 20_000} {
			want := 0.0
			for at := 0; at < n; at += s.cfg.MaxBatch {
				var l load
				l.slice(SlicePrefill, start+at, min(s.cfg.MaxBatch, n-at))
				want += s.cost.predict(l)
			}
			if got := s.ComputeTime(start, n).Seconds() * 1000; math.Abs(got-want) > 1e-5*want {
				t.Errorf("%d tokens from %d: %v ms, %v step by step", n, start, got, want)
			}
		}
	}
}

// TestComputeTime: unknown until prompts were measured; then by the model, in as many steps as it takes, and beside
// running requests at the pace of recent steps.
func TestComputeTime(t *testing.T) {
	s, err := New(Config{Policy: "uma", MaxRunning: 4, Cells: 1 << 16, MaxBatch: 128, MaxQueue: 64,
		Guard: DefaultGuard})
	if err != nil {
		t.Fatal(err)
	}
	if d := s.ComputeTime(0, 100); d != 0 {
		t.Errorf("before any step: %v", d)
	}
	now := Instant(0)
	const token = 2 * time.Millisecond
	in := []Event{EvArrive{Req: 1, Spec: &Spec{Prompt: 128 * 20, MaxTokens: 5}}}
	for range 20 {
		plan := s.Step(now, List(in...))
		took := time.Duration(plan.PrefillTokens)*token + 4*time.Millisecond
		now = now.Add(took)
		in = []Event{EvStep{Outcome: StepOK, Took: took}}
	}
	for _, n := range []int{64, 128, 1000} {
		got, want := s.ComputeTime(0, n), time.Duration(n)*token
		if got < want*7/10 || got > want*15/10 {
			t.Errorf("%d tokens: %v, took about %v", n, got, want)
		}
	}
	if s.ComputeTime(0, 0) != 0 || s.ComputeTime(0, -1) != 0 {
		t.Error("no tokens take time")
	}
	var own [16]float64
	for i := range own {
		own[i] = float64(s.ComputeTime(1000*i, 100))
		if i > 0 && own[i] < own[i-1] {
			t.Errorf("100 tokens from position %d on are predicted to take less than before it", 1000*i)
		}
	}
}
