package latency

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Curve maps the number of tokens in a step to its duration. It is piecewise linear, because a CPU's matrix kernels
// process tiles of rows: a second row can cost more than the next three. Beyond the last point its last segment
// continues. The costs that grow with the context are added.
type Curve struct {
	Tokens []int     `json:"tokens"` // ascending
	Us     []float64 `json:"us"`     // microseconds for so many tokens that attend to nothing, without logits
	Row    float64   `json:"row"`    // microseconds for each logits row
	// Attended is microseconds for each attended cell of each row, Read for each cell that any row of a sequence
	// attends to: the tokens of a chunk share what is read of the cache, so few of them cost nearly what many do.
	Attended float64 `json:"attended"`
	Read     float64 `json:"read"`
	// Run is microseconds for each piece that these cells lie in: prompts that are computed in turns, a few tokens of
	// each a step, lie between each other's in the pool, and memory is fast only along a row.
	Run float64 `json:"run"`
	// Resident is microseconds for each token and each cell in use, attended or not: one pool for all sequences means
	// that each row's mask has an entry for every cell.
	Resident float64 `json:"resident"`
	// Pool is microseconds for each cell in use, in every step.
	Pool float64 `json:"pool"`
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

// place returns the segment of n, from point i to i+1, and n's position t on it: 0 at i, 1 at i+1.
func place(points []int, n int) (i int, t float64) {
	i, _ = slices.BinarySearch(points, n+1) // the first point behind n
	i = min(max(i-1, 0), len(points)-2)
	return i, float64(n-points[i]) / float64(points[i+1]-points[i])
}

// work counts the work of a step in the terms of a curve.
type work struct {
	tokens, rows, resident int
	runs                   int
	attended, read         float64
}

// terms returns the quantities that the curve's factors multiply.
func (w *work) terms() [terms]float64 {
	return [terms]float64{float64(w.rows), w.attended, w.read, float64(w.runs), float64(w.tokens) * float64(w.resident),
		float64(w.resident)}
}

const terms = 6

func (c *Curve) factors() [terms]*float64 {
	return [terms]*float64{&c.Row, &c.Attended, &c.Read, &c.Run, &c.Resident, &c.Pool}
}

// us returns the time of a step, microseconds.
func (c *Curve) us(w work) float64 {
	i, t := place(c.Tokens, w.tokens)
	sum := c.Us[i] + float64(t*(c.Us[i+1]-c.Us[i]))
	x := w.terms()
	for k, f := range c.factors() {
		sum += float64(*f * x[k])
	}
	return sum
}

// Check says what is wrong with c, if anything. A nil Curve is right.
func (c *Curve) Check() error {
	if c == nil {
		return nil
	}
	if len(c.Tokens) < 2 || len(c.Tokens) != len(c.Us) {
		return fmt.Errorf("cost model: curve has %d tokens and %d us: at least two of each are needed", len(c.Tokens),
			len(c.Us))
	}
	for i, n := range c.Tokens {
		if n < 1 || n > 1<<24 || i > 0 && n <= c.Tokens[i-1] {
			return fmt.Errorf("cost model: curve.tokens[%d] is %d: they must ascend from 1", i, n)
		}
	}
	all := slices.Clone(c.Us)
	for _, f := range c.factors() {
		all = append(all, *f)
	}
	return CheckCoefficients("cost model: curve", all, 2+terms)
}

// fitCurve finds the curve that the samples follow, by least squares of relative errors in which far ones count less.
// linear is the line through them, from which the curve is drawn away by data alone: where there is none, it is as
// straight as its neighbours let it be.
func fitCurve(samples []Sample, linear [costTerms]float64) *Curve {
	const (
		rounds = 12
		near   = 0.03 // relative errors beyond it count by their size, not its square
		toLine = 1e-6 // weights of the prior, in samples
		bend   = 0.05
	)
	points := knots
	n := len(points)
	c := &Curve{Tokens: points}
	// A workload repeats one kind of step a thousand times, and what else it had must be predicted as well.
	kind := func(s *Sample) [2]int { return [2]int{s.PrefillTokens, s.DecodeTokens} }
	alike := map[[2]int]float64{}
	for i := range samples {
		alike[kind(&samples[i])]++
	}
	weight := make([]float64, len(samples))
	share := make([]float64, len(samples))
	for i := range samples {
		share[i] = 1 / math.Sqrt(alike[kind(&samples[i])])
		weight[i] = share[i]
	}
	// The unknowns are of one order of magnitude: in units of what the line says, of 1 ms a row, 1 us an attended or
	// read cell or a run, and 0.1 us a resident one, for a token or for the step.
	scale := make([]float64, n+terms)
	for i, p := range points {
		scale[i] = linear[0] + max(linear[1], linear[2])*float64(p) + 1
	}
	copy(scale[n:], []float64{1000, 1, 1, 1, 0.1, 0.1})
	var zero [terms]bool // terms left out, because negative would be best
	for round := 0; round < rounds; round++ {
		ata := mat.NewSymDense(n+terms, nil)
		atb := mat.NewVecDense(n+terms, nil)
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
		at, x := make([]int, 2+terms), make([]float64, 2+terms)
		for k := range samples {
			s := &samples[k]
			w := s.work()
			i, t := place(points, w.tokens)
			at[0], at[1] = i, i+1
			for j := range terms {
				at[2+j] = n + j
			}
			x[0], x[1] = (1-t)/s.Us, t/s.Us
			for j, v := range w.terms() {
				if x[2+j] = v / s.Us; zero[j] {
					x[2+j] = 0
				}
			}
			add(weight[k], at, x, 1)
		}
		for i := range points {
			guess := scale[i]
			add(toLine, []int{i}, []float64{1 / guess}, (linear[0]+linear[1]*float64(points[i]))/guess)
			if i > 0 && i < n-1 {
				_, t := place([]int{points[i-1], points[i+1]}, points[i])
				add(bend, []int{i - 1, i, i + 1}, []float64{(1 - t) / guess, -1 / guess, t / guess}, 0)
			}
		}
		for i := n; i < n+terms; i++ {
			ata.SetSym(i, i, ata.At(i, i)+1e-9)
		}
		var chol mat.Cholesky
		var sol mat.VecDense
		if !chol.Factorize(ata) || chol.SolveVecTo(&sol, atb) != nil {
			return nil
		}
		worst := 0
		for j := range zero {
			if sol.AtVec(n+j) < sol.AtVec(n+worst) {
				worst = j
			}
		}
		if !zero[worst] && sol.AtVec(n+worst) < 0 {
			zero[worst] = true
			round--
			continue
		}
		c.Us = c.Us[:0]
		for i := range n {
			c.Us = append(c.Us, max(0, scale[i]*sol.AtVec(i)))
		}
		for j, p := range c.factors() {
			*p = max(0, scale[n+j]*sol.AtVec(n+j))
		}
		for k := range samples {
			s := &samples[k]
			weight[k] = share[k] * min(1, near/max(1e-9, math.Abs(c.us(s.work())/s.Us-1)))
		}
	}
	return c
}
