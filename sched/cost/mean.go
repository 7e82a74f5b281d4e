package cost

// Mean is an exponentially weighted moving average; 0 before the first sample.
type Mean struct {
	Value float64
	Known bool // there was a sample
}

// Add adds a sample with its weight, 0…1.
func (m *Mean) Add(x, weight float64) {
	if !m.Known {
		m.Value, m.Known = x, true
		return
	}
	m.Value += mul(weight, x-m.Value)
}

// Gaps measures the mean time between events. Times are in ns, from any origin.
type Gaps struct {
	Mean
	Last int64 // time of the newest event
	any  bool
}

// Add adds an event at a time, with the weight of its gap.
func (g *Gaps) Add(now int64, weight float64) {
	if g.any {
		g.Mean.Add(float64(now-g.Last), weight)
	}
	g.Last, g.any = now, true
}

// Break makes the time from the newest event to the next one no gap.
func (g *Gaps) Break() { g.any = false }

// PromptRate measures how fast prompts are computed: tokens and the time of the steps they were in.
type PromptRate struct{ tokens, ns Mean }

// Observe takes a step of so many prompt tokens that took so many ns.
func (p *PromptRate) Observe(tokens int, took float64) {
	p.tokens.Add(float64(tokens), 0.05)
	p.ns.Add(took, 0.05)
}

// Known reports whether there was a step.
func (p *PromptRate) Known() bool { return p.tokens.Known }

// Take returns the time in ns that so many tokens of prompts take.
func (p *PromptRate) Take(tokens int) float64 {
	return float64(tokens) * p.ns.Value / max(p.tokens.Value, 1e-3)
}
