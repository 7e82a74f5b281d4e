package metrics

import (
	"cmp"
	"time"
)

// Metrics of thinking and of ITL targets.

// ByPhase is a histogram of durations for thinking and one for the answer.
type ByPhase struct{ Think, Output Durations }

// Observe counts d in the histogram for thinking or for the answer.
func (b *ByPhase) Observe(think bool, d time.Duration) {
	if think {
		b.Think.Observe(d)
	} else {
		b.Output.Observe(d)
	}
}

// Thought summarises the thinking of a request.
type Thought struct {
	Tokens  int
	Time    time.Duration // from the opening to the closing tag
	Ended   string        // wire's think.ended
	Probes  int           // forks decoded for EAT
	Dropped int           // rows and probes whose entropy was not finite

	// Of the early-exit signals, where they were measured.
	EAT, RPDI          bool
	Entropy, Mean, Var float64 // EAT: newest probe and running mean in nats, running variance in nats²
	Index              float64 // RPDI's ratio
	Would              string  // the signal that asked first for the end of the thinking; "" = none did
}

// ThoughtDone counts a finished request's thinking. Call it once per request.
func (m *Metrics) ThoughtDone(t Thought) {
	m.ThinkTokens.Observe(t.Tokens)
	m.ThinkTime.Observe(t.Time)
	m.ThinkEnds.Inc(t.Ended)
	m.eatProbes.Add(uint64(t.Probes))
	m.probeDropped.Add(uint64(t.Dropped))
	if t.EAT {
		m.thinkProbes.Observe(t.Probes)
	}
	if t.EAT && t.Probes > 0 {
		m.eatEntropy.Observe(int(t.Entropy * 1e3))
		m.eatMean.Observe(int(t.Mean * 1e3))
		m.eatVariance.Observe(int(t.Var * 1e6))
	}
	if t.RPDI && t.Index > 0 {
		m.rpdiIndex.Observe(int(t.Index * 1e3))
	}
	if t.EAT || t.RPDI {
		m.ThinkSignals.Inc(cmp.Or(t.Would, "none"))
	}
}

// Forced counts a forced close when its first token is delivered.
func (m *Metrics) Forced(reason string) { m.ForceReasons.Inc(reason) }

// ForceClosed counts a forced close that took effect. took is the time since the decision.
func (m *Metrics) ForceClosed(d time.Duration) { m.ForceLatency.Observe(d) }

// CostModel holds the gauges of the scheduler's cost model: milliseconds = A + B·prompt tokens + C·answer rows +
// D·attended cells + E·cells read.
type CostModel struct {
	A, B, C, D, E float64 // ms
	Error         float64 // moving average of |predicted − took| / took
	Ratio         float64 // the 95th percentile of took / predicted
	Steps         uint64  // number of steps learned from
}

// Classes and phases of Scheduler.ByState, in the order of its indices.
var (
	classNames = []string{"interactive", "background"}
	phaseNames = []string{"queued", "prefill", "think", "output"}
)

// Guard states of Scheduler.Guard.
var guardNames = []string{"open", "trim", "hold"}

// GuardName returns the name of a state of Scheduler.Guard.
func GuardName(guard int) string { return guardNames[guard] }
