package daemon

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sched"
)

// Speculation, on the daemon's side: what usage, why and metrics say of it. Package core guesses and package sched
// decides how many guesses a step computes; the loop draws from their rows (endSlices).

// usageGuesses adds the guessed tokens to a request's usage.
func usageGuesses(u *wire.Usage, g core.Guesses) {
	for phase := range g.Drafted {
		for source := range g.Drafted[phase] {
			u.DraftedTokens += g.Drafted[phase][source]
			u.AcceptedTokens += g.Accepted[phase][source]
		}
	}
}

// whyGuesses reports what became of r's guesses; nil if none are made for it.
func (l *loop) whyGuesses(r *request) *wire.WhyDrafts {
	if r.Speculate == 0 || r.embed != nil {
		return nil
	}
	if r.atEnd.known {
		return r.atEnd.drafts
	}
	newest, _ := l.core.Scheduler().Guessing(r.ID)
	return report.Guesses(r.Speculate, newest, l.instant(r.arrived), r.Guesses())
}

// guessReasons are the scheduler's reasons in the order of metrics.GuessReasons; a test holds them against it.
var guessReasons = [...]sched.Reason{sched.ReasonDraft, sched.ReasonDraftNone, sched.ReasonDraftUnlikely,
	sched.ReasonDraftTarget, sched.ReasonDraftPrompts, sched.ReasonDraftRoom, sched.ReasonDraftTrial,
	sched.ReasonDraftModel, sched.ReasonDraftCatchUp, sched.ReasonDraftBehind, sched.ReasonDraftModelTrial,
	sched.ReasonDraftState}
