package sim_test

import (
	"math"
	"testing"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestNoise: steps vary by the variance that was asked for around the model's time, the same for the same seed.
func TestNoise(t *testing.T) {
	cfg := served("uma")
	cfg.RecordSteps = true
	times := func(noise float64, seed int64) (ratios []float64) {
		cfg.CostNoise, cfg.Seed = noise, seed
		rep, err := sim.Run(cfg, workload.NewList([]workload.Request{{Input: 1, Output: 4000, Budget: 4000}}))
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range rep.Steps {
			ratios = append(ratios, float64(s.LatencyUs)/(4500+float64(i+1)*1000/1024))
		}
		return ratios
	}
	a, b, c, still := times(0.04, 1), times(0.04, 1), times(0.04, 2), times(0, 1)
	var sum, squares float64
	same, other := true, false
	for i, x := range a {
		sum += x
		squares += x * x
		same = same && x == b[i]
		other = other || x != c[i]
		if math.Abs(still[i]-1) > 1e-3 {
			t.Fatalf("step %d without noise took %v of what the model says", i, still[i])
		}
	}
	n := float64(len(a))
	mean := sum / n
	if variance := squares/n - mean*mean; math.Abs(mean-1) > 0.02 || math.Abs(variance-0.04) > 0.006 || !same ||
		!other {
		t.Errorf("mean %.3f, variance %.4f, repeated %v, another seed differs %v", mean, variance, same, other)
	}
}

// TestBetween: the time between two steps passes on the clock, and is not reported to the scheduler as the engine's.
func TestBetween(t *testing.T) {
	cfg := served("uma")
	cfg.CostModel, cfg.BetweenUs, cfg.RecordITL = []float64{5000, 0, 0, 0}, []float64{300, 20}, true
	model, err := cfg.Latency()
	if err != nil {
		t.Fatal(err)
	}
	rep, err := sim.RunModel(cfg, model, workload.NewList(together(2, 0, 10, 6, 0)),
		sim.Options{Planned: func(_ sched.Instant, in *sched.Events, _ *sched.Plan) {
			for _, ev := range in.Steps {
				if ev.Took.Microseconds() != 5000 {
					t.Errorf("the scheduler was told %v", ev.Took)
				}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range rep.Requests[0].ITLsUs[1:] {
		if g != 5340 {
			t.Errorf("a gap of %d us, want 5340", g)
		}
	}
}

// watched records the batches that a model was asked about.
type watched struct {
	latency.Model
	asked []latency.Batch
}

func (w *watched) Step(b *latency.Batch) int64 {
	w.asked = append(w.asked, *b)
	return w.Model.Step(b)
}

// TestStepCosts: the batches that a recording describes are those that the latency model was asked about, so that a fit
// to the recording predicts the simulation.
func TestStepCosts(t *testing.T) {
	for _, blocks := range []int{512, 60} {
		cfg := served("uma")
		cfg.KVBlocks = blocks
		model, err := cfg.Latency()
		if err != nil {
			t.Fatal(err)
		}
		w := &watched{Model: model}
		rows := together(12, 200, 60, 30, 40_000)
		rows[3].Think, rows[3].Probes = 20, []workload.Probe{{After: 5, Rows: 4}}
		_, trace := record(t, cfg, w, workload.NewList(rows))
		samples, err := workload.StepCosts(trace)
		if err != nil || len(samples) < 50 || len(samples) > len(w.asked) {
			t.Fatalf("%d samples of %d steps, %v", len(samples), len(w.asked), err)
		}
		for i, s := range samples {
			b := w.asked[i]
			if s.PrefillTokens != b.PrefillTokens || s.DecodeTokens != b.DecodeTokens || s.Rows != b.Rows ||
				s.Attended != b.Attended || s.Read != b.Read || s.Runs != b.Runs || s.Resident != b.Resident {
				t.Fatalf("step %d: the recording says %+v, the model was asked %+v", i, s, b)
			}
		}
	}
}
