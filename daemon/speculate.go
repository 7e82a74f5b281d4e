package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/drafts"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
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
	if err := s.checkDraft(); err != nil || s.cfg.Eagle() { // a head is opened behind its model, see openEagle
		return nil, err
	}
	o := draftOptions(cfg)
	o.Progress = func(float32) bool { return !quit.Load() }
	return drafts.Open(open, o, s.log)
}

// checkDraft compares the headers of --draft-model and of the model. What cannot be read is left to the engine, but for
// a head that does not exist: it is opened behind the model.
func (s *Server) checkDraft() error {
	path, eagle := s.cfg.DraftModel, s.cfg.Eagle()
	head, err := gguf.Brief(path)
	model, errModel := gguf.Brief(s.modelPath)
	switch {
	case errors.Is(err, fs.ErrNotExist) && eagle:
	case err == nil && head.Eagle != nil && !eagle:
		return fmt.Errorf("--draft-model: %s is an EAGLE-3 head: --spec-type draft-eagle3 uses it", path)
	case err != nil || errModel != nil || !eagle:
		return nil
	default:
		err = head.DraftsFor(&model)
	}
	if err != nil {
		return fmt.Errorf("--draft-model: the EAGLE-3 head %s: %w", path, err)
	}
	return nil
}

// openEagle opens the EAGLE-3 head of --draft-model for eng's model.
func (s *Server) openEagle(cfg *config.Config, eng runtime.Engine) (*drafts.Model, error) {
	file := draftOptions(cfg)
	return drafts.OpenHead(eng, runtime.HeadOptions{ContextTokens: file.ContextTokens, Batch: file.Batch,
		Sequences: file.Sequences, File: &file}, config.HeadStates, s.log)
}

// openHead opens the head of eng's model; nil where there is none to use. noHead says why a head is not used.
func (s *Server) openHead(eng runtime.Engine) *drafts.Model {
	head, err := drafts.OpenHead(eng, runtime.HeadOptions{ContextTokens: s.cfg.HeadContextTokens(),
		Batch: min(draftBatch, s.cfg.BatchSize), Sequences: min(draftSequences, s.cfg.Parallel)}, config.HeadStates,
		s.log)
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
	if !l.draft.Keeps(l.core) {
		return
	}
	row := 0
	for i := range plan.Batch {
		s := &plan.Batch[i]
		if r := l.requests[s.Req]; s.Kind != sched.SliceProbe && r.Speculate > 0 {
			l.draft.Keep(&r.states, row, s.Start, s.N)
		}
		row += s.N
	}
}

// statesOf returns the states of a live request.
func (l *loop) statesOf(id core.ID) *drafts.States { return &l.requests[id].states }

// guessReasons are the scheduler's reasons in the order of metrics.GuessReasons; a test holds them against it.
var guessReasons = [...]sched.Reason{sched.ReasonDraft, sched.ReasonDraftNone, sched.ReasonDraftUnlikely,
	sched.ReasonDraftTarget, sched.ReasonDraftPrompts, sched.ReasonDraftRoom, sched.ReasonDraftTrial,
	sched.ReasonDraftModel, sched.ReasonDraftCatchUp, sched.ReasonDraftBehind, sched.ReasonDraftModelTrial,
	sched.ReasonDraftState}
