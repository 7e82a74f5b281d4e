package cost

import (
	"math"
	"time"
)

// Observe learns from a step that computed l. shared says that it had answers and prompts: chunks are sized for such
// steps, and only they move the ratio. slow reports that the step took so much longer than predicted that the machine
// may have become slower.
func (m *Model) Observe(l Load, took time.Duration, shared bool) (slow bool) {
	ms := float64(took) / 1e6
	if !(ms > 0) || ms > 1e7 {
		return false
	}
	if m.prompts == 0 && l.Prefill > 0 {
		m.firstPrompt(l, ms)
	}
	if l.Prefill == 0 && l.Decode > 0 {
		m.observeAlone(l.Decode, ms)
	}
	x := features(l)
	pred := max(m.Predict(l), 1e-3)
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
			// A quantile by stochastic approximation: ratio rests where quantile of the steps stay below Upper.
			step := ratioStep + 4/float64(m.prompts+20)
			if ms > m.Upper(l) {
				m.ratio *= 1 + ratioStep*quantile
			} else {
				m.ratio *= 1 - float64(step*(1-quantile))
			}
			m.ratio = min(max(m.ratio, ratioMin), ratioMax)
		}
	}
	m.follow(ms/pred-1, known && shared)
	if known {
		slow = ms > mul(jumpBy, pred)
		if m.jump(ms / pred) {
			return slow // the coefficients are new; this step is in them
		}
	}

	if cut := huber * math.Sqrt(r+v); math.Abs(e) > cut {
		e = math.Copysign(cut, e)
	}
	rel := e / base
	m.noise += mul(0.03, min(rel*rel, 9*m.noise)-m.noise)
	m.noise = min(max(m.noise, noiseMin), noiseMax)

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
		d := drift * max(m.theta[i], prior.mean[i]/64)
		m.cov[i][i] += mul(d, d)
	}
	m.bound()
	m.steps++
	if l.Prefill > 0 {
		m.prompts++
		m.largest = max(m.largest, l.Prefill)
		m.recent = max(m.recent*recentFades, l.Prefill)
	}
	return slow
}

// Miss learns that l would have taken longer than limit, which was above Upper. How much longer is not known, so
// only the margin learns. slow is Observe's.
func (m *Model) Miss(l Load, limit time.Duration) (slow bool) {
	x := features(l)
	v, _ := m.spread(&x)
	ms, pred := float64(limit)/1e6, max(m.Predict(l), 1e-3)
	if v >= mul(0.06, pred*pred) {
		return false
	}
	m.ratio = min(m.ratio*(1+ratioStep*quantile), ratioMax)
	m.follow(ms/pred-1, true)
	return ms > mul(jumpBy, pred)
}

// observeAlone takes a step of so many rows of answers and no prompt.
func (m *Model) observeAlone(rows, ms float64) {
	a := &m.alone
	if a.rows == 0 {
		a.ms, a.rows = ms, rows
		return
	}
	// The limit keeps one step during which the machine slept from spoiling the mean.
	a.ms += mul(aloneWeight, min(ms, 4*a.ms)-a.ms)
	a.rows += mul(aloneWeight, rows-a.rows)
}

// Answers returns the time in milliseconds of a step of answers alone, as measured last. After thousands of steps with
// prompts the prediction may be 1.7 times as long, because the fit cannot tell the fixed time of a step from the time
// that all of those steps had in common. Growth of the contexts since that measurement is not counted: its prediction
// has the same error.
func (m *Model) Answers(l Load) float64 {
	ms := m.Predict(l)
	if a := &m.alone; a.rows > 0 {
		ms = min(ms, mul(a.ms, max(1, l.Decode/a.rows)))
	}
	return ms
}

// notNegative sets negative coefficients to 0, one after the other, and moves the others to their expectation given
// that. Clipping alone would leave in the others the error that made one negative, and each step would add to it.
func (m *Model) notNegative() {
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
func (m *Model) follow(rel float64, shared bool) {
	if !shared {
		m.lastError = m.nextError()
		return
	}
	rel = min(max(rel, -lastMost), lastMost)
	m.autocov += mul(lastWeight, mul(rel, m.lastError)-m.autocov)
	m.variance += mul(lastWeight, mul(rel, rel)-m.variance)
	m.variance = max(m.variance, noiseMin)
	m.lastError = rel
}

// firstPrompt takes the scale of the machine from the first step with prompt tokens if that took much longer than the
// prior says: the filter alone would need a dozen steps to learn that a machine is a hundred times slower, each of them
// seconds long.
func (m *Model) firstPrompt(l Load, ms float64) {
	pred := max(m.Predict(l), 1e-3)
	if ms <= jumpBy*pred {
		return
	}
	// The larger coefficient is as uncertain as the prior was.
	larger := func(i int, theta float64) {
		m.theta[i] = min(theta, 1e9)
		std := max(prior.std[i], m.theta[i])
		m.uncorrelated(i, std*std)
	}
	if m.steps > 0 {
		// Rows are known already: the rest of the time is the prompt's.
		larger(1, (ms-pred)*scale[1]/l.Prefill+m.theta[1])
		return
	}
	for i, theta := range m.theta {
		larger(i, float64(theta*(ms/pred)))
	}
}

// uncorrelated gives a coefficient a variance and removes its correlation with the others.
func (m *Model) uncorrelated(i int, variance float64) {
	for j := range terms {
		m.cov[i][j], m.cov[j][i] = 0, 0
	}
	m.cov[i][i] = variance
}

// DoubtRows makes the price of a row and of the step uncertain by some of the time that a step of few rows took: the
// model was wrong about how the two share it.
func (m *Model) DoubtRows(took time.Duration) {
	std := mul(0.3, float64(took)/1e6)
	m.uncorrelated(0, mul(std, std))
	std *= scale[2]
	m.uncorrelated(2, mul(std, std))
	m.bound()
}

// scale multiplies all coefficients by f and makes them a little less certain.
func (m *Model) scale(f float64) {
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
func (m *Model) jump(ratio float64) bool {
	switch {
	case ratio > jumpBy:
		if m.streak <= 0 {
			m.streak, m.nearest = 0, ratio
		}
		m.streak++
		m.nearest = min(m.nearest, ratio)
	case ratio < 1/jumpBy:
		if m.streak >= 0 {
			m.streak, m.nearest = 0, ratio
		}
		m.streak--
		m.nearest = max(m.nearest, ratio)
	default:
		m.streak = 0
		return false
	}
	if m.streak > -streakLength && m.streak < streakLength {
		return false
	}
	// By the ratio nearest to 1: an outlier within the streak must not set the scale.
	m.scale(m.nearest)
	m.streak, m.lastError = 0, 0
	return true
}

// bound keeps the variances within the prior's by scaling a coefficient's row and column, which keeps the matrix a
// covariance. It also keeps rounding from making a variance vanish.
func (m *Model) bound() {
	for i := range terms {
		hi := max(prior.std[i], m.theta[i])
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

// EndStreak forgets how many of the newest steps were far off: the next one has a shape that says nothing about the
// machine's speed.
func (m *Model) EndStreak() { m.streak = 0 }

// Assume sets m's coefficients to a share of other's, each with a standard deviation of half its value.
func (m *Model) Assume(other *Model, share float64) {
	for i := range m.theta {
		m.theta[i] = min(mul(other.theta[i], share), 1e9)
		m.uncorrelated(i, max(mul(m.theta[i], m.theta[i])/4, 1e-6))
	}
	m.bound()
}
