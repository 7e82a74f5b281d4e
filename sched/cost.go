package sched

import (
	"math"
	"time"
)

// Cost is the time of one Decode, linear in what it computes:
//
//	milliseconds = A + B·prefill tokens + C·decode rows + D·attended + E·read
//
// attended is the number of KV cells that the batch's rows attend to: p + 1 for a row at position p, so N·Start +
// N·(N+1)/2 for a slice. read is the number of cells that are read for them: a slice's rows share what they read, so
// Start + N. Rows of probes count as decode rows.
type Cost struct {
	A float64 `json:"a_ms"`          // per step
	B float64 `json:"b_ms_prefill"`  // per prompt token
	C float64 `json:"c_ms_decode"`   // per row of an answer
	D float64 `json:"d_ms_attended"` // per attended cell
	E float64 `json:"e_ms_read"`     // per cell that is read
}

// Attended returns the number of KV cells that n rows from position start on attend to: Cost's measure of context.
func Attended(start, n int) float64 { return attended(start, n) }

// Predict returns how long a Decode of so many prompt tokens and decode rows takes that attend to so many cells and
// read so many.
func (c Cost) Predict(prefill, decode int, attended, read float64) time.Duration {
	return time.Duration((c.A + c.B*float64(prefill) + c.C*float64(decode) + c.D*attended + c.E*read) * 1e6)
}

// load counts the work of a batch in the terms of Cost. more is the number of Decodes beyond the first: the draft model
// computes its guesses one after the other.
type load struct{ prefill, decode, attended, read, more float64 }

// slice adds n tokens from position start on.
func (l *load) slice(kind SliceKind, start, n int) {
	l.read += float64(start)
	l.extend(kind, start, n)
}

// extend adds n tokens from position start on to a slice that ends there.
func (l *load) extend(kind SliceKind, start, n int) {
	if kind == SlicePrefill {
		l.prefill += float64(n)
	} else {
		l.decode += float64(n)
	}
	l.attended += attended(start, n)
	l.read += float64(n)
}

// attended returns the number of cells that n rows from position start on attend to.
func attended(start, n int) float64 {
	return mul(float64(n), float64(start)) + float64(n)*float64(n+1)*0.5
}

// mul returns a product that is rounded before it is added to anything: without the conversion some architectures fuse
// the two operations, and a trace would replay to different plans on another architecture.
func mul(a, b float64) float64 { return float64(a * b) }

// costModel fits Cost to the measured steps: recursive least squares in which the coefficients may drift (a Kalman
// filter of a random walk). It forgets like an exponential window, but only what it gets news of: an hour of answers
// alone does not make it forget what a prompt costs.
//
// Errors are weighted relative to the step's time, because measurement errors grow with it. The error of a single
// outlier is cut to what the noise allows (Huber). Several steps in a row that are off by the same factor mean that the
// machine became slower or faster, and scale all coefficients at once. Coefficients stay ≥ 0: a token that saves time
// is an artefact of the fit.
//
// Units are scaled so that all coefficients are of one order of magnitude.
type costModel struct {
	theta   [terms]float64        // ms per scaled unit. Invariant: finite, ≥ 0
	cov     [terms][terms]float64 // Invariant: symmetric; diagonal in (0, costPrior.std²]
	noise   float64               // variance of the relative error
	err     float64
	ratio   float64 // Invariant: costRatioMin ≤ ratio ≤ costRatioMax
	steps   uint64
	prompts uint64
	largest float64
	recent  float64 // prompt tokens of the largest of the newest steps with prompts; it fades by costRecent in each

	lastError float64 // measured over predicted time of the last shared step, less 1. Invariant: |·| ≤ costLast
	autocov   float64 // mean product of neighbouring errors
	variance  float64 // mean square of an error

	alone struct{ ms, rows float64 } // mean of the newest steps of answers alone; 0 = there was none

	streak  int     // consecutive steps that were far off on one side: > 0 slower, < 0 faster
	nearest float64 // the measured over predicted time of the streak that is nearest to 1
}

// terms is the number of coefficients of Cost.
const terms = 5

// How much of each quantity is one unit: powers of two, so that dividing by them rounds nothing.
const (
	promptUnit = 32
	rowUnit    = 4
	cellUnit   = 8192
)

var costScale = [terms]float64{1, promptUnit, rowUnit, cellUnit, cellUnit}

// costPrior is assumed before the first step: a slow machine, with little confidence.
var costPrior = struct{ mean, std [terms]float64 }{
	mean: [terms]float64{4, 32, 8, 4, 4},
	std:  [terms]float64{30, 128, 40, 32, 32},
}

const (
	costDrift    = 0.004 // standard deviation of a coefficient's drift in a step, relative to it
	costNoise    = 0.01  // variance of the relative error at the start: 10 %
	costNoiseMin = 1e-4
	costNoiseMax = 0.25
	costHuber    = 3.0 // standard deviations beyond which an error is cut
	costStreak   = 3   // so many steps off by costJump in a row mean that the machine's speed changed
	costJump     = 1.4

	costRatioStart = 1.2
	costRatioMin   = 1.02
	costRatioMax   = 3
	costQuantile   = 0.96 // above the documented 0.95, because the estimate swings around it
	costRatioStep  = 0.06 // how fast it moves, and faster in its first steps

	// A token can cost twice as much in a large chunk as between small ones, whose time is that of reading the weights:
	// measured 0.53 ms in 2,000 steps of 7 or 8 tokens, and 1.1 ms among the next prompt's 123.
	costBend   = 1.0  // standard deviation of what a token beyond twice the recent chunks costs, relative to the others
	costRecent = 0.98 // the largest chunk counts half after 35 steps with prompts
	// The size of recent chunks is not saved: a restored model assumes that they had at most so many tokens.
	costRestored = 16

	costAlone = 1. / 16 // weight of the newest step of answers alone

	costLast       = 0.5  // beyond it an error counts no more: few disturbances that large last
	costCarry      = 0.9  // most of the last step's error that the next one is taken to have
	costLastWeight = 0.02 // of the newest step in the means
)

func newCostModel(st *CostState) costModel {
	m := costModel{theta: costPrior.mean, noise: costNoise, ratio: costRatioStart, variance: costNoise}
	for i, s := range costPrior.std {
		m.cov[i][i] = s * s
	}
	if st.Steps == 0 || !st.sane() {
		return m
	}
	for i, v := range [terms]float64{st.A, st.B, st.C, st.D, st.E} {
		m.theta[i] = v * costScale[i]
	}
	k := 0
	for i := range terms {
		for j := i; j < terms; j++ {
			m.cov[i][j], m.cov[j][i] = st.Cov[k], st.Cov[k]
			k++
		}
	}
	m.bound()
	m.noise = min(max(st.Noise, costNoiseMin), costNoiseMax)
	m.ratio = min(max(st.Ratio, costRatioMin), costRatioMax)
	m.err, m.steps, m.prompts, m.largest = st.Error, st.Steps, st.Prompts, st.Largest
	m.recent = min(st.Largest, costRestored)
	return m
}

// sane reports whether a model can have this state: finite, not negative, a positive semidefinite covariance.
func (c *CostState) sane() bool {
	for _, p := range c.numbers() {
		if math.IsNaN(*p) || math.IsInf(*p, 0) {
			return false
		}
	}
	for _, v := range []float64{c.A, c.B, c.C, c.D, c.E, c.Noise, c.Error, c.Ratio, c.Largest} {
		if v < 0 || v > 1e9 {
			return false
		}
	}
	// Cov has the index pairs 00 01 02 03 04 11 12 13 14 22 23 24 33 34 44.
	d := [terms]float64{c.Cov[0], c.Cov[5], c.Cov[9], c.Cov[12], c.Cov[14]}
	k := 0
	for i := range terms {
		for j := i; j < terms; j++ {
			if a, b := d[i], d[j]; a <= 0 || b <= 0 || c.Cov[k]*c.Cov[k] > a*b*(1+1e-9) {
				return false
			}
			k++
		}
	}
	return true
}

// state returns what to save of the model.
func (m *costModel) state() CostState {
	st := CostState{Cost: m.cost(), Noise: m.noise, Error: m.err, Ratio: m.ratio, Steps: m.steps, Prompts: m.prompts,
		Largest: m.largest}
	k := 0
	for i := range terms {
		for j := i; j < terms; j++ {
			most := math.Sqrt(m.cov[i][i]) * math.Sqrt(m.cov[j][j]) // rounding may have left a little more
			st.Cov[k] = min(max(m.cov[i][j], -most), most)
			k++
		}
	}
	return st
}

func (m *costModel) cost() Cost {
	t := &m.theta
	return Cost{A: t[0] / costScale[0], B: t[1] / costScale[1], C: t[2] / costScale[2], D: t[3] / costScale[3],
		E: t[4] / costScale[4]}
}

func features(l load) [terms]float64 {
	return [terms]float64{1 + l.more, l.prefill * (1. / promptUnit), l.decode * (1. / rowUnit),
		l.attended * (1. / cellUnit), l.read * (1. / cellUnit)}
}

// dot returns the sum of the products, each rounded.
func dot(a, x *[terms]float64) float64 {
	return mul(a[0], x[0]) + mul(a[1], x[1]) + mul(a[2], x[2]) + mul(a[3], x[3]) + mul(a[4], x[4])
}

// predict returns the expected time of l in milliseconds.
func (m *costModel) predict(l load) float64 {
	x := features(l)
	return dot(&m.theta, &x)
}

// another returns the extra milliseconds of one more row, at position at, when the batch already has the same answer's
// previous row: the reads of its cells are shared.
func (m *costModel) another(at int) float64 {
	return mul(m.theta[2], 1./rowUnit) + mul(m.theta[3], float64(at+1)*(1./cellUnit)) + mul(m.theta[4], 1./cellUnit)
}

// spread returns the variance of predict due to the uncertainty of the coefficients, and cov·x.
func (m *costModel) spread(x *[terms]float64) (v float64, cx [terms]float64) {
	c := &m.cov
	cx = [terms]float64{dot(&c[0], x), dot(&c[1], x), dot(&c[2], x), dot(&c[3], x), dot(&c[4], x)}
	return max(dot(&cx, x), 0), cx
}

// upper returns the time in milliseconds that l stays below in about 95 of 100 cases. The measured margin covers noise,
// the spread what was never measured (a longer context), the bend what was not measured of late (a much larger chunk).
func (m *costModel) upper(l load) float64 {
	x := features(l)
	v, _ := m.spread(&x)
	bend := m.bend(l.prefill)
	return mul(dot(&m.theta, &x), m.margin()) + math.Sqrt(v+mul(bend, bend))
}

// bend returns the additional standard deviation in milliseconds of a chunk that is far larger than those of the newest
// steps.
func (m *costModel) bend(prefill float64) float64 {
	if m.recent == 0 {
		return 0 // the coefficients themselves are uncertain
	}
	return mul(mul(costBend, m.theta[1]), max(prefill-2*m.recent, 0)*(1./promptUnit))
}

// nextError returns the relative error expected of the next shared step, given that of the last one: a disturbance,
// such as another process's use of memory bandwidth, seldom ends with the step.
func (m *costModel) nextError() float64 {
	return float64(m.lastError * min(max(m.autocov/m.variance, 0), costCarry))
}

// margin returns the factor over the prediction within which 95 of 100 shared steps stay, given the last step's error.
func (m *costModel) margin() float64 { return max(1, float64(m.ratio*(1+m.nextError()))) }

// likely returns upper without the noise: about half of the steps take longer. It is for steps that no answer waits
// for.
func (m *costModel) likely(l load) float64 {
	x := features(l)
	v, _ := m.spread(&x)
	return dot(&m.theta, &x) + math.Sqrt(v)
}

// fits returns the largest n ≤ most for which base with n prompt tokens from position start on stays below limit
// milliseconds in 95 of 100 cases.
func (m *costModel) fits(limit float64, base load, start, most int) int {
	return m.chunk(limit, base, start, most, m.upper)
}

// fitsLikely returns what fits does, with likely in place of upper.
func (m *costModel) fitsLikely(limit float64, base load, start, most int) int {
	return m.chunk(limit, base, start, most, m.likely)
}

// chunk returns the largest n ≤ most for which bound of base with n prompt tokens from position start on stays below
// limit. The bound grows with n, so bisection finds n in a dozen evaluations; unlike the root of the quadratic it
// includes the spread.
func (m *costModel) chunk(limit float64, base load, start, most int, bound func(load) float64) int {
	ok := func(n int) bool {
		l := base
		l.slice(SlicePrefill, start, n)
		return bound(l) <= limit
	}
	if most <= 0 || ok(most) {
		return max(0, most)
	}
	lo, hi := 0, most // lo fits or is 0, hi does not fit
	for hi-lo > 1 {
		if n := lo + (hi-lo)/2; ok(n) {
			lo = n
		} else {
			hi = n
		}
	}
	return lo
}
