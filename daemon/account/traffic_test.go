package account

import (
	"math/rand/v2"
	"testing"

	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// TestTraffic: bytes by hand for a step of one answer and one prompt in two passes.
func TestTraffic(t *testing.T) {
	info := &runtime.ModelInfo{Bytes: 1_000_000, KVBytesPerToken: 100, Layers: 3, Embedding: 8}
	caps := &runtime.Capabilities{MaxMicroBatch: 4}
	plan := &sched.Plan{Tokens: 7, Batch: []sched.Slice{{Start: 10, N: 1}, {Start: 20, N: 6}}}
	want := metrics.Traffic{Weights: 2_000_000, KV: (11 + 1 + 2*26 + 6) * 100, Copies: 500,
		Activations: 7 * 3 * 8 * 16}
	if got := Traffic(plan, 5, info, caps); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Of 8 experts with 800,000 of the bytes 2 are used: a pass of n tokens leaves (3/4)^n of them unread.
	info.Experts, info.ExpertsUsed, info.ExpertBytes = 8, 2, 800_000
	for tokens, weights := range map[int]int64{
		1: 400_000, 2: 550_000, 4: 746_875, 5: 746_875 + 400_000, 8: 2 * 746_875, 7: 746_875 + 662_500,
	} {
		if got := Traffic(&sched.Plan{Tokens: tokens}, 0, info, caps).Weights; got != weights {
			t.Errorf("%d tokens read %d bytes of weights, want %d", tokens, got, weights)
		}
	}
	if got := Traffic(&sched.Plan{}, 0, info, &runtime.Capabilities{}); got != (metrics.Traffic{}) {
		t.Errorf("an empty step moves %+v", got)
	}
}

// TestCostModelHasTheBytes: the bytes of a pass are a sum of terms of the cost model that shapes batches, so that it
// can learn their time: the weights once, KV by the cells that are read, and for each token its activations and its
// own cell.
func TestCostModelHasTheBytes(t *testing.T) {
	info := &runtime.ModelInfo{Bytes: 1_000_000, KVBytesPerToken: 100, Layers: 3, Embedding: 8}
	const token = 100 + 3*8*16
	cost := sched.Cost{A: 1_000_000 / 1e6, B: token / 1e6, C: token / 1e6, E: 100 / 1e6} // a nanosecond for a byte
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var plan sched.Plan
		prefill, decode, read := 0, 0, 0
		for range 1 + rng.IntN(20) {
			s := sched.Slice{Start: rng.IntN(5000), N: 1, Kind: sched.SliceDecode}
			if rng.IntN(3) == 0 {
				s.Kind, s.N = sched.SlicePrefill, 1+rng.IntN(20)
				prefill += s.N
			} else {
				decode++
			}
			read += s.Start + s.N
			plan.Batch = append(plan.Batch, s)
			plan.Tokens += s.N
		}
		b := Traffic(&plan, 0, info, &runtime.Capabilities{MaxMicroBatch: 512})
		bytes, ns := b.Weights+b.KV+b.Activations, int64(cost.Predict(prefill, decode, 0, float64(read)))
		if d := bytes - ns; d < -1 || d > 1 { // Predict rounds down
			t.Fatalf("%d bytes, the cost model has terms for %d\n%+v", bytes, ns, plan.Batch)
		}
	}
}
