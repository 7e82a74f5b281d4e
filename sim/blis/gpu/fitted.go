package gpu

import (
	"fmt"
	"math"

	"github.com/uma-serve/uma-serve/sim/latency"
)

// CrossModelBeta and CrossModelAlpha are the coefficients BLIS shipped for crossmodel, microseconds.
var (
	CrossModelBeta  = []float64{116.110, 1226.868, 19.943, 9445.157}
	CrossModelAlpha = []float64{13732.0, 0, 860.6}
)

// CrossModel predicts from a model's shape with four coefficients fitted over many models:
// b0·L + b1·q·(L·K·head/TP·1e-6) + b2·(p+q)·[MoE] + b3·[TP > 1], p prefill and q decode tokens.
type CrossModel struct {
	latency.Alpha
	beta [4]float64
	s    Shape
	tp   float64
}

// NewCrossModel checks the pieces. Empty coefficients stand for the shipped ones.
func NewCrossModel(alphas, betas []float64, s Shape, tp int) (*CrossModel, error) {
	if len(alphas) == 0 {
		alphas = CrossModelAlpha
	}
	if len(betas) == 0 {
		betas = CrossModelBeta
	}
	a, err := latency.NewAlpha(alphas)
	if err != nil {
		return nil, err
	}
	if err := latency.CheckCoefficients("beta_coeffs", betas, 4); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if tp < 1 {
		return nil, fmt.Errorf("tp = %d: must be ≥ 1", tp)
	}
	return &CrossModel{a, [4]float64(betas[:4]), s, float64(tp)}, nil
}

func (m *CrossModel) NeedsItems() bool { return false }

func (m *CrossModel) Step(b *latency.Batch) int64 {
	L, head := float64(m.s.Layers), float64(m.s.Hidden)/float64(m.s.Heads)
	p, q := float64(b.PrefillTokens), float64(b.DecodeTokens)
	moe, tp := 0.0, 0.0
	if m.s.MoE() {
		moe = 1
	}
	if m.tp > 1 {
		tp = 1
	}
	t := float64(m.beta[0]*L) + float64(m.beta[1]*q*(L*float64(m.s.KVHeads)*head/m.tp*1e-6)) + float64(
		m.beta[2]*(p+q)*moe) + float64(m.beta[3]*tp)
	return max(1, latency.Ticks(t))
}

// TrainedRooflineBeta and TrainedRooflineAlpha are the shipped coefficients of trained-roofline. The alphas are the
// fixed delay before the queue, what is added once to the end-to-end time, and what every token costs; microseconds.
var (
	TrainedRooflineBeta = []float64{0.7726491335309499, 1.127489556719325, 1.0559901872766853, 0,
		43.500541908701074, 48.80613214319187, 0}
	TrainedRooflineAlpha = []float64{9315.338771116985, 1849.5902371340574, 1.7079389122469397}
)

// TrainedRoofline weighs the roofline's terms: b0·max(prefill compute, prefill KV traffic) + b1·max(decode compute,
// decode KV traffic) + b2·weight traffic + b3·all-reduce + b4·L + b5·requests + b6. Its terms use the data sheet's
// peak without a utilisation factor, three MLP matrices, and 16-bit weights and activations. The shipped b3 is 0.
type TrainedRoofline struct {
	alpha [3]float64
	beta  [7]float64
	s     Shape
	tp    float64
	peak  float64
	bw    float64
	sums  AllReduce
}

// NewTrainedRoofline checks the pieces. Empty coefficients stand for the shipped ones. Several GPUs whose b3 is not 0
// need the cost of their all-reduce.
func NewTrainedRoofline(alphas, betas []float64, s Shape, g GPU, tp int, sums AllReduce) (*TrainedRoofline, error) {
	if len(alphas) == 0 {
		alphas = TrainedRooflineAlpha
	}
	if len(betas) == 0 {
		betas = TrainedRooflineBeta
	}
	a, err := latency.NewAlpha(alphas)
	if err != nil {
		return nil, err
	}
	if err := latency.CheckCoefficients("beta_coeffs", betas, 7); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if tp < 1 {
		return nil, fmt.Errorf("tp = %d: must be ≥ 1", tp)
	}
	if err := sums.check(); err != nil {
		return nil, fmt.Errorf("trained-roofline: %w", err)
	}
	if tp > 1 && betas[3] > 0 && sums == (AllReduce{}) {
		return nil, fmt.Errorf("trained-roofline: beta_coeffs[3] = %v weighs the all-reduce of tp = %d GPUs, and its "+
			"cost is not given: set roofline_all_reduce_gbs, the bandwidth between them",
			betas[3], tp)
	}
	return &TrainedRoofline{a, [7]float64(betas[:7]), s, float64(tp), g.TFlopsPeak * 1e12, g.BwPeakTBs * 1e12,
		sums}, nil
}

func (m *TrainedRoofline) Enqueue(int) int64 { return latency.Ticks(m.alpha[0]) }
func (m *TrainedRoofline) Finish() int64     { return latency.Ticks(m.alpha[1]) }
func (m *TrainedRoofline) Token() int64      { return latency.Ticks(m.alpha[2]) }
func (m *TrainedRoofline) NeedsItems() bool  { return true }

func (m *TrainedRoofline) Step(b *latency.Batch) int64 {
	L, D, H, K := float64(m.s.Layers), float64(m.s.Hidden), float64(m.s.Heads), float64(m.s.KVHeads)
	head, dkv := D/H, K*D/H
	const width = 2.0 // bytes of fp16
	active := 1.0
	if m.s.MoE() {
		active = float64(m.s.ActiveExperts)
	}
	F := float64(m.s.expertDim())
	var flops, kv [2]float64 // 0 prefill, 1 decode
	total := 0
	for i := range b.Items {
		it := &b.Items[i]
		phase := 1
		if it.Prefill {
			phase = 0
		}
		t, ctx := float64(computed(it)), float64(it.Context)
		total += computed(it)
		c := ctx
		if t > 1 {
			c = ctx + (t-1)/2
		}
		flops[phase] += L*(2*t*(D*D+2*D*dkv)+2*t*D*D) + L*4*H*t*c*head + L*2*t*3*D*F*active
		kv[phase] += 2 * L * K * head * width * (t + ctx)
	}
	weights := L*(D*(D+2*dkv)+D*D) + L*3*D*F
	if m.s.MoE() {
		E, e := float64(m.s.Experts), float64(m.s.ActiveExperts)
		weights = L*(D*(D+2*dkv)+D*D) + L*3*D*F*E*(1-math.Pow((E-e)/E, float64(total)))
	}
	us := func(x, rate float64) float64 { return 1e6 * x / m.tp / rate }
	sum := m.beta[0]*math.Max(us(flops[0], m.peak), us(kv[0], m.bw)) +
		m.beta[1]*math.Max(us(flops[1], m.peak), us(kv[1], m.bw)) +
		m.beta[2]*us(weights*width, m.bw) + m.beta[3]*m.sums.step(&m.s, m.tp, total, width) +
		m.beta[4]*L + m.beta[5]*float64(b.Requests) + m.beta[6]
	return max(1, latency.Ticks(sum))
}
