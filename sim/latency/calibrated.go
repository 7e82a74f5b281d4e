package latency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/uma-serve/uma-serve/sched"
)

// Calibrated is uma-serve's own cost model (sched.Cost) with the coefficients that a daemon has fitted.
type Calibrated struct {
	Alpha
	Cost  sched.Cost
	Curve *Curve // instead of Cost, if there is one
}

// NewCalibrated checks the coefficients: a, b, c, d and e of sched.Cost in microseconds, finite, ≥ 0, not all zero.
// Without e it is 0.
func NewCalibrated(alphas []float64, us []float64) (*Calibrated, error) {
	a, err := NewAlpha(alphas)
	if err != nil {
		return nil, err
	}
	if err := CheckCoefficients("cost model", us, costTerms-1); err != nil {
		return nil, err
	}
	var c [costTerms]float64
	copy(c[:], us)
	if c == [costTerms]float64{} {
		return nil, fmt.Errorf("cost model: all coefficients are 0: it has not been fitted yet")
	}
	return &Calibrated{Alpha: a, Cost: sched.Cost{A: c[0] / 1000, B: c[1] / 1000, C: c[2] / 1000, D: c[3] / 1000,
		E: c[4] / 1000}}, nil
}

func (m *Calibrated) Step(b *Batch) int64 {
	if m.Curve != nil {
		return max(1, Ticks(m.Curve.us(work{b.PrefillTokens + b.DecodeTokens, b.Rows, b.Resident, b.Runs, b.Attended,
			b.Read})))
	}
	return max(1, int64(m.Cost.Predict(b.PrefillTokens, b.DecodeTokens, b.Attended, b.Read)/time.Microsecond))
}
func (m *Calibrated) NeedsItems() bool { return false }

// Runs counts the pieces that each sequence's cells lie in: a new one begins with every step, unless the sequence had
// this step and the one before for itself. What it shares of others' counts as one.
type Runs struct {
	n     map[uint64]int
	alone uint64 // request that had the step before for itself, 0 = none
}

// Step begins a step. only is the one request that computes something in it, or 0.
func (r *Runs) Step(only uint64) (continues bool) {
	continues = only != 0 && only == r.alone
	r.alone = only
	return continues
}

// Of returns the runs of id's sequence after its slice of the step, continues being what Step said.
func (r *Runs) Of(id uint64, continues bool) int {
	if r.n == nil {
		r.n = map[uint64]int{}
	}
	if n := r.n[id]; !continues || n == 0 {
		r.n[id] = n + 1
	}
	return r.n[id]
}

// End forgets id's sequence.
func (r *Runs) End(id uint64) { delete(r.n, id) }

// Fitted is a cost model as a daemon, or uma-sim fit, wrote it down.
type Fitted struct {
	Us []float64 // a, b, c, d, e of sched.Cost, microseconds
	// Noise is the variance of took / predicted; 0 = not known.
	Noise float64
	// Between is the time from the end of a Decode to the beginning of the next one, microseconds: fixed, and for each
	// logits row. nil = not known.
	Between []float64
	// Curve says more than Us does; nil = nothing.
	Curve *Curve
	// Spread says more than Noise does; nil = nothing.
	Spread Spread
	// State is all that the daemon has learned, when the file holds that.
	State *sched.CostState
}

// ParseCostModel reads a cost model, a JSON object, in either of two forms: what `uma-cli info --cost-model` and
// `uma-sim fit` print (a, b, c, d in milliseconds, and optionally e, noise, between, curve and spread), or the state
// that uma-serve saves for its next start (sched.CostState, in the user's cache directory under uma-serve/cost).
func ParseCostModel(data []byte) (*Fitted, error) {
	if bytes.Contains(data, []byte(`"a_ms"`)) {
		var st sched.CostState
		if err := json.Unmarshal(data, &st); err != nil {
			return nil, fmt.Errorf("cost model: %w", err)
		}
		if st.Steps == 0 {
			return nil, fmt.Errorf("cost model: it has learned from no step yet")
		}
		return &Fitted{Us: []float64{st.A * 1000, st.B * 1000, st.C * 1000, st.D * 1000, st.E * 1000}, Noise: st.Noise,
				State: &st},
			CheckCoefficients("cost model", []float64{st.A, st.B, st.C, st.D, st.E, st.Noise}, costTerms+1)
	}
	var m struct {
		A, B, C, D *float64
		E          float64
		Noise      float64
		Between    []float64
		Curve      *Curve
		Spread     Spread
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("cost model: %w", err)
	}
	out := &Fitted{Noise: m.Noise, Curve: m.Curve, Spread: m.Spread}
	for i, p := range []*float64{m.A, m.B, m.C, m.D} {
		if p == nil {
			return nil, fmt.Errorf("cost model: key %q is missing; a, b, c, d are milliseconds of tick = a + "+
				"b·prefill + c·decode + d·attended + e·read", "abcd"[i:i+1])
		}
		out.Us = append(out.Us, *p*1000)
	}
	out.Us = append(out.Us, m.E*1000)
	for _, ms := range m.Between {
		out.Between = append(out.Between, ms*1000)
	}
	if len(m.Between) != 0 && len(m.Between) != 2 {
		return nil, fmt.Errorf("cost model: between has %d numbers: two are needed, milliseconds a step and a row",
			len(m.Between))
	}
	if err := errors.Join(m.Curve.Check(), m.Spread.Check()); err != nil {
		return nil, err
	}
	all := append(append([]float64{m.Noise}, out.Us...), out.Between...)
	return out, CheckCoefficients("cost model", all, costTerms+1)
}

// MarshalJSON writes the form that ParseCostModel reads.
func (f *Fitted) MarshalJSON() ([]byte, error) {
	ms := func(us float64) float64 { return math.Round(us*1e3) / 1e6 } // whole nanoseconds
	var between []float64
	for _, us := range f.Between {
		between = append(between, ms(us))
	}
	us := f.Us
	return json.Marshal(struct {
		A       float64   `json:"a"`
		B       float64   `json:"b"`
		C       float64   `json:"c"`
		D       float64   `json:"d"`
		E       float64   `json:"e"`
		Noise   float64   `json:"noise"`
		Between []float64 `json:"between,omitempty"`
		Curve   *Curve    `json:"curve,omitempty"`
		Spread  Spread    `json:"spread,omitempty"`
	}{us[0] / 1000, us[1] / 1000, us[2] / 1000, us[3] / 1000, us[4] / 1000, f.Noise, between, f.Curve, f.Spread})
}
