package sched

import (
	"fmt"

	"github.com/uma-serve/uma-serve/sched/guess"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// speculate adds rows of guessed tokens, which package guess chooses, to the batch, which is complete otherwise.
func (s *Scheduler) speculate(b *batcher) {
	g, p := &s.guesses, &s.plan
	g.Begin(len(p.Batch) == 1)
	for i := range p.Batch {
		sl, r := &p.Batch[i], s.out.batch[i]
		if r == nil || sl.Kind != SliceDecode || sl.Row < 0 {
			continue
		}
		if !r.guess.Able {
			g.Plain(r.worth())
			continue
		}
		why := g.Add(guess.Row{Request: &r.guess, Slice: i, Start: sl.Start, N: sl.N, Thinking: r.phase == Think,
			Worth: r.worth()})
		if why != reason.None {
			s.decide(r, why)
		}
	}
	if !g.Wanted() {
		return
	}
	step := guess.Step{Model: &s.cost.Model, Load: b.load, Room: min(b.left, b.cells-b.unserved),
		Limit: s.guessLimit(b), Overhead: mul(s.overhead.Value, 1e-6), Prompts: s.promptsWait()}
	p.States = g.Choose(&step)
	b.load = step.Load
	rows := g.Rows()
	for i := range rows {
		row := &rows[i]
		sl, r := &p.Batch[row.Slice], s.out.batch[row.Slice]
		if sl.Feed = row.Feed; row.Feed > 0 && !row.ByDraft() {
			r.log.add(s.now, reason.DraftCatchUp, row.Feed)
		}
		s.decide(r, row.Why)
		if row.Guesses == 0 {
			continue
		}
		r.log.add(s.now, row.Why, row.Guesses)
		sl.N += row.Guesses
		sl.Guessed, sl.Drafted = row.Guesses, row.ByDraft()
		p.Tokens += row.Guesses
		p.GuessedTokens += row.Guesses
		b.left -= row.Guesses
		b.cells -= row.Guesses
	}
	if p.GuessedTokens > 0 {
		s.renumber()
	}
}

// checkGuesses panics when a token's event contradicts what was offered and computed.
func (s *Scheduler) checkGuesses(r *request, e *EvToken) {
	g := &r.guess
	switch {
	case e.DraftRight < 0 || e.DraftRight > 0 && !g.Drafted || e.DraftRight > g.Guessed ||
		e.DraftWrong && (!g.Drafted || e.DraftRight == g.Guessed):
		panic(fmt.Sprintf("sched: EvToken of request %d: %d guesses of the draft model came true; %d were computed",
			r.id, e.DraftRight, g.Guessed))
	case e.Accepted < 0 || e.Accepted > g.Guessed || e.Accepted > e.Right && !g.Drafted ||
		g.Drafted && e.Accepted > e.DraftRight:
		panic(fmt.Sprintf("sched: EvToken of request %d accepts %d guesses; %d were computed, %d came true", r.id,
			e.Accepted, g.Guessed, e.Right))
	case e.Right < 0 || e.Right > g.Offer || e.Wrong && e.Right == g.Offer:
		panic(fmt.Sprintf("sched: EvToken of request %d: %d guesses came true; %d were offered", r.id, e.Right,
			g.Offer))
	case e.Offer < 0 || e.Offer > guess.MaxRows || e.Grade < 0 || e.Grade >= guess.NumGrades || e.Offer > 0 && !g.Able:
		panic(fmt.Sprintf("sched: EvToken of request %d offers %d guesses of grade %d; it must be 0…%d and 0…%d, and "+
			"announced at its arrival", r.id, e.Offer, e.Grade, guess.MaxRows, guess.NumGrades-1))
	case e.Draft < 0 || e.Draft > guess.MaxRows || e.Draft > 0 && (e.Lag < 1 || s.cfg.DraftBatch == 0 || !g.Able):
		panic(fmt.Sprintf("sched: EvToken of request %d with Draft %d and Lag %d; they must be 0…%d and ≥ 1, with a "+
			"draft model", r.id, e.Draft, e.Lag, guess.MaxRows))
	}
}

// worth returns the weight of one token of r in the yield of a step.
func (r *request) worth() float64 {
	if r.entry.Class == Background {
		return backgroundWorth
	}
	return 1
}

// promptsWait reports whether a running request has prompt left to compute: rows of guesses would delay it.
func (s *Scheduler) promptsWait() bool {
	for _, r := range s.running {
		if !r.paused && r.state == Prefill {
			return true
		}
	}
	return false
}

// decide records the newest decision about r's guesses.
func (s *Scheduler) decide(r *request, why Reason) {
	s.totals.count[why]++
	if r.guessing != why {
		r.guessing, r.guessSince = why, s.now
	}
}

// renumber sets the rows of the batch anew, after slices have grown.
func (s *Scheduler) renumber() {
	tokens := 0
	for i := range s.plan.Batch {
		sl := &s.plan.Batch[i]
		if tokens += sl.N; sl.Row >= 0 {
			sl.Row = tokens - 1 - sl.Guessed
		}
	}
	s.plan.Budget = max(s.plan.Budget, tokens)
}

// Guessing says what becomes of a request's guesses.
type Guessing struct {
	Why   Reason  // the newest decision; reason.None = there was none
	Since Instant // when the decisions for that reason began
	// Chance is the probability that a guess of the newest grade comes true in the request's phase, or one of the draft
	// model where Why is about that.
	Chance float64
}

// Guessing returns the newest decision about a live request's guesses.
func (s *Scheduler) Guessing(id ReqID) (g Guessing, ok bool) {
	r := s.requests[id]
	if r == nil || !r.guess.Able {
		return g, false
	}
	grade := r.guess.Grade
	switch r.guessing {
	case reason.DraftModel, reason.DraftModelTrial, reason.DraftBehind, reason.DraftCatchUp:
		grade = guess.DraftGrade
	default:
		if r.guess.Offer == 0 && r.guess.Draft > 0 {
			grade = guess.DraftGrade
		}
	}
	return Guessing{Why: r.guessing, Since: r.guessSince,
		Chance: s.guesses.Chance(&r.guess, r.phase == Think, grade)}, true
}
