// Package cost predicts how long a Decode takes, and learns it from the steps that were measured.
//
// It knows neither requests nor policies: a Load is numbers of tokens, rows and cells. Model is for one number of
// compute threads, Threads for a number that changes. Mean, Gaps, PromptRate and Pace follow what was measured without
// a model, and WholeTiles knows which numbers of rows are cheap. Everything is pure, and products are rounded before
// they are added up, so that a trace replays to the same plans on every architecture.
package cost

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

// Predict returns how long a Decode of so many prompt tokens and decode rows takes that attend to so many cells and
// read so many.
func (c Cost) Predict(prefill, decode int, attended, read float64) time.Duration {
	return time.Duration((c.A + c.B*float64(prefill) + c.C*float64(decode) + c.D*attended + c.E*read) * 1e6)
}

// Load is the work of a batch in the terms of Cost. More is the number of Decodes beyond the first: the draft model
// computes its guesses one after the other. The zero value is no work.
type Load struct{ Prefill, Decode, Attended, Read, More float64 }

// None reports whether nothing is computed.
func (l Load) None() bool { return l.Prefill+l.Decode == 0 }

// AddPrompt adds n prompt tokens from position start on.
func (l *Load) AddPrompt(start, n int) {
	l.Read += float64(start)
	l.ExtendPrompt(start, n)
}

// ExtendPrompt adds n tokens from position start on to a part of a prompt that ends there: its cells are read already.
func (l *Load) ExtendPrompt(start, n int) {
	l.Prefill += float64(n)
	l.attend(start, n)
}

// AddRows adds n rows of one answer from position start on.
func (l *Load) AddRows(start, n int) {
	l.Read += float64(start)
	l.ExtendRows(start, n)
}

// ExtendRows adds n rows from position start on to rows that end there: their cells are read already.
func (l *Load) ExtendRows(start, n int) {
	l.Decode += float64(n)
	l.attend(start, n)
}

func (l *Load) attend(start, n int) {
	l.Attended += Attended(start, n)
	l.Read += float64(n)
}

// Attended returns the number of KV cells that n rows from position start on attend to: Cost's measure of context.
func Attended(start, n int) float64 {
	return mul(float64(n), float64(start)) + float64(n)*float64(n+1)*0.5
}

// mul returns a product that is rounded before it is added to anything: without the conversion some architectures fuse
// the two operations, and a trace would replay to different plans on another architecture.
func mul(a, b float64) float64 { return float64(a * b) }

// Model fits Cost to the measured steps: recursive least squares in which the coefficients may drift (a Kalman
// filter of a random walk). It forgets like an exponential window, but only what it gets news of: an hour of answers
// alone does not make it forget what a prompt costs.
//
// Errors are weighted relative to the step's time, because measurement errors grow with it. The error of a single
// outlier is cut to what the noise allows (Huber). Several steps in a row that are off by the same factor mean that the
// machine became slower or faster, and scale all coefficients at once. Coefficients stay ≥ 0: a token that saves time
// is an artefact of the fit.
//
// Units are scaled so that all coefficients are of one order of magnitude.
type Model struct {
	theta   [terms]float64        // ms per scaled unit. Invariant: finite, ≥ 0
	cov     [terms][terms]float64 // Invariant: symmetric; diagonal in (0, prior.std²]
	noise   float64               // variance of the relative error
	err     float64
	ratio   float64 // Invariant: ratioMin ≤ ratio ≤ ratioMax
	steps   uint64
	prompts uint64
	largest float64
	recent  float64 // prompt tokens of the largest of the newest steps with prompts; it fades by recentFades in each

	lastError float64 // measured over predicted time of the last shared step, less 1. Invariant: |·| ≤ lastMost
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

var scale = [terms]float64{1, promptUnit, rowUnit, cellUnit, cellUnit}

// prior is assumed before the first step: a slow machine, with little confidence.
var prior = struct{ mean, std [terms]float64 }{
	mean: [terms]float64{4, 32, 8, 4, 4},
	std:  [terms]float64{30, 128, 40, 32, 32},
}

const (
	drift        = 0.004 // standard deviation of a coefficient's drift in a step, relative to it
	noiseStart   = 0.01  // variance of the relative error at the start: 10 %
	noiseMin     = 1e-4
	noiseMax     = 0.25
	huber        = 3.0 // standard deviations beyond which an error is cut
	streakLength = 3   // so many steps off by jumpBy in a row mean that the machine's speed changed
	jumpBy       = 1.4

	ratioStart = 1.2
	ratioMin   = 1.02
	ratioMax   = 3
	quantile   = 0.96 // above the documented 0.95, because the estimate swings around it
	ratioStep  = 0.06 // how fast it moves, and faster in its first steps

	// A token can cost twice as much in a large chunk as between small ones, whose time is that of reading the weights:
	// measured 0.53 ms in 2,000 steps of 7 or 8 tokens, and 1.1 ms among the next prompt's 123.
	bendBy = 1.0 // standard deviation of what a token beyond twice the recent chunks costs, relative to the others

	recentFades = 0.98 // the largest chunk counts half after 35 steps with prompts
	// The size of recent chunks is not saved: a restored model assumes that they had at most so many tokens.
	restored = 16

	aloneWeight = 1. / 16 // weight of the newest step of answers alone

	lastMost   = 0.5  // beyond it an error counts no more: few disturbances that large last
	carryMost  = 0.9  // most of the last step's error that the next one is taken to have
	lastWeight = 0.02 // of the newest step in the means
)

// New returns a model with a saved state, or one that has learned nothing if a model cannot have that state.
func New(st *State) Model {
	m := Model{theta: prior.mean, noise: noiseStart, ratio: ratioStart, variance: noiseStart}
	for i, s := range prior.std {
		m.cov[i][i] = s * s
	}
	if st.Steps == 0 || !st.sane() {
		return m
	}
	for i, v := range [terms]float64{st.A, st.B, st.C, st.D, st.E} {
		m.theta[i] = v * scale[i]
	}
	k := 0
	for i := range terms {
		for j := i; j < terms; j++ {
			m.cov[i][j], m.cov[j][i] = st.Cov[k], st.Cov[k]
			k++
		}
	}
	m.bound()
	m.noise = min(max(st.Noise, noiseMin), noiseMax)
	m.ratio = min(max(st.Ratio, ratioMin), ratioMax)
	m.err, m.steps, m.prompts, m.largest = st.Error, st.Steps, st.Prompts, st.Largest
	m.recent = min(st.Largest, restored)
	return m
}

// sane reports whether a model can have this state: finite, not negative, a positive semidefinite covariance.
func (c *State) sane() bool {
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

// State returns what to save of the model, for New.
func (m *Model) State() State {
	st := State{Cost: m.Cost(), Noise: m.noise, Error: m.err, Ratio: m.ratio, Steps: m.steps, Prompts: m.prompts,
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

// Cost returns the coefficients now.
func (m *Model) Cost() Cost {
	t := &m.theta
	return Cost{A: t[0] / scale[0], B: t[1] / scale[1], C: t[2] / scale[2], D: t[3] / scale[3],
		E: t[4] / scale[4]}
}

// Steps returns how many steps the model has learned from, and Prompts how many of them had prompt tokens.
func (m *Model) Steps() uint64   { return m.steps }
func (m *Model) Prompts() uint64 { return m.prompts }

// Largest returns the prompt tokens of the largest step that the model has learned from.
func (m *Model) Largest() float64 { return m.largest }

// RelativeError returns the mean error of the predictions, relative to the steps' times.
func (m *Model) RelativeError() float64 { return m.err }

func features(l Load) [terms]float64 {
	return [terms]float64{1 + l.More, l.Prefill * (1. / promptUnit), l.Decode * (1. / rowUnit),
		l.Attended * (1. / cellUnit), l.Read * (1. / cellUnit)}
}

// dot returns the sum of the products, each rounded.
func dot(a, x *[terms]float64) float64 {
	return mul(a[0], x[0]) + mul(a[1], x[1]) + mul(a[2], x[2]) + mul(a[3], x[3]) + mul(a[4], x[4])
}

// Predict returns the expected time of l in milliseconds.
func (m *Model) Predict(l Load) float64 {
	x := features(l)
	return dot(&m.theta, &x)
}

// Another returns the extra milliseconds of one more row, at position at, when the batch already has the same answer's
// previous row: the reads of its cells are shared.
func (m *Model) Another(at int) float64 {
	return mul(m.theta[2], 1./rowUnit) + mul(m.theta[3], float64(at+1)*(1./cellUnit)) + mul(m.theta[4], 1./cellUnit)
}

// spread returns the variance of Predict due to the uncertainty of the coefficients, and cov·x.
func (m *Model) spread(x *[terms]float64) (v float64, cx [terms]float64) {
	c := &m.cov
	cx = [terms]float64{dot(&c[0], x), dot(&c[1], x), dot(&c[2], x), dot(&c[3], x), dot(&c[4], x)}
	return max(dot(&cx, x), 0), cx
}

// Upper returns the time in milliseconds that l stays below in about 95 of 100 cases. The measured margin covers noise,
// the spread what was never measured (a longer context), the bend what was not measured of late (a much larger chunk).
func (m *Model) Upper(l Load) float64 {
	x := features(l)
	v, _ := m.spread(&x)
	bend := m.bend(l.Prefill)
	return mul(dot(&m.theta, &x), m.Margin()) + math.Sqrt(v+mul(bend, bend))
}

// bend returns the additional standard deviation in milliseconds of a chunk that is far larger than those of the newest
// steps.
func (m *Model) bend(prefill float64) float64 {
	if m.recent == 0 {
		return 0 // the coefficients themselves are uncertain
	}
	return mul(mul(bendBy, m.theta[1]), max(prefill-2*m.recent, 0)*(1./promptUnit))
}

// nextError returns the relative error expected of the next shared step, given that of the last one: a disturbance,
// such as another process's use of memory bandwidth, seldom ends with the step.
func (m *Model) nextError() float64 {
	return float64(m.lastError * min(max(m.autocov/m.variance, 0), carryMost))
}

// Margin returns the factor over the prediction within which 95 of 100 shared steps stay, given the last step's error.
func (m *Model) Margin() float64 { return max(1, float64(m.ratio*(1+m.nextError()))) }

// Likely returns Upper without the noise: about half of the steps take longer. It is for steps that no answer waits
// for.
func (m *Model) Likely(l Load) float64 {
	x := features(l)
	v, _ := m.spread(&x)
	return dot(&m.theta, &x) + math.Sqrt(v)
}

// Fits returns the largest n ≤ most for which base with n prompt tokens from position start on stays below limit
// milliseconds in 95 of 100 cases.
func (m *Model) Fits(limit float64, base Load, start, most int) int {
	return m.Chunk(limit, base, start, most, m.Upper)
}

// FitsLikely returns what Fits does, with Likely in place of Upper.
func (m *Model) FitsLikely(limit float64, base Load, start, most int) int {
	return m.Chunk(limit, base, start, most, m.Likely)
}

// Chunk returns the largest n ≤ most for which bound of base with n prompt tokens from position start on stays below
// limit. The bound grows with n, so bisection finds n in a dozen evaluations; unlike the root of the quadratic it
// includes the spread.
func (m *Model) Chunk(limit float64, base Load, start, most int, bound func(Load) float64) int {
	ok := func(n int) bool {
		l := base
		l.AddPrompt(start, n)
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
