package cost

import (
	"math"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// NextError is for the tests from outside.
func (m *Model) NextError() float64 { return m.nextError() }

// mixed is costtest.Mixed, which imports this package.
func mixed(answers, ctx, start, chunk int) (l Load) {
	for range answers {
		l.AddRows(ctx, 1)
	}
	l.AddPrompt(start, chunk)
	return l
}

// TestCostNotNegative: no coefficient is cut that the others do not make up for, and those that are 0 stay 0.
func TestCostNotNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(&State{})
		// A covariance: the sum of the squares of random directions.
		m.cov = [terms][terms]float64{}
		for range terms + 2 {
			var d [terms]float64
			for i := range d {
				d[i] = rapid.Float64Range(-1, 1).Draw(t, "direction")
			}
			for i := range d {
				for j := range d {
					m.cov[i][j] += d[i] * d[j]
				}
			}
		}
		for i := range terms {
			m.cov[i][i] += 0.01
			m.theta[i] = rapid.Float64Range(-1, 1).Draw(t, "theta")
		}
		theta := m.theta
		m.notNegative()
		// theta's change must be what fixing the zeros at 0 implies: cov · k with k only where the result is 0.
		var zero []int
		for i, v := range m.theta {
			if v < 0 {
				t.Fatalf("%v became %v", theta, m.theta)
			}
			if v == 0 {
				zero = append(zero, i)
			}
		}
		a := mat.NewDense(max(1, len(zero)), max(1, len(zero)), nil)
		b := mat.NewVecDense(max(1, len(zero)), nil)
		a.Set(0, 0, 1)
		for x, i := range zero {
			b.SetVec(x, -theta[i])
			for y, j := range zero {
				a.Set(x, y, m.cov[i][j])
			}
		}
		var k mat.VecDense
		if err := k.SolveVec(a, b); err != nil {
			t.Fatal(err)
		}
		for i, v := range theta {
			for y, j := range zero {
				v += m.cov[i][j] * k.AtVec(y)
			}
			if math.Abs(v-m.theta[i]) > 1e-6*(1+math.Abs(v)) {
				t.Fatalf("%v became %v, want %v at %d", theta, m.theta, v, i)
			}
		}
	})
}

// TestCostSurvives: whatever is measured, the model stays finite and not negative, and a copy of its state predicts
// what it does.
func TestCostSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(&State{})
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			l := Load{Prefill: float64(rapid.IntRange(0, 1<<20).Draw(t, "prefill")),
				Decode:   float64(rapid.IntRange(0, 4096).Draw(t, "decode")),
				Attended: float64(rapid.Int64Range(0, 1<<50).Draw(t, "attended")),
				Read:     float64(rapid.Int64Range(0, 1<<40).Draw(t, "read")),
				More:     float64(rapid.IntRange(0, 64).Draw(t, "more"))}
			m.Observe(l, time.Duration(rapid.Int64().Draw(t, "took")), rapid.Bool().Draw(t, "shared"))
			st := m.State()
			if !st.sane() {
				t.Fatalf("state makes no sense: %+v", st)
			}
			if p := m.Upper(l); math.IsNaN(p) || p < 0 {
				t.Fatalf("predicts %v", p)
			}
		}
		st := m.State()
		again := New(&st)
		l := mixed(2, 300, 500, 10)
		if m.Steps() > 0 && math.Abs(again.Predict(l)-m.Predict(l)) > 1e-9*m.Predict(l) {
			t.Fatalf("a copy predicts %v, the model %v", again.Predict(l), m.Predict(l))
		}
	})
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1} {
		m := New(&State{})
		m.Observe(mixed(1, 5, 0, 4), 10*time.Millisecond, false)
		good := m.State()
		for i := range good.numbers() {
			st := good
			*st.numbers()[i] = bad
			diagonal := i == 5 || i == 10 || i == 14 || i == 17 || i == 19
			if i >= terms && i < 20 && bad == -1 && !diagonal {
				continue // a covariance may be negative
			}
			if got := New(&st); got.theta != prior.mean {
				t.Errorf("number %d is %v and was taken", i, bad)
			}
		}
	}
}
