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

// observe learns from a step that computed l. shared says that it had answers and prompts: chunks are sized for such
// steps, and only they move the ratio. slow reports that the step took so much longer than predicted that the machine
// may have become slower.
func (m *costModel) observe(l load, took time.Duration, shared bool) (slow bool) {
	ms := float64(took) / 1e6
	if !(ms > 0) || ms > 1e7 {
		return false
	}
	if m.prompts == 0 && l.prefill > 0 {
		m.firstPrompt(l, ms)
	}
	if l.prefill == 0 && l.decode > 0 {
		m.observeAlone(l.decode, ms)
	}
	x := features(l)
	pred := max(m.predict(l), 1e-3)
	v, cx := m.spread(&x)
	base := pred
	if m.steps < 16 {
		base = ms // the prediction is still a guess
	}
	e := ms - pred
	r := mul(m.noise, base*base)
	known := v < mul(0.06, pred*pred) // the prediction's uncertainty is below 25 %

	if known {
		m.err += mul(0.05, min(math.Abs(e)/ms, 10)-m.err)
		if shared {
			// A quantile by stochastic approximation: ratio rests where costQuantile of the steps stay below upper.
			step := costRatioStep + 4/float64(m.prompts+20)
			if ms > m.upper(l) {
				m.ratio *= 1 + costRatioStep*costQuantile
			} else {
				m.ratio *= 1 - float64(step*(1-costQuantile))
			}
			m.ratio = min(max(m.ratio, costRatioMin), costRatioMax)
		}
	}
	m.follow(ms/pred-1, known && shared)
	if known {
		slow = ms > mul(costJump, pred)
		if m.jump(ms / pred) {
			return slow // the coefficients are new; this step is in them
		}
	}

	if cut := costHuber * math.Sqrt(r+v); math.Abs(e) > cut {
		e = math.Copysign(cut, e)
	}
	rel := e / base
	m.noise += mul(0.03, min(rel*rel, 9*m.noise)-m.noise)
	m.noise = min(max(m.noise, costNoiseMin), costNoiseMax)

	gain := 1 / (r + v)
	var least [terms]float64 // a smaller variance is a rounding error
	for i := range terms {
		least[i] = mul(1e-10, m.cov[i][i])
	}
	for i := range terms {
		m.theta[i] += mul(cx[i], e*gain)
		for j := range i + 1 {
			m.cov[i][j] -= mul(cx[i], cx[j]*gain)
			m.cov[j][i] = m.cov[i][j]
		}
	}
	m.notNegative()
	for i := range terms {
		if m.cov[i][i] < least[i] {
			m.uncorrelated(i, least[i])
		}
		// A coefficient of 0 drifts too, or it could never become positive again.
		d := costDrift * max(m.theta[i], costPrior.mean[i]/64)
		m.cov[i][i] += mul(d, d)
	}
	m.bound()
	m.steps++
	if l.prefill > 0 {
		m.prompts++
		m.largest = max(m.largest, l.prefill)
		m.recent = max(m.recent*costRecent, l.prefill)
	}
	return slow
}

// observeMiss learns that l would have taken longer than limit, which was above upper. How much longer is not known, so
// only the margin learns. slow is observe's.
func (m *costModel) observeMiss(l load, limit time.Duration) (slow bool) {
	x := features(l)
	v, _ := m.spread(&x)
	ms, pred := float64(limit)/1e6, max(m.predict(l), 1e-3)
	if v >= mul(0.06, pred*pred) {
		return false
	}
	m.ratio = min(m.ratio*(1+costRatioStep*costQuantile), costRatioMax)
	m.follow(ms/pred-1, true)
	return ms > mul(costJump, pred)
}

// observeAlone takes a step of so many rows of answers and no prompt.
func (m *costModel) observeAlone(rows, ms float64) {
	a := &m.alone
	if a.rows == 0 {
		a.ms, a.rows = ms, rows
		return
	}
	// The limit keeps one step during which the machine slept from spoiling the mean.
	a.ms += mul(costAlone, min(ms, 4*a.ms)-a.ms)
	a.rows += mul(costAlone, rows-a.rows)
}

// answers returns the time in milliseconds of a step of answers alone, as measured last. After thousands of steps with
// prompts the prediction may be 1.7 times as long, because the fit cannot tell the fixed time of a step from the time
// that all of those steps had in common. Growth of the contexts since that measurement is not counted: its prediction
// has the same error.
func (m *costModel) answers(l load) float64 {
	ms := m.predict(l)
	if a := &m.alone; a.rows > 0 {
		ms = min(ms, mul(a.ms, max(1, l.decode/a.rows)))
	}
	return ms
}

// notNegative sets negative coefficients to 0, one after the other, and moves the others to their expectation given
// that. Clipping alone would leave in the others the error that made one negative, and each step would add to it.
func (m *costModel) notNegative() {
	cov := m.cov // of the coefficients that are not 0 yet, given that the others are
	for range terms {
		least := 0
		for i, v := range m.theta {
			if v < m.theta[least] {
				least = i
			}
		}
		row := cov[least]
		if m.theta[least] >= 0 || !(row[least] > 0) {
			break
		}
		by := m.theta[least] / row[least]
		for i := range m.theta {
			m.theta[i] -= mul(row[i], by)
			share := row[i] / row[least]
			for j := range row {
				cov[i][j] -= mul(share, row[j])
			}
		}
		for i := range row {
			cov[i][least], cov[least][i] = 0, 0
		}
		m.theta[least] = 0
	}
	for i, v := range m.theta {
		m.theta[i] = min(max(v, 0), 1e9)
	}
}

// follow learns how much of a step's error the next one has. Between shared steps the error fades.
func (m *costModel) follow(rel float64, shared bool) {
	if !shared {
		m.lastError = m.nextError()
		return
	}
	rel = min(max(rel, -costLast), costLast)
	m.autocov += mul(costLastWeight, mul(rel, m.lastError)-m.autocov)
	m.variance += mul(costLastWeight, mul(rel, rel)-m.variance)
	m.variance = max(m.variance, costNoiseMin)
	m.lastError = rel
}

// firstPrompt takes the scale of the machine from the first step with prompt tokens if that took much longer than the
// prior says: the filter alone would need a dozen steps to learn that a machine is a hundred times slower, each of them
// seconds long.
func (m *costModel) firstPrompt(l load, ms float64) {
	pred := max(m.predict(l), 1e-3)
	if ms <= costJump*pred {
		return
	}
	// The larger coefficient is as uncertain as the prior was.
	larger := func(i int, theta float64) {
		m.theta[i] = min(theta, 1e9)
		std := max(costPrior.std[i], m.theta[i])
		m.uncorrelated(i, std*std)
	}
	if m.steps > 0 {
		// Rows are known already: the rest of the time is the prompt's.
		larger(1, (ms-pred)*costScale[1]/l.prefill+m.theta[1])
		return
	}
	for i, theta := range m.theta {
		larger(i, float64(theta*(ms/pred)))
	}
}

// uncorrelated gives a coefficient a variance and removes its correlation with the others.
func (m *costModel) uncorrelated(i int, variance float64) {
	for j := range terms {
		m.cov[i][j], m.cov[j][i] = 0, 0
	}
	m.cov[i][i] = variance
}

// doubtRows makes the price of a row and of the step uncertain by some of the time that a step of few rows took: the
// model was wrong about how the two share it.
func (m *costModel) doubtRows(took time.Duration) {
	std := mul(0.3, float64(took)/1e6)
	m.uncorrelated(0, mul(std, std))
	std *= costScale[2]
	m.uncorrelated(2, mul(std, std))
	m.bound()
}

// scale multiplies all coefficients by f and makes them a little less certain.
func (m *costModel) scale(f float64) {
	for i := range terms {
		m.theta[i] = min(m.theta[i]*f, 1e9)
		for j := range terms {
			m.cov[i][j] *= f * f
		}
		d := 0.1 * m.theta[i]
		m.cov[i][i] += mul(d, d)
	}
	m.bound()
}

// jump detects that the machine became slower or faster by one factor for everything.
func (m *costModel) jump(ratio float64) bool {
	switch {
	case ratio > costJump:
		if m.streak <= 0 {
			m.streak, m.nearest = 0, ratio
		}
		m.streak++
		m.nearest = min(m.nearest, ratio)
	case ratio < 1/costJump:
		if m.streak >= 0 {
			m.streak, m.nearest = 0, ratio
		}
		m.streak--
		m.nearest = max(m.nearest, ratio)
	default:
		m.streak = 0
		return false
	}
	if m.streak > -costStreak && m.streak < costStreak {
		return false
	}
	// By the ratio nearest to 1: an outlier within the streak must not set the scale.
	m.scale(m.nearest)
	m.streak, m.lastError = 0, 0
	return true
}

// bound keeps the variances within the prior's by scaling a coefficient's row and column, which keeps the matrix a
// covariance. It also keeps rounding from making a variance vanish.
func (m *costModel) bound() {
	for i := range terms {
		hi := max(costPrior.std[i], m.theta[i])
		lo := 1e-6 * hi
		switch v := m.cov[i][i]; {
		case !(v > lo*lo): // NaN too
			m.uncorrelated(i, lo*lo)
		case v > hi*hi:
			f := hi / math.Sqrt(v)
			for j := range terms {
				m.cov[i][j] *= f
				m.cov[j][i] = m.cov[i][j]
			}
			m.cov[i][i] = hi * hi
		}
	}
}
