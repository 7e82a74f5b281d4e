package gpu

import (
	"math"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/sim/latency"
)

// mixed is a step of a prompt of 280 tokens and an answer behind 100.
var mixed = []latency.Item{{New: 280, Prefill: true}, {Context: 100, New: 1}}

// TestRooflineTerms checks the terms that BLIS's documentation names, each by hand. Without them a step is BLIS's.
func TestRooflineTerms(t *testing.T) {
	dense := shape(t, "", "")
	moe := shape(t, `"num_local_experts": 8, "num_experts_per_tok": 2`, "")
	step := func(s Shape, tp int, o RooflineOptions, items ...latency.Item) int64 {
		m, err := NewRoofline([]float64{0, 0, 0}, s, GPUs["H100"], tp, o)
		if err != nil {
			t.Fatal(err)
		}
		return m.Step(&latency.Batch{Items: items})
	}
	near := func(what string, got, want int64) {
		if got < want-2 || got > want+2 {
			t.Errorf("%s: %d us, want %d", what, got, want)
		}
	}
	var none RooflineOptions
	for name, s := range map[string]Shape{"dense": dense, "mixture of experts": moe} {
		// Two phases take as long as two steps: each reads the weights, of a mixture those of its experts.
		two := RooflineOptions{TwoPhase: true}
		near(name+": two phases", step(s, 1, two, mixed...), step(s, 1, none, mixed[0])+step(s, 1, none, mixed[1]))
		near(name+": one phase of two", step(s, 1, two, mixed[1]), step(s, 1, none, mixed[1]))
		near(name+": layers", step(s, 1, RooflineOptions{LayerOverhead: 5}, mixed...), step(s, 1, none, mixed...)+5*32)
		// 281 tokens of 4096 two-byte activations, twice in each of 32 layers. Two GPUs exchange all of it, four 3/2.
		const bytes = 2 * 32 * 281 * 4096 * 2
		for tp, share := range map[int]float64{1: 0, 2: 1, 4: 1.5} {
			ring := RooflineOptions{AllReduce: AllReduce{GBs: 100, Us: 10}}
			want := int64(share * bytes / 100e9 * 1e6)
			if tp > 1 {
				want += 2 * 32 * 10
			}
			near(name+": all-reduce", step(s, tp, ring, mixed...), step(s, tp, none, mixed...)+want)
		}
	}
	for _, o := range []RooflineOptions{{AllReduce: AllReduce{GBs: -1}}, {AllReduce: AllReduce{Us: math.NaN()}},
		{LayerOverhead: -1}, {LayerOverhead: math.Inf(1)}} {
		if _, err := NewRoofline([]float64{0, 0, 0}, dense, GPUs["H100"], 2, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// TestTrainedRooflineAllReduce: coefficient 3 weighs the all-reduce of several GPUs, and is refused without its cost.
func TestTrainedRooflineAllReduce(t *testing.T) {
	s := shape(t, "", "")
	only := []float64{0, 0, 0, 2, 0, 0, 0}
	batch := &latency.Batch{Requests: 2, Items: mixed}
	for tp, want := range map[int]int64{1: 1, 2: 2 * 1473, 4: 2 * 2209} {
		m, err := NewTrainedRoofline(nil, only, s, GPUs["H100"], tp, AllReduce{GBs: 100})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Step(batch); got < want-2 || got > want+2 {
			t.Errorf("tp %d: %d us, want %d", tp, got, want)
		}
	}
	_, err := NewTrainedRoofline(nil, only, s, GPUs["H100"], 2, AllReduce{})
	if err == nil || !strings.Contains(err.Error(), "beta_coeffs[3] = 2") ||
		!strings.Contains(err.Error(), "roofline_all_reduce_gbs") {
		t.Errorf("without the cost of the all-reduce: %v", err)
	}
	if _, err := NewTrainedRoofline(nil, only, s, GPUs["H100"], 2, AllReduce{GBs: -1}); err == nil {
		t.Error("a negative bandwidth was accepted")
	}
	// The shipped coefficients charge nothing for it: BLIS's numbers with any number of GPUs.
	a, err := NewTrainedRoofline(nil, nil, s, GPUs["H100"], 4, AllReduce{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewTrainedRoofline(nil, nil, s, GPUs["H100"], 4, AllReduce{GBs: 1, Us: 100})
	if err != nil || a.Step(batch) != b.Step(batch) {
		t.Errorf("%v: %d us, with a slow all-reduce %d", err, a.Step(batch), b.Step(batch))
	}
}
