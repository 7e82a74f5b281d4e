package metrics

import "time"

// What is measured of thinking and of the promise between tokens.

// ByPhase is a histogram of durations for thinking and one for the answer.
type ByPhase struct{ Think, Output Durations }

// Observe counts d. think says which of the two.
func (b *ByPhase) Observe(think bool, d time.Duration) {
	if think {
		b.Think.Observe(d)
	} else {
		b.Output.Observe(d)
	}
}

// Thought is how the thinking of a request went that has thought.
type Thought struct {
	Tokens  int
	Time    time.Duration // from the opening to the closing tag
	Ended   string        // wire's think.ended
	Probes  int           // forks decoded for EAT
	Dropped int           // rows and probes whose entropy was not finite
}

// ThoughtDone counts a finished request's thinking. Once a request.
func (m *Metrics) ThoughtDone(t Thought) {
	m.ThinkTokens.Observe(t.Tokens)
	m.ThinkTime.Observe(t.Time)
	m.ThinkEnds.Inc(t.Ended)
	m.eatProbes.Add(uint64(t.Probes))
	m.probeDropped.Add(uint64(t.Dropped))
}

// Forced counts a close that was forced, when its first token is delivered.
func (m *Metrics) Forced(reason string) { m.ForceReasons.Inc(reason) }

// ForceClosed counts a forced close that was seen to close: how long that took from the decision.
func (m *Metrics) ForceClosed(d time.Duration) { m.ForceLatency.Observe(d) }

// CostModel is the scheduler's, as its gauges: milliseconds = A + B·prompt tokens + C·answer rows + D·attended cells.
type CostModel struct {
	A, B, C, D float64 // ms
	Error      float64 // moving average of |predicted − took| / took
	Ratio      float64 // the took / predicted that 95 of 100 steps stay below
	Steps      uint64  // learned from
}

// Classes and phases of Scheduler.ByState, in the order of its indices.
var (
	classNames = []string{"interactive", "background"}
	phaseNames = []string{"queued", "prefill", "think", "output"}
)

// Guard states of Scheduler.Guard.
var guardNames = []string{"open", "trim", "hold"}
