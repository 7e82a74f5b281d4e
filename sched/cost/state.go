package cost

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// State is a snapshot of a Model: the coefficients, their uncertainty and the error record. Save it for New in a later
// run.
type State struct {
	Cost
	// Cov is the covariance of the coefficients in the model's own units, the upper triangle by rows.
	Cov     [15]float64 `json:"cov"`
	Noise   float64     `json:"noise"` // variance of the measured over the predicted time
	Error   float64     `json:"error"` // see Stats.CostError
	Ratio   float64     `json:"ratio"` // Stats.CostRatio but for the last step's error
	Steps   uint64      `json:"steps"` // learned from
	Prompts uint64      `json:"prompt_steps"`
	Largest float64     `json:"largest_chunk"` // prompt tokens of the largest step it has learned from
}

// numbers returns the floating-point fields in the order of a trace.
func (c *State) numbers() [24]*float64 {
	p := [24]*float64{&c.A, &c.B, &c.C, &c.D, &c.E}
	for i := range c.Cov {
		p[terms+i] = &c.Cov[i]
	}
	p[20], p[21], p[22], p[23] = &c.Noise, &c.Error, &c.Ratio, &c.Largest
	return p
}

// AppendWord and SetWord are the state's text in a trace: its numbers in order, with commas.
func (c *State) AppendWord(dst []byte) []byte {
	for _, v := range c.numbers() {
		dst = append(strconv.AppendFloat(dst, *v, 'g', -1, 64), ',')
	}
	dst = strconv.AppendUint(dst, c.Steps, 10)
	return strconv.AppendUint(append(dst, ','), c.Prompts, 10)
}

// SetWord reads the text. That of a model without Cost.E, as in traces before version 0.2, is read as the zero value.
func (c *State) SetWord(text string) (err error) {
	const withoutE = 20
	part := strings.Split(text, ",")
	numbers := c.numbers()
	older := len(part) == withoutE
	if !older && len(part) != len(numbers)+2 {
		return fmt.Errorf("cost has %d numbers; it must have %d", len(part), len(numbers)+2)
	}
	for i, p := range part {
		switch {
		case older || i < len(numbers):
			var v float64
			if v, err = strconv.ParseFloat(p, 64); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("cost=%q must be a finite number", p)
			}
			if !older {
				*numbers[i] = v
			}
		default:
			count := [2]*uint64{&c.Steps, &c.Prompts}[i-len(numbers)]
			if *count, err = strconv.ParseUint(p, 10, 64); err != nil {
				return fmt.Errorf("cost: %q is no count", p)
			}
		}
	}
	return nil
}
