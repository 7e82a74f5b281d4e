package account

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// Tick has the counts of the current step. A token updates plain fields that only the loop reads; Publish stores them
// in the atomics of package metrics once a step, after the step's tokens were written.
type Tick struct {
	Probed    int
	ProbeTime time.Duration
	Tokens    int
	ThinkRows int
	gaps      []gap
}

// gap is the time between two tokens of one request (ITL).
type gap struct {
	took     time.Duration
	thinking bool
	late     bool // above the request's ITL target
}

// Gap adds the time between two tokens of one request.
func (t *Tick) Gap(took time.Duration, thinking, late bool) {
	t.gaps = append(t.gaps, gap{took, thinking, late})
}

// Publish adds the counts of the newest step to the metrics, and begins the next one's.
func (t *Tick) Publish(m *metrics.Metrics, step metrics.Step) {
	m.Step(step)
	m.TokensGenerated.Add(uint64(t.Tokens))
	for _, g := range t.gaps {
		m.InterToken.Observe(g.thinking, g.took)
		if g.late {
			m.SLOViolationsITL.Inc()
		}
	}
	*t = Tick{gaps: t.gaps[:0]}
}

// Gauges stores the gauges of scheduler, ledger and prefix tree for scrapes. It returns the scheduler's statistics, and
// the metrics stored from them. guesses are the scheduler's reasons in the order of metrics.GuessReasons.
func Gauges(m *metrics.Metrics, from *core.Core, guesses []sched.Reason) (sched.Stats, metrics.Scheduler) {
	st, c := from.Scheduler().Stats(), from.Tree().Cells() // to the scheduler, cached cells are free
	g := metrics.Scheduler{
		QueuedInteractive: st.QueuedInteractive, QueuedBackground: st.QueuedBackground,
		Prefilling: st.Prefilling, Decoding: st.Decoding, Paused: st.Paused,
		LiveCells: c.Own + c.Shared, FreeCells: c.Free, BudgetTarget: st.BudgetTarget, TickEWMA: st.TickEWMA,
		PoolCells: c.Cached + c.Pinned, Guard: int(st.Guard), ITLTarget: st.ITLTarget,
		TargetInfeasible: st.TargetInfeasible,
		TTFTAtRisk:       st.TTFTAtRisk, ThinkHeld: st.ThinkHeldTotal,
		Cost: metrics.CostModel{
			A: st.Cost.A, B: st.Cost.B, C: st.Cost.C, D: st.Cost.D, E: st.Cost.E, Error: st.CostError,
			Ratio: st.CostRatio, Steps: from.Scheduler().Cost().Steps,
		},
	}
	for i := range g.Guessing {
		g.Guessing[i] = from.Scheduler().Count(guesses[i])
	}
	for i := range g.Limited {
		g.Limited[i] = from.Scheduler().Count(limitReasons[i])
	}
	for c := range g.ByState {
		copy(g.ByState[c][:], st.ByState[c][:])
	}
	g.ParkedThink, g.ParkedOutput = st.ParkedIn[sched.Think], st.ParkedIn[sched.Output]
	m.SetScheduler(g)
	tree, ledger := from.Tree().Stats(), from.Ledger()
	evicted, tiers := ledger.Evictions(), ledger.Tiers()
	k := metrics.KV{
		OutputCriticalEvictions: evicted.Interruptions, OutputCriticalAvoidable: from.Avoidable(), Joins: tree.Joins,
		Prefixes:  tree.Entries,
		Sequences: tree.Entries + tree.Runs, Parked: st.Parked,
		PrefixEvictions: tree.Evictions + tree.IDEvictions,
	}
	for t := range k.BlockBytes {
		k.BlockBytes[t] = ledger.Bytes(tiers[t])
		k.Evicted[t][0] = evicted.Blocks[t][blocks.Pressure]
		k.Evicted[t][1] = evicted.Blocks[t][blocks.Preempted]
		k.Evicted[t][2] = evicted.Blocks[t][blocks.Dropped]
	}
	m.SetKV(k)
	return st, g
}
