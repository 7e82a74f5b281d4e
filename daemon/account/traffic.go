package account

import (
	"math"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// The bandwidth view of a step (ΣBMT): the bytes that it moves between memory and processor. On a CPU, and for answers
// on a GPU too, their time is nearly all of the step's, so bytes over time shows whether the step is bound by memory.

// Traffic estimates the bytes of a step, with the cells copied between the pool and the other tiers before it:
//
//   - the weights, once for each pass of MaxMicroBatch tokens; of experts those that the pass is expected to use
//   - KV: the cells that each sequence attends to, read once a pass, and those that are written
//   - activations: each layer reads and writes a float32 hidden state twice for each token
func Traffic(plan *sched.Plan, copied int, info *runtime.ModelInfo, caps *runtime.Capabilities) metrics.Traffic {
	micro := max(caps.MaxMicroBatch, 1)
	passes := (plan.Tokens + micro - 1) / micro
	cells := 0
	for i := range plan.Batch {
		s := &plan.Batch[i]
		cells += (s.Start+s.N)*((s.N+micro-1)/micro) + s.N
	}
	weights := int64(passes) * int64(info.Bytes)
	if info.Experts > info.ExpertsUsed {
		unused := float64(plan.Tokens/micro) * unusedExperts(info, micro)
		if rest := plan.Tokens % micro; rest > 0 {
			unused += unusedExperts(info, rest)
		}
		weights -= int64(unused * float64(info.ExpertBytes))
	}
	return metrics.Traffic{
		Weights:     weights,
		KV:          int64(cells) * int64(info.KVBytesPerToken),
		Copies:      int64(copied) * int64(info.KVBytesPerToken),
		Activations: int64(plan.Tokens) * int64(info.Layers) * int64(info.Embedding) * 4 * 4,
	}
}

// unusedExperts returns the expected share of experts that no token of a pass is sent to. Routers are trained to use
// all experts alike; tokens of one text that choose the same ones leave more unused.
func unusedExperts(info *runtime.ModelInfo, tokens int) float64 {
	return math.Pow(1-float64(info.ExpertsUsed)/float64(info.Experts), float64(tokens))
}

// Bandwidth returns the newest step's traffic for info; nil before the first step.
func Bandwidth(m *metrics.Metrics) *reports.InfoBandwidth {
	t, predicted, measured := m.Bandwidth()
	if t == (metrics.Traffic{}) {
		return nil
	}
	return &reports.InfoBandwidth{Weights: t.Weights, KV: t.KV, Copies: t.Copies, Activations: t.Activations,
		PredictedGBs: predicted, MeasuredGBs: measured}
}
