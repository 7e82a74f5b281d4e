package workload

import (
	"fmt"
	"math/rand"
)

// Mix is the synthetic mix of Meridian's ADR-0005: chat with short prompts and 40 to 240 output tokens and no thinking,
// and reasoning with math-like prompts that think for 600 to 6,000 tokens before they answer. Arrivals are Poisson.
type Mix struct {
	Rate           float64 // requests a second
	Requests       int64
	Seed           int64
	ReasoningRatio float64 // share of reasoning requests, default 0.4
}

// DefaultMix has the ADR's defaults.
func DefaultMix() Mix { return Mix{Rate: 4, Requests: 200, Seed: 42, ReasoningRatio: 0.4} }

// Ranges of the mix, tokens, both ends included.
var (
	chatPrompt, chatOutput = [2]int{16, 256}, [2]int{40, 240}
	mathPrompt, mathThink  = [2]int{64, 512}, [2]int{600, 6000}
	mathOutput             = [2]int{80, 400}
)

// New checks the numbers and makes a Source.
func (m Mix) New() (Source, error) {
	if !(m.Rate > 0 && m.Rate <= 1e9) {
		return nil, fmt.Errorf("rate = %v: must be in (0, 1e9] requests a second", m.Rate)
	}
	if !(m.ReasoningRatio >= 0 && m.ReasoningRatio <= 1) {
		return nil, fmt.Errorf("reasoning ratio = %v: must be in [0, 1]", m.ReasoningRatio)
	}
	if m.Requests < 1 {
		return nil, fmt.Errorf("requests = %d: must be ≥ 1", m.Requests)
	}
	return &mixed{Mix: m, gaps: (&Arrival{Process: "poisson"}).gaps(m.Rate / 1e6), arrivals: Stream(m.Seed, "arrivals"),
		lengths: Stream(m.Seed, "lengths")}, nil
}

type mixed struct {
	Mix
	gaps              func(*rand.Rand) int64
	arrivals, lengths *rand.Rand
	at, made          int64
}

func (m *mixed) Next(r *Request) bool {
	if m.made == m.Requests {
		return false
	}
	m.at += m.gaps(m.arrivals)
	between := func(r [2]int) int { return r[0] + m.lengths.Intn(r[1]-r[0]+1) }
	*r = Request{Index: m.made, Arrival: m.at, Class: "interactive"}
	if m.lengths.Float64() < m.ReasoningRatio {
		r.Client, r.Input, r.Think = "reasoning", between(mathPrompt), between(mathThink)
		r.Output = r.Think + between(mathOutput)
		r.ReasonRatio = float64(r.Think) / float64(r.Output)
	} else {
		r.Client, r.Input, r.Output = "chat", between(chatPrompt), between(chatOutput)
	}
	r.Budget = r.Output
	m.made++
	return true
}
