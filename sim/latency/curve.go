package latency

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Curve is what a step takes by the number of tokens it computes, where that is not a line: a CPU's matrix kernels take
// tiles of rows, so that a second row can cost more than the next three. Between two points it is a line, and beyond the
// last one it goes on as before it.
type Curve struct {
	Tokens   []int     `json:"tokens"`   // ascending
	Us       []float64 `json:"us"`       // microseconds for so many tokens that attend to nothing, without logits
	Row      float64   `json:"row"`      // microseconds for each logits row
	Attended float64   `json:"attended"` // microseconds for each attended cell
}

// knots are the points of a fitted curve: each number of tokens while kernels see the difference, then wider.
var knots = func() (k []int) {
	for n, gap := 1, 1; n <= 8192; n += gap {
		if k = append(k, n); n >= 16 {
			gap = max(1, n/4)
		}
	}
	return k
}()

// place is where n lies among the points: on the line from i to i+1, at share t of it.
func place(points []int, n int) (i int, t float64) {
	i, _ = slices.BinarySearch(points, n+1) // the first point behind n
	i = min(max(i-1, 0), len(points)-2)
	return i, float64(n-points[i]) / float64(points[i+1]-points[i])
}

// us is the time of a step, microseconds.
func (c *Curve) us(tokens, rows int, attended float64) float64 {
	i, t := place(c.Tokens, tokens)
	return c.Us[i] + float64(t*(c.Us[i+1]-c.Us[i])) + float64(c.Row*float64(rows)) + float64(c.Attended*attended)
}

func (c *Curve) check() error {
	if len(c.Tokens) < 2 || len(c.Tokens) != len(c.Us) {
		return fmt.Errorf("cost model: curve has %d tokens and %d us: at least two of each are needed", len(c.Tokens), len(c.Us))
	}
	for i, n := range c.Tokens {
		if n < 1 || n > 1<<24 || i > 0 && n <= c.Tokens[i-1] {
			return fmt.Errorf("cost model: curve.tokens[%d] is %d: they must ascend from 1", i, n)
		}
	}
	return coefficients("cost model: curve", append([]float64{c.Row, c.Attended}, c.Us...), 4)
}

// fitCurve finds the curve that the samples follow, by least squares of relative errors in which far ones count less. linear
// is the line through them, from which the curve is drawn away by data alone: where there is none, it is as straight as
// its neighbours let it be.
func fitCurve(samples []Sample, linear [4]float64) *Curve {
	const rounds, near = 4, 0.05
	points := knots
	n := len(points)
	c := &Curve{Tokens: points}
	weight := make([]float64, len(samples))
	for i := range weight {
		weight[i] = 1
	}
	// The unknowns are of one order of magnitude: in units of what the line says, of 1 ms a row and 1 us a cell.
	scale := make([]float64, n+2)
	for i, p := range points {
		scale[i] = linear[0] + max(linear[1], linear[2])*float64(p) + 1
	}
	scale[n], scale[n+1] = 1000, 1
	fixed := [2]bool{} // Row, Attended: 0, because negative would be best
	for round := 0; round < rounds; round++ {
		ata := mat.NewSymDense(n+2, nil)
		atb := mat.NewVecDense(n+2, nil)
		add := func(w float64, at []int, x []float64, y float64) {
			for i, p := range at {
				x[i] *= scale[p]
			}
			for i, p := range at {
				atb.SetVec(p, atb.AtVec(p)+w*x[i]*y)
				for j, q := range at[:i+1] {
					if v := w * x[i] * x[j]; p != q || i == j {
						ata.SetSym(p, q, ata.At(p, q)+v)
					}
				}
			}
		}
		for k, s := range samples {
			i, t := place(points, s.PrefillTokens+s.DecodeTokens)
			rows, att := float64(s.Rows), s.Attended
			if fixed[0] {
				rows = 0
			}
			if fixed[1] {
				att = 0
			}
			add(weight[k], []int{i, i + 1, n, n + 1}, []float64{(1 - t) / s.Us, t / s.Us, rows / s.Us, att / s.Us}, 1)
		}
		for i := range points {
			guess := scale[i]
			add(1e-4, []int{i}, []float64{1 / guess}, (linear[0]+linear[1]*float64(points[i]))/guess)
			if i > 0 && i < n-1 {
				_, t := place([]int{points[i-1], points[i+1]}, points[i])
				add(0.05, []int{i - 1, i, i + 1}, []float64{(1 - t) / guess, -1 / guess, t / guess}, 0)
			}
		}
		for i := n; i < n+2; i++ {
			ata.SetSym(i, i, ata.At(i, i)+1e-9)
		}
		var chol mat.Cholesky
		var x mat.VecDense
		if !chol.Factorize(ata) || chol.SolveVecTo(&x, atb) != nil {
			return nil
		}
		if !fixed[0] && x.AtVec(n) < 0 || !fixed[1] && x.AtVec(n+1) < 0 {
			fixed[0], fixed[1] = fixed[0] || x.AtVec(n) < 0, fixed[1] || x.AtVec(n+1) < 0
			round = -1
			continue
		}
		c.Us = c.Us[:0]
		for i := range n {
			c.Us = append(c.Us, max(0, scale[i]*x.AtVec(i)))
		}
		c.Row, c.Attended = max(0, scale[n]*x.AtVec(n)), max(0, scale[n+1]*x.AtVec(n+1))
		for k, s := range samples {
			weight[k] = min(1, near/max(1e-9, math.Abs(c.us(s.PrefillTokens+s.DecodeTokens, s.Rows, s.Attended)/s.Us-1)))
		}
	}
	return c
}
