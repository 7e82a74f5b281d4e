package daemon

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// TestTraffic: bytes by hand for a step of one answer and one prompt in two passes.
func TestTraffic(t *testing.T) {
	info := &runtime.ModelInfo{Bytes: 1_000_000, KVBytesPerToken: 100, Layers: 3, Embedding: 8}
	caps := &runtime.Capabilities{MaxMicroBatch: 4}
	plan := &sched.Plan{Tokens: 7, Batch: []sched.Slice{{Start: 10, N: 1}, {Start: 20, N: 6}}}
	want := metrics.Traffic{Weights: 2_000_000, KV: (11 + 1 + 2*26 + 6) * 100, Copies: 500,
		Activations: 7 * 3 * 8 * 16}
	if got := traffic(plan, 5, info, caps); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := traffic(&sched.Plan{}, 0, info, &runtime.Capabilities{}); got != (metrics.Traffic{}) {
		t.Errorf("an empty step moves %+v", got)
	}
}

// TestBandwidthIsShown: info and the metrics have the traffic of the steps.
func TestBandwidthIsShown(t *testing.T) {
	r := serve(t, fake.Config{Cost: fake.Cost{BaseMs: 0.1}, Advance: spin})
	if b := r.info().Bandwidth; b != nil {
		t.Errorf("before the first step: %+v", b)
	}
	if a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 20 }); a.err != nil {
		t.Fatal(a.err)
	}
	r.nothingLeft()
	b := r.info().Bandwidth
	if b == nil || b.KV <= 0 || b.Activations <= 0 || b.MeasuredGBs <= 0 || b.PredictedGBs <= 0 {
		t.Errorf("%+v", b)
	}
	if r.reads("step_bytes_total", "kv") <= float64(b.KV) || r.reads("bandwidth_gbps", "") <= 0 ||
		r.reads("bandwidth_predicted_gbps", "") <= 0 {
		t.Error("the metrics lack the traffic")
	}
}
