package sched

// Cost is what one Decode takes, linear in what it computes:
//
//	milliseconds = A + B·prefill tokens + C·decode rows + D·attended
//
// attended is the KV cells that the batch's rows look at: for a row at position p that is p + 1, so for a slice
// N·Start + N·(N+1)/2. Rows of probes count as decode rows.
type Cost struct {
	A float64 `json:"a_ms"`          // per step
	B float64 `json:"b_ms_prefill"`  // per prompt token
	C float64 `json:"c_ms_decode"`   // per row of an answer
	D float64 `json:"d_ms_attended"` // per attended cell
}

// CostState is all that the cost model has learned, to be kept and given to a later run (Config.Cost).
type CostState struct {
	Cost
	// Cov is the covariance of the coefficients in the model's own units, the upper triangle by rows.
	Cov     [10]float64 `json:"cov"`
	Noise   float64     `json:"noise"` // variance of took / predicted
	Error   float64     `json:"error"` // see Stats.CostError
	Ratio   float64     `json:"ratio"` // see Stats.CostRatio
	Steps   uint64      `json:"steps"` // learned from
	Prompts uint64      `json:"prompt_steps"`
	Largest float64     `json:"largest_chunk"` // tokens: the largest chunk it has seen lately
}

// numbers are the floating-point fields in the order in which a trace has them.
func (c *CostState) numbers() [18]*float64 {
	p := [18]*float64{&c.A, &c.B, &c.C, &c.D}
	for i := range c.Cov {
		p[4+i] = &c.Cov[i]
	}
	p[14], p[15], p[16], p[17] = &c.Noise, &c.Error, &c.Ratio, &c.Largest
	return p
}
