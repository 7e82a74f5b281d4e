package account

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
)

// Moments are the times of a request's life. Owned by the decode loop.
type Moments struct {
	Started     time.Time // first slice in a batch; zero while queued
	First, Last time.Time // times of the first and newest token
	Opened      time.Time // the opening tag of its thought, or its first token
	Thought     time.Time // the closing tag of its thought
	Answered    time.Time // first visible token
	Gaps        live.Gaps // since the last live sample
}

// Timings returns the durations of a request's phases so far. arrived is the time of its frame.
func (m *Moments) Timings(arrived time.Time) wire.Timings {
	var t wire.Timings
	if m.Started.IsZero() {
		return t
	}
	t.Queue = m.Started.Sub(arrived)
	if m.First.IsZero() {
		return t
	}
	t.TTFT = m.First.Sub(arrived)
	t.Prefill = m.First.Sub(m.Started)
	t.Decode = m.Last.Sub(m.First)
	return t
}

// PhaseChanged counts the changes of phase that a token of r caused. control is r's.
func (m *Moments) PhaseChanged(to *metrics.Metrics, r *core.Request, control *meridian.Control, said *core.Said,
	arrived, now time.Time) {
	if said.Event.Has(meridian.ForceBudget) {
		to.Forced(said.Reason.String())
	}
	if m.Opened.IsZero() && (said.Event.Has(meridian.EnterThink) || said.InThink) {
		m.Opened = now
	}
	if said.Event.Has(meridian.ExitThink) {
		m.Thought = now
		if f := control.LastForce(); f.ClosedAt != 0 && f.Reason != meridian.NoReason {
			to.ForceClosed(time.Duration(f.ClosedAt - f.DecidedAt))
		}
	}
	if m.Answered.IsZero() && said.Visible {
		m.Answered = now
		to.ToAnswer.Observe(now.Sub(arrived))
		if !m.Thought.IsZero() {
			to.TTOT.Observe(now.Sub(m.Thought))
			if r.TargetTTOT > 0 && now.Sub(m.Thought) > r.TargetTTOT {
				to.SLOViolationsTTOT.Inc()
			}
		}
	}
}

// ThoughtDone counts the thinking of an ended request that thought.
func ThoughtDone(to *metrics.Metrics, t *meridian.Summary) {
	why, _ := t.Signals.First() // the signal that asked first for the end of the thinking
	to.ThoughtDone(metrics.Thought{Tokens: t.Tokens, Time: time.Duration(t.Ns), Ended: t.Ended.String(),
		Probes: t.Probes, Dropped: t.Dropped,
		EAT: t.Signals.EAT, RPDI: t.Signals.RPDI, Entropy: t.Signals.X, Mean: t.Signals.Mean, Var: t.Signals.Var,
		Index: t.Signals.Index, Would: why.String()})
}

// Guesses adds the guessed tokens to a request's usage.
func Guesses(u *wire.Usage, g core.Guesses) {
	for phase := range g.Drafted {
		for source := range g.Drafted[phase] {
			u.DraftedTokens += g.Drafted[phase][source]
			u.AcceptedTokens += g.Accepted[phase][source]
		}
	}
}
