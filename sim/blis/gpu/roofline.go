package gpu

import (
	"fmt"
	"math"

	"github.com/uma-serve/uma-serve/sim/latency"
)

// RooflineOptions are the terms that BLIS's documentation names and its code lacks. All off: its numbers.
type RooflineOptions struct {
	TwoPhase      bool      // prefill and decode are two phases, one after the other, each with its own maximum
	AllReduce     AllReduce // with TP > 1
	LayerOverhead float64   // microseconds added per layer: kernel launches
}

// Roofline charges a step the larger of its arithmetic and its memory traffic.
type Roofline struct {
	latency.Alpha
	RooflineOptions
	s    Shape
	g    GPU
	tp   float64
	peak float64 // FLOP/s
	bw   float64 // bytes/s
}

// NewRoofline checks the pieces. tp is the number of GPUs that share the model.
func NewRoofline(alphas []float64, s Shape, g GPU, tp int, o RooflineOptions) (*Roofline, error) {
	a, err := latency.NewAlpha(alphas)
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if tp < 1 {
		return nil, fmt.Errorf("tp = %d: must be ≥ 1", tp)
	}
	if err := o.AllReduce.check(); err != nil {
		return nil, fmt.Errorf("roofline: %w", err)
	}
	if !(o.LayerOverhead >= 0) || math.IsInf(o.LayerOverhead, 0) {
		return nil, fmt.Errorf("roofline: layer overhead = %v: must be finite and ≥ 0", o.LayerOverhead)
	}
	m := &Roofline{Alpha: a, RooflineOptions: o, s: s, g: g, tp: float64(tp), peak: g.TFlopsPeak * 1e12,
		bw: g.BwPeakTBs * 1e12}
	if s.WeightBytes == 1 && g.TFlopsFP8 > 0 {
		m.peak = g.TFlopsFP8 * 1e12
	}
	return m, nil
}

func (m *Roofline) NeedsItems() bool { return true }

func (m *Roofline) Step(b *latency.Batch) int64 {
	if len(b.Items) == 0 {
		return 1
	}
	total := 0
	for _, it := range b.Items {
		total += computed(&it)
	}
	var seconds float64
	if m.TwoPhase {
		seconds = m.phase(b.Items, true) + m.phase(b.Items, false)
	} else {
		var compute, bytes float64
		for i := range b.Items {
			c, y := m.item(&b.Items[i])
			compute += c
			bytes += y
		}
		memory := (m.weights(total)/m.tp + bytes) / m.bw
		seconds = math.Max(compute, memory)
	}
	return max(1, latency.Ticks(1e6*seconds+m.AllReduce.step(&m.s, m.tp, total, m.s.Bytes)+
		m.LayerOverhead*float64(m.s.Layers)))
}

// phase returns the time of the prefill or of the decode part alone; each reads the weights.
func (m *Roofline) phase(items []latency.Item, prefill bool) float64 {
	var compute, bytes float64
	tokens := 0
	for i := range items {
		if items[i].Prefill == prefill {
			c, y := m.item(&items[i])
			compute += c
			bytes += y
			tokens += computed(&items[i])
		}
	}
	if tokens == 0 {
		return 0
	}
	return math.Max(compute, (m.weights(tokens)/m.tp+bytes)/m.bw)
}

// computed returns the tokens of a part of a step; it counts a decode as one.
func computed(it *latency.Item) int {
	if it.Prefill {
		return it.New
	}
	return 1
}

// item is one request's compute seconds and its bytes without weights, per GPU.
func (m *Roofline) item(it *latency.Item) (seconds, bytes float64) {
	L, D, H, K := float64(m.s.Layers), float64(m.s.Hidden), float64(m.s.Heads), float64(m.s.KVHeads)
	head := D / H
	dkv := K * D / H
	t, ctx := float64(computed(it)), float64(it.Context)

	c := ctx
	if t > 1 {
		c = ctx + (t-1)/2
	}
	gemm := L * (float64(2*t*(D*D+float64(2*D*dkv))) + float64(2*t*D*D))
	attention := L * 4 * H * t * c * head
	vector := L * (float64(5*H*t*c) + float64(2*t*D))
	mlp := L * 2 * t * (2 * D * float64(m.s.Intermediate))
	if m.s.MoE() {
		mlp = L * 2 * t * (2 * D * float64(m.s.expertDim())) * float64(m.s.ActiveExperts)
	}
	mfu := m.g.MFUDecode
	if it.Prefill {
		mfu = m.g.MFUPrefill
	}
	flops := gemm + attention + vector + mlp
	seconds = flops / m.tp / (m.peak * mfu)

	B := m.s.Bytes
	write := 2 * L * K * head * B * t
	read := 2 * L * K * head * B * ctx
	bytes = (write + read + float64(L*D*B*t)) / m.tp
	return seconds, bytes
}

// weights returns the bytes of weights that a step of so many tokens reads. A token picks e of E experts, so a step
// leaves an expert unread with probability ((E-e)/E)^tokens.
func (m *Roofline) weights(tokens int) float64 {
	L, D, H, K := float64(m.s.Layers), float64(m.s.Hidden), float64(m.s.Heads), float64(m.s.KVHeads)
	dkv := K * D / H
	attention := L * (float64(D*(D+float64(2*dkv))) + float64(D*D))
	mlp := L * 2 * D * float64(m.s.Intermediate)
	if m.s.MoE() {
		E, e := float64(m.s.Experts), float64(m.s.ActiveExperts)
		mlp = L * 2 * D * float64(m.s.expertDim()) * (E * (1 - math.Pow((E-e)/E, float64(tokens))))
	}
	return m.s.WeightBytes * (attention + mlp)
}
