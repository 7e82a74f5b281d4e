package daemon

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/spec"
)

// Speculation, on the daemon's side: the option and the field of a request, and what why says. Package core guesses and
// package sched decides how many guesses a step computes; the loop draws from their rows (endSlices).

// usageGuesses adds the guessed tokens to a request's usage.
func usageGuesses(u *wire.Usage, g core.Guesses) {
	for phase := range g.Drafted {
		for source := range g.Drafted[phase] {
			u.DraftedTokens += g.Drafted[phase][source]
			u.AcceptedTokens += g.Accepted[phase][source]
		}
	}
}

// phaseLabels are the names of the phases in core.Guesses.
var phaseLabels = [2]string{"output", "think"}

// whyGuesses reports what became of r's guesses; nil if none are made for it.
func (l *loop) whyGuesses(r *request) *wire.WhyDrafts {
	if r.Speculate == 0 || r.embed != nil {
		return nil
	}
	w := &wire.WhyDrafts{Most: r.Speculate, Counts: []wire.WhyDraftCount{}}
	if g, ok := l.core.Scheduler().Guessing(r.ID); ok && g.Why != sched.ReasonNone {
		w.Reason, w.Text = g.Why.String(), g.Why.Explain()
		w.SinceMs = max(0, wire.Ms(g.Since.Sub(l.instant(r.arrived))))
		w.Chance = g.Chance
	}
	counts := r.Guesses()
	for phase, name := range phaseLabels {
		for source := range counts.Drafted[phase] {
			if n := counts.Drafted[phase][source]; n > 0 {
				w.Counts = append(w.Counts, wire.WhyDraftCount{Phase: name, Source: spec.Source(source).String(),
					Drafted: n, Accepted: counts.Accepted[phase][source]})
			}
		}
	}
	return w
}

// guessReasons are the scheduler's reasons in the order of metrics.GuessReasons; a test holds them against it.
var guessReasons = [...]sched.Reason{sched.ReasonDraft, sched.ReasonDraftNone, sched.ReasonDraftUnlikely,
	sched.ReasonDraftTarget, sched.ReasonDraftPrompts, sched.ReasonDraftRoom, sched.ReasonDraftTrial,
	sched.ReasonDraftModel, sched.ReasonDraftCatchUp, sched.ReasonDraftBehind, sched.ReasonDraftModelTrial}
