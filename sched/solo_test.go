package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// lone computes a prompt with nothing else running, on a machine, and is how long its steps took.
func lone(t *testing.T, s *Scheduler, m *machine, id ReqID, now *Instant, prompt int) (steps []time.Duration) {
	t.Helper()
	events := []Event{EvArrive{Req: id, Spec: &Spec{Prompt: prompt, MaxTokens: 2}}}
	for {
		plan := s.Step(*now, List(events...))
		if len(plan.Batch) != 1 {
			t.Fatalf("a batch of %d slices\n%+v", len(plan.Batch), plan)
		}
		sl := plan.Batch[0]
		var l cost.Load
		addSlice(&l, sl.Kind, sl.Start, sl.N)
		took := m.Took(l)
		steps = append(steps, took)
		*now = now.Add(took)
		events = append(events[:0], EvStep{Took: took})
		if sl.Row >= 0 {
			events = append(events, EvFinish{Req: id, Reason: reason.Stop})
			s.Step(*now, List(events...))
			return steps
		}
	}
}

// TestLonePrompt: the steps of a prompt that nothing else runs beside are bounded in time, on machines from a fast one
// to one that computes ten tokens a second, and from the first prompt after the first start on. It costs little: the
// second prompt takes at most 2 % longer than in steps of 2,048 tokens.
func TestLonePrompt(t *testing.T) {
	for _, policy := range []string{"meridian", "uma"} {
		for _, c := range []Cost{
			{A: 0.5, B: 0.01, C: 0.5, D: 1e-6},
			{A: 2, B: 0.9, C: 13, D: 0.0005},
			{A: 4, B: 12, C: 60, D: 0.002},
			{A: 10, B: 50, C: 200, D: 0.004},
			{A: 30, B: 100, C: 500, D: 0.005},
		} {
			t.Run(fmt.Sprintf("%s/%v ms a token", policy, c.B), func(t *testing.T) {
				s, err := New(Config{Policy: policy, MaxRunning: 16, Cells: 20000, MaxBatch: 2048, MaxQueue: 10,
					FirstPrefill: DefaultFirstPrefill, ITLTarget: 100 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				m := priceMachine(3, 0)
				m.Cost = c
				prompt := 4000
				if c.B > 10 {
					prompt = 600 // the same story in less time
				}
				now := Instant(0)
				for i, what := range []string{"first", "second"} {
					steps := lone(t, s, m, ReqID(i+1), &now, prompt)
					var all time.Duration
					for k, took := range steps {
						all += took
						if took > 450*time.Millisecond {
							t.Errorf("%s prompt: step %d of %d takes %v", what, k+1, len(steps), took)
						}
					}
					whole := time.Duration(0)
					for at := 0; at < prompt; at += 2048 {
						var l cost.Load
						l.AddPrompt(at, min(2048, prompt-at))
						whole += time.Duration(m.Mean(l) * 1e6)
					}
					if ratio := float64(whole) / float64(all); i == 1 && policy != "uma" && c.A/240 < 0.02 &&
						ratio < 0.97 {
						t.Errorf("second prompt: %.3f of the speed in steps of 2,048 tokens, %d steps", ratio,
							len(steps))
					}
				}
			})
		}
	}
	// The baseline does as llama-server does.
	s, err := New(Config{Policy: "stock", MaxRunning: 16, Cells: 20000, MaxBatch: 2048, MaxQueue: 10,
		FirstPrefill: DefaultFirstPrefill})
	if err != nil {
		t.Fatal(err)
	}
	now := Instant(0)
	if steps := lone(t, s, priceMachine(3, 0), 1, &now, 4000); len(steps) != 2 {
		t.Errorf("stock: %d steps", len(steps))
	}
}

// TestSoloLimit: where a step cannot hold 512 tokens within SoloBudget, it takes them up to SoloLimit, in whole tiles;
// where it can, SoloLimit changes nothing.
func TestSoloLimit(t *testing.T) {
	for _, policy := range []string{"meridian", "uma"} {
		for _, c := range []struct {
			perToken float64 // ms
			limit    time.Duration
			most     int           // tokens of a step after the first few
			longest  time.Duration // of a step
		}{
			{0.1, 1500 * time.Millisecond, 2048, 350 * time.Millisecond},
			{10, 0, 32, 350 * time.Millisecond},
			{10, 1500 * time.Millisecond, 160, 1700 * time.Millisecond},
			{100, 1500 * time.Millisecond, 16, 2 * time.Second},
		} {
			t.Run(fmt.Sprintf("%s/%v ms a token, limit %v", policy, c.perToken, c.limit), func(t *testing.T) {
				s, err := New(Config{Policy: policy, MaxRunning: 16, Cells: 20000, MaxBatch: 2048, MaxQueue: 10,
					FirstPrefill: DefaultFirstPrefill, SoloLimit: c.limit})
				if err != nil {
					t.Fatal(err)
				}
				m := priceMachine(3, 0)
				m.Cost = Cost{A: 1, B: c.perToken, C: 2 * c.perToken, D: 1e-6}
				now := Instant(0)
				lone(t, s, m, 1, &now, 1000)
				steps := lone(t, s, m, 2, &now, 1000)
				least := max(1, 1000/c.most-1)
				if len(steps) < least || len(steps) > 2*least+3 {
					t.Errorf("%d steps for 1,000 tokens; about %d expected", len(steps), least+1)
				}
				if longest := slices.Max(steps); longest > c.longest {
					t.Errorf("a step takes %v", longest)
				}
			})
		}
	}
}
