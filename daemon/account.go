package daemon

import (
	"math"
	"time"

	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// The decode loop's metrics (package account).

// observeToken records the time of a token: TTFT for the first, else the ITL.
func (l *loop) observeToken(r *request, inThink bool, now time.Time) {
	l.reused.tick.Tokens++
	if inThink {
		l.reused.tick.ThinkRows++
	}
	if r.at.First.IsZero() {
		r.at.First = now
		l.m.TTFT.Observe(now.Sub(r.arrived))
		l.m.PrefillTime.Observe(now.Sub(r.at.Started))
		if r.TargetTTFT > 0 && now.Sub(r.arrived) > r.TargetTTFT {
			l.m.SLOViolationsTTFT.Inc()
		}
	} else {
		took, target := now.Sub(r.at.Last), r.Next(l.model.itlTarget, r.Class == sched.Interactive, false)
		late := !inThink && r.Class == sched.Interactive && target > 0 && took > target
		l.reused.tick.Gap(took, inThink, late)
		if l.journal.live.Ring() != nil {
			r.at.Gaps.Add(took, late)
		}
	}
	r.at.Last = now
}

// thinkSummary counts an ended request's thinking and returns the "think" object of its eos.
func (l *loop) thinkSummary(r *request, now time.Time) wire.ThinkSummary {
	t := r.Phases.Summary(int64(l.instant(now)))
	if t.Ended != meridian.NeverThought {
		account.ThoughtDone(l.m, &t)
		l.journal.rec.Thought(r.ID, &t)
	}
	return wire.ThinkSummary{Tokens: t.Tokens, Time: time.Duration(t.Ns), Ended: t.Ended.String(), Probes: t.Probes}
}

// account makes the report of a step.
func (l *loop) account(plan *sched.Plan, outcome sched.Outcome, took time.Duration, done time.Time) {
	rep := &l.reused.reportOf
	rep.due, rep.done = true, done
	l.recordStep(plan, took, done)
	prefill, decode := plan.PrefillTokens, plan.DecodeTokens
	if outcome != sched.StepOK { // they are computed again
		prefill, decode = 0, 0
	}
	rep.step = metrics.Step{
		Took: took, Tokens: plan.Tokens, Prefill: prefill, Decode: decode, Think: min(l.reused.tick.ThinkRows, decode),
		Budget: plan.Budget, PrefillHeld: plan.PrefillHeld, Predicted: plan.Predicted, Scheduled: l.chores.scheduled,
		Probed: l.reused.tick.Probed, ProbeTime: l.reused.tick.ProbeTime,
		Traffic: account.Traffic(plan, l.result.CopyTokens, &l.model.info, &l.model.caps),
	}
}

// publish stores the gauges of scheduler, ledger and prefix tree for scrapes.
func (l *loop) publish() {
	st, now := account.Gauges(l.m, l.core, guessReasons[:])
	if st.TargetInfeasible && !l.chores.infeasible {
		l.chores.infeasible = true
		l.log.Warn("the ITL target cannot be met: a step of the running answers alone takes longer; prompts get the "+
			"minimum chunk",
			"target", st.ITLTarget, "predicted", st.Predicted, "answers", st.Decoding)
	}
	steps, _ := l.m.Steps()
	if n, tell := l.chores.limited.Tell(&now, steps); tell {
		l.log.Info("requests wait, or their prompts are computed in small chunks, so that running answers meet their "+
			"ITL target: a larger one (--itl-target-ms, or slo of requests) lets more of them run at once "+
			"(uma-cli why, uma_itl_limited_total)",
			"requests_a_step", math.Round(10*n)/10, "target", st.ITLTarget, "answers", st.Decoding, "prompts",
			st.Prefilling)
	}
	l.m.TrackedRequests.Set(int64(l.journal.tracked.Len()))
}
