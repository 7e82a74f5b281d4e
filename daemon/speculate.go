package daemon

import (
	"sync/atomic"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/drafts"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Speculation, on the daemon's side: what usage, why and metrics say of it. Package core guesses and package sched
// decides how many guesses a step computes; the loop draws from their rows (endSlices).

// whyGuesses reports what became of r's guesses; nil if none are made for it.
func (l *loop) whyGuesses(r *request) *reports.WhyDrafts {
	if r.Speculate == 0 || r.embed != nil {
		return nil
	}
	if r.atEnd.known {
		return r.atEnd.drafts
	}
	newest, _ := l.core.Scheduler().Guessing(r.ID)
	return report.Guesses(r.Speculate, newest, l.instant(r.arrived), r.Guesses())
}

// openDraft opens the draft model, nil without one or where it is of no use.
func (s *Server) openDraft(cfg *config.Config, open Opener, quit *atomic.Bool) (*drafts.Model, error) {
	if s.cfg.DraftModel == "" {
		return nil, nil
	}
	if why := s.cfg.NoDraft(); why != "" {
		s.log.Warn("the draft model is not loaded", "file", s.cfg.DraftModel, "reason", why)
		return nil, nil
	}
	if err := opening.CheckDraft(cfg, s.modelPath); err != nil || s.cfg.HeadFile() != "" {
		return nil, err // a head is opened behind its model
	}
	o := opening.DraftOptions(cfg)
	o.Progress = opening.ReadWeights(cfg, cfg.DraftModel, func(float32) bool { return !quit.Load() }, s.log)
	return drafts.Open(open, o, s.log)
}

// openHeadFile opens the head in the file of --draft-model for eng's model.
func (s *Server) openHeadFile(cfg *config.Config, eng runtime.Engine) (*drafts.Model, error) {
	return drafts.OpenHead(eng, opening.HeadFileOptions(cfg), config.HeadStates, s.log)
}

// openHead opens the head of eng's model; nil where there is none to use. noHead says why a head is not used.
func (s *Server) openHead(eng runtime.Engine) *drafts.Model {
	head, err := drafts.OpenHead(eng, opening.HeadOptions(s.cfg), config.HeadStates, s.log)
	if err == nil {
		return head
	}
	if s.noHead = s.cfg.NoHead(); s.noHead == "" {
		s.noHead = err.Error()
		s.log.Warn("the head of the model's file makes no drafts", "reason", err)
	}
	return nil
}

// keepStates keeps the states of each request's rows in the decoded batch, for a head.
func (l *loop) keepStates(plan *sched.Plan) {
	if !l.model.draft.Keeps(l.core) {
		return
	}
	row := 0
	for i := range plan.Batch {
		s := &plan.Batch[i]
		if r := l.requests[s.Req]; s.Kind != sched.SliceProbe && r.Speculate > 0 {
			l.model.draft.Keep(&r.states, row, s.Start, s.N)
		}
		row += s.N
	}
}

// statesOf returns the states of a live request.
func (l *loop) statesOf(id core.ID) *drafts.States { return &l.requests[id].states }

// guessReasons are the scheduler's reasons in the order of metrics.GuessReasons; a test holds them against it.
var guessReasons = [...]reason.Reason{reason.Draft, reason.DraftNone, reason.DraftUnlikely, reason.DraftTarget,
	reason.DraftPrompts, reason.DraftRoom, reason.DraftTrial, reason.DraftModel, reason.DraftCatchUp,
	reason.DraftBehind, reason.DraftModelTrial, reason.DraftState}
