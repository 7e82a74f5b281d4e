// Package costtest has machines for tests of what learns and uses a cost model.
package costtest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
)

// Machine is a synthetic engine: a true Cost with relative noise.
type Machine struct {
	cost.Cost
	Sigma float64 // of the noise
	Rng   *rand.Rand
	Speed float64 // by which every time is multiplied
	Bumps func(l cost.Load) float64
}

// New returns a machine shaped like the measured price list of a 2-core machine with a 135 M model: two answers and one
// chunk of a 1,500-token prompt took 15, 27, 40, 53, 67, 93, 114, 193, 369, 763 ms for chunks of 0, 4, 8, 12, 16,
// 24, 32, 64, 128, 256 tokens in the middle of the prompt, and half as much again at its end.
func New(seed uint64, sigma float64) *Machine {
	return &Machine{Cost: cost.Cost{A: 5, B: 1.05, C: 3.4, D: 0.0026}, Sigma: sigma,
		Rng: rand.New(rand.NewPCG(seed, 7)), Speed: 1}
}

// Mean returns the time of l without noise, in ms.
func (m *Machine) Mean(l cost.Load) float64 {
	ms := m.A*(1+l.More) + m.B*l.Prefill + m.C*l.Decode + m.D*l.Attended + m.E*l.Read
	if m.Bumps != nil {
		ms *= m.Bumps(l)
	}
	return ms * m.Speed
}

// Took returns a noisy step: mostly a little off, rarely far too long.
func (m *Machine) Took(l cost.Load) time.Duration {
	ms := m.Mean(l) * math.Exp(m.Sigma*m.Rng.NormFloat64())
	if m.Sigma > 0 && m.Rng.IntN(200) == 0 {
		ms *= 1.6
	}
	return time.Duration(ms * 1e6)
}

// Mixed returns the load of a step with answers at position ctx and a chunk of a prompt from position start on.
func Mixed(answers, ctx, start, chunk int) (l cost.Load) {
	for range answers {
		l.AddRows(ctx, 1)
	}
	if chunk > 0 {
		l.AddPrompt(start, chunk)
	}
	return l
}
