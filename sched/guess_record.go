package sched

import (
	"fmt"
	"math"
)

// record counts the guesses that came true, of those compared, with exponential forgetting.
type record struct{ right, total float64 }

func (c *record) add(right int, wrong bool, memory float64) {
	keep := 1 - 1/memory
	for range right {
		c.right, c.total = mul(c.right, keep)+1, mul(c.total, keep)+1
	}
	if wrong {
		c.right, c.total = mul(c.right, keep), mul(c.total, keep)+1
	}
}

// trust has the records of guesses: answering, thinking; by grade.
type trust [2][NumGrades]record

// record returns r's chance and its standard deviation due to r's own comparisons.
func (s *Scheduler) record(r *request, grade int) (p, deviation float64) {
	phase := phaseIndex(r.phase)
	all, own := &s.guesses.all[phase][grade], &r.trust[phase][grade]
	first := firstChance
	if grade == DraftGrade {
		first = draftChance
	}
	base := (all.right + mul(first, firstWeight)) / (all.total + firstWeight)
	n := own.total + ownWeight
	p = (own.right + mul(ownWeight, base)) / n
	return p, math.Sqrt(mul(mul(p, 1-p), own.total)) / n
}

// checkGuesses panics when a token's event contradicts what was offered and computed.
func (s *Scheduler) checkGuesses(r *request, e *EvToken) {
	switch {
	case e.DraftRight < 0 || e.DraftRight > 0 && !r.drafted || e.DraftRight > r.guessed ||
		e.DraftWrong && (!r.drafted || e.DraftRight == r.guessed):
		panic(fmt.Sprintf("sched: EvToken of request %d: %d guesses of the draft model came true; %d were computed",
			r.id, e.DraftRight, r.guessed))
	case e.Accepted < 0 || e.Accepted > r.guessed || e.Accepted > e.Right && !r.drafted ||
		r.drafted && e.Accepted > e.DraftRight:
		panic(fmt.Sprintf("sched: EvToken of request %d accepts %d guesses; %d were computed, %d came true", r.id,
			e.Accepted, r.guessed, e.Right))
	case e.Right < 0 || e.Right > r.offer || e.Wrong && e.Right == r.offer:
		panic(fmt.Sprintf("sched: EvToken of request %d: %d guesses came true; %d were offered", r.id, e.Right,
			r.offer))
	case e.Offer < 0 || e.Offer > maxGuessRows || e.Grade < 0 || e.Grade >= NumGrades || e.Offer > 0 && !r.guesses:
		panic(fmt.Sprintf("sched: EvToken of request %d offers %d guesses of grade %d; it must be 0…%d and 0…%d, and "+
			"announced at its arrival", r.id, e.Offer, e.Grade, maxGuessRows, NumGrades-1))
	case e.Draft < 0 || e.Draft > maxGuessRows || e.Draft > 0 && (e.Lag < 1 || s.cfg.DraftBatch == 0 || !r.guesses):
		panic(fmt.Sprintf("sched: EvToken of request %d with Draft %d and Lag %d; they must be 0…%d and ≥ 1, with a "+
			"draft model", r.id, e.Draft, e.Lag, maxGuessRows))
	}
}

// learnGuesses records the outcome of r's newest offer, and of the draft model's guesses.
func (s *Scheduler) learnGuesses(r *request, e *EvToken) {
	phase := phaseIndex(r.phase)
	learn := func(grade, right int, wrong bool) {
		if right > 0 || wrong {
			s.guesses.all[phase][grade].add(right, wrong, allMemory)
			r.trust[phase][grade].add(right, wrong, ownMemory)
		}
	}
	learn(r.grade, e.Right, e.Wrong)
	learn(DraftGrade, e.DraftRight, e.DraftWrong)
	if d := &s.drafts; e.DraftRight > 0 {
		d.every = trialFirst // the next trial, if the newest guesses were one
	}
}
