package daemon

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

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
