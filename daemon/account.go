package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// The decode loop's metrics. A token updates plain fields that only the loop reads; account stores them in the atomics
// of package metrics once a step, after the step's tokens were written.

// tickCounts are the counts of the current step.
type tickCounts struct {
	probed    int
	probeTime time.Duration
	tokens    int
	thinkRows int
	gaps      []gap
}

// gap is the time between two tokens of one request (ITL).
type gap struct {
	took     time.Duration
	thinking bool
	late     bool // above the request's ITL target
}

// observeToken records the time of a token: TTFT for the first, else the ITL.
func (l *loop) observeToken(r *request, inThink bool, now time.Time) {
	l.tick.tokens++
	if inThink {
		l.tick.thinkRows++
	}
	if r.first.IsZero() {
		r.first = now
		l.m.TTFT.Observe(now.Sub(r.arrived))
		l.m.PrefillTime.Observe(now.Sub(r.started))
		if r.TargetTTFT > 0 && now.Sub(r.arrived) > r.TargetTTFT {
			l.m.SLOViolationsTTFT.Inc()
		}
	} else {
		took, target := now.Sub(r.last), r.TargetITL
		if target == 0 {
			target = l.itlTarget
		}
		late := !inThink && r.Class == sched.Interactive && took > target
		l.tick.gaps = append(l.tick.gaps, gap{took, inThink, late})
		if l.live.Ring() != nil {
			r.gaps.Add(took, late)
		}
	}
	r.last = now
}

// phaseChanged counts the changes of phase that a token caused.
func (l *loop) phaseChanged(r *request, said *core.Said, now time.Time) {
	if said.Event.Has(meridian.ForceBudget) {
		l.m.Forced(said.Reason.String())
	}
	if r.opened.IsZero() && (said.Event.Has(meridian.EnterThink) || said.InThink) {
		r.opened = now
	}
	if said.Event.Has(meridian.ExitThink) {
		r.thought = now
		if f := r.Phases.LastForce(); f.ClosedAt != 0 && f.Reason != meridian.NoReason {
			l.m.ForceClosed(time.Duration(f.ClosedAt - f.DecidedAt))
		}
	}
	if r.answered.IsZero() && said.Visible {
		r.answered = now
		l.m.ToAnswer.Observe(now.Sub(r.arrived))
		if !r.thought.IsZero() {
			l.m.TTOT.Observe(now.Sub(r.thought))
			if r.TargetTTOT > 0 && now.Sub(r.thought) > r.TargetTTOT {
				l.m.SLOViolationsTTOT.Inc()
			}
		}
	}
}

// thinkSummary counts an ended request's thinking and returns the "think" object of its eos.
func (l *loop) thinkSummary(r *request, now time.Time) wire.ThinkSummary {
	t := r.Phases.Summary(int64(l.instant(now)))
	if t.Ended != meridian.NeverThought {
		l.m.ThoughtDone(metrics.Thought{Tokens: t.Tokens, Time: time.Duration(t.Ns), Ended: t.Ended.String(),
			Probes: t.Probes, Dropped: t.Dropped,
			EAT: t.Signals.EAT, RPDI: t.Signals.RPDI, Entropy: t.Signals.X, Mean: t.Signals.Mean, Var: t.Signals.Var,
			Index: t.Signals.Index, Would: would(&t.Signals)})
		l.rec.Thought(r.ID, &t)
	}
	return wire.ThinkSummary{Tokens: t.Tokens, Time: time.Duration(t.Ns), Ended: t.Ended.String(), Probes: t.Probes}
}

// would is the name of the signal that asked first for the end of the thinking, "" if none did.
func would(s *meridian.Signals) string {
	why, _ := s.First()
	return why.String()
}

// account makes the report of a step.
func (l *loop) account(plan *sched.Plan, outcome sched.Outcome, took time.Duration, done time.Time) {
	rep := &l.reportOf
	rep.due, rep.done = true, done
	l.recordStep(plan, took, done)
	prefill, decode := plan.PrefillTokens, plan.DecodeTokens
	if outcome != sched.StepOK { // they are computed again
		prefill, decode = 0, 0
	}
	rep.step = metrics.Step{
		Took: took, Tokens: plan.Tokens, Prefill: prefill, Decode: decode, Think: min(l.tick.thinkRows, decode),
		Budget: plan.Budget, PrefillHeld: plan.PrefillHeld, Predicted: plan.Predicted, Scheduled: l.scheduled,
		Probed: l.tick.probed, ProbeTime: l.tick.probeTime,
		Traffic: traffic(plan, l.result.CopyTokens, &l.info, &l.caps),
	}
}

// publishStep adds the newest step's counts to the metrics.
func (l *loop) publishStep() {
	l.reportOf.due = false
	l.m.Step(l.reportOf.step)
	l.m.TokensGenerated.Add(uint64(l.tick.tokens))
	for _, g := range l.tick.gaps {
		l.m.InterToken.Observe(g.thinking, g.took)
		if g.late {
			l.m.SLOViolationsITL.Inc()
		}
	}
	l.tick = tickCounts{gaps: l.tick.gaps[:0]}
}

// publish stores the gauges of scheduler, ledger and prefix tree for scrapes.
func (l *loop) publish() {
	st, c := l.core.Scheduler().Stats(), l.core.Tree().Cells() // to the scheduler, cached cells are free
	g := metrics.Scheduler{
		QueuedInteractive: st.QueuedInteractive, QueuedBackground: st.QueuedBackground,
		Prefilling: st.Prefilling, Decoding: st.Decoding, Paused: st.Paused,
		LiveCells: c.Own + c.Shared, FreeCells: c.Free, BudgetTarget: st.BudgetTarget, TickEWMA: st.TickEWMA,
		PoolCells: c.Cached + c.Pinned, Guard: int(st.Guard), ITLTarget: st.ITLTarget,
		TargetInfeasible: st.TargetInfeasible,
		TTFTAtRisk:       st.TTFTAtRisk, ThinkHeld: st.ThinkHeldTotal,
		Cost: metrics.CostModel{
			A: st.Cost.A, B: st.Cost.B, C: st.Cost.C, D: st.Cost.D, E: st.Cost.E, Error: st.CostError,
			Ratio: st.CostRatio, Steps: l.core.Scheduler().Cost().Steps,
		},
	}
	for i := range g.Guessing {
		g.Guessing[i] = l.core.Scheduler().Count(guessReasons[i])
	}
	for c := range g.ByState {
		copy(g.ByState[c][:], st.ByState[c][:])
	}
	g.ParkedThink, g.ParkedOutput = st.ParkedIn[sched.Think], st.ParkedIn[sched.Output]
	l.m.SetScheduler(g)
	if st.TargetInfeasible && !l.infeasible {
		l.infeasible = true
		l.log.Warn("the ITL target cannot be met: a step of the running answers alone takes longer; prompts get the "+
			"minimum chunk",
			"target", st.ITLTarget, "predicted", st.Predicted, "answers", st.Decoding)
	}
	tree, ledger := l.core.Tree().Stats(), l.core.Ledger()
	evicted, tiers := ledger.Evictions(), ledger.Tiers()
	k := metrics.KV{
		OutputCriticalEvictions: evicted.Interruptions, OutputCriticalAvoidable: l.core.Avoidable(), Joins: tree.Joins,
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
	l.m.SetKV(k)
	l.m.TrackedRequests.Set(int64(l.tracked.Len()))
}
