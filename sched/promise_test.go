package sched

import (
	"math"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
)

// TestComputeTimeReadsEachStep: each step of a prompt reads what lies before its chunk.
func TestComputeTimeReadsEachStep(t *testing.T) {
	s, err := New(Config{Policy: "meridian", MaxRunning: 4, Cells: 1 << 20, MaxBatch: 256})
	if err != nil {
		t.Fatal(err)
	}
	st := s.cost.State()
	st.Cost, st.Steps, st.Prompts = Cost{A: 3, B: 20. / 32, C: 1. / 4, D: 0.5 / 8192, E: 7. / 8192}, 1, learnedSteps
	s.cost.Model = cost.New(&st)
	for _, start := range []int{0, 1, 5000} {
		for _, n := range []int{1, 255, 256, 257, 512, 1000, 20_000} {
			want := 0.0
			for at := 0; at < n; at += s.cfg.MaxBatch {
				var l cost.Load
				l.AddPrompt(start+at, min(s.cfg.MaxBatch, n-at))
				want += s.cost.Predict(l)
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
