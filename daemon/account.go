package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// What the decode loop counts. A token touches plain fields of the loop's own; what others read is stored once a step,
// after the step's tokens were written.

// tickCounts is what one step gathers for the metrics.
type tickCounts struct {
	probes    int
	probeTime time.Duration
	tokens    int
	gaps      []metrics.Gap
}

// timeToken notes the time of a token: the first, or the gap since the one before.
func (l *loop) timeToken(r *request, inThink bool, now time.Time) {
	l.tick.tokens++
	if r.first.IsZero() {
		r.first = now
		l.m.TTFT.Observe(now.Sub(r.arrived))
		l.m.PrefillTime.Observe(now.Sub(r.started))
		if r.targetTTFT > 0 && now.Sub(r.arrived) > r.targetTTFT {
			l.m.SLOViolationsTTFT.Inc()
		}
	} else {
		gap := now.Sub(r.last)
		target := r.targetTBT
		if target == 0 {
			target = l.itlTarget
		}
		l.tick.gaps = append(l.tick.gaps, metrics.Gap{Took: gap, Thinking: inThink, Late: !inThink && r.class == sched.Interactive && gap > target})
	}
	r.last = now
}

// phaseChanged notes what a token meant for its request's thinking.
func (l *loop) phaseChanged(r *request, m *meridian.Step, now time.Time) {
	if m.Event != meridian.None {
		if m.Event.Has(meridian.EnterThink) && r.thinkStart.IsZero() {
			r.thinkStart = now
		}
		if m.Event.Has(meridian.ForceBudget) {
			l.m.ForcedCloses.Inc(m.Reason.String())
		}
		if m.Event.Has(meridian.ExitThink) {
			r.thinkEnd = now
			if f := r.ctl.LastForce(); f.ClosedAt != 0 && f.Reason != meridian.NoReason {
				l.m.ForceLatency.Observe(time.Duration(f.ClosedAt - f.DecidedAt))
			}
			l.demote(r)
		}
	}
	if !r.thinkEnd.IsZero() && r.answered.IsZero() && len(m.Answer) > 0 {
		r.answered = now
		l.m.TTOT.Observe(now.Sub(r.thinkEnd))
	}
}

// account stores a step's numbers.
func (l *loop) account(plan *sched.Plan, took time.Duration) {
	l.m.Step(metrics.Step{
		Took: took, Tokens: plan.Tokens, Prefill: plan.PrefillTokens, Decode: plan.DecodeTokens, Probe: plan.ProbeTokens,
		Budget: plan.Budget, PrefillHeld: plan.PrefillHeld, Predicted: plan.Predicted,
		Generated: l.tick.tokens, Gaps: l.tick.gaps, Probes: l.tick.probes, ProbeTime: l.tick.probeTime,
	})
	l.tick = tickCounts{gaps: l.tick.gaps[:0]}
}
