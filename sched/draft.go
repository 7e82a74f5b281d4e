package sched

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// A draft model is a small model with the same vocabulary. It guesses the tokens that follow any history, one after the
// other, before Decode; they are compared with what is sampled like other guesses. It has a price that other guesses
// have not: a Decode for each guess in a row, and before the first one the tokens of the history that it has not
// computed (EvToken.Lag). Both are predicted by a second cost model, learned from the draft model's steps.
//
//   - A request's guesses are the draft model's where these yield more tokens per millisecond than those of its text,
//     and than none. One Decode of the draft model guesses a token for each of them (a round). Rounds are added as long
//     as the next one yields more per millisecond than the step without it.
//   - A draft model that lacks more than the newest tokens of a history catches up once its guesses would have saved
//     as much time as that takes. Nothing is known of how long an answer will be; this way at most twice the time is
//     spent that would have been spent by the better of the two choices (rent or buy). Each time that it has caught up
//     and then made no guess doubles what the next time needs.
//   - How often its guesses come true is seen only where it makes some. Where these seem not to pay it makes a few
//     after trialFirst … draftTrialEvery steps, if their price is at most draftTrialShare of the time of steps without.
//     The price is what trials have taken: steps of another shape need a new graph, which no cost model predicts. A
//     draft model that does not fit costs half a percent of the time.
//   - A head reads the states of the model's rows (Config.DraftStates), see head.go.

// DraftGrade is the grade of the draft model's guesses. Other guesses have lower ones.
const DraftGrade = NumGrades - 1

const (
	// A draft model that lacks up to draftNewest tokens of a history computes them with its first guess. It lacks two
	// at most after a step with its guesses: the last of them, which it has not computed, and the sampled one.
	draftNewest = 16
	maxFutile   = 20 // of request.futile
	// draftTrialShare of the time of steps without the draft model's guesses is spent on trials.
	draftTrialShare = 0.005
	// The first trials may take draftTrialFirst milliseconds together. Later ones take draftTrialMost at most: longer
	// ones are not made.
	draftTrialFirst = 50
	draftTrialMost  = 10_000
	draftTrialEvery = 1024 // the most steps from one trial without a right guess to the next
	// A trial costs at most draftDear times its prediction: a machine that slept says nothing about its price.
	draftDear = 8
	// Before the first comparison, draftChance of its guesses come true: most pairs of models are better.
	draftChance = 0.7
)

// drafts is the scheduler's state of the draft model: its cost model, its part of the newest batch, and the budget of
// trials.
type drafts struct {
	cost  cost.Model
	load  cost.Load // what it computes before the newest batch; the zero value is nothing
	depth int       // rounds in it
	spare float64   // ms that trials may take
	since int       // steps without its guesses since the newest trial
	every int       // steps until the next trial, doubling from trialFirst to draftTrialEvery
	trial draftTrial
	hold  int // see chooseStates
}

// draftTrial is the price of trials. Times are in milliseconds.
type draftTrial struct {
	in      bool    // the newest batch has the guesses of one
	after   bool    // the batch before had them
	waits   bool    // the draft model catches up for one
	plain   float64 // predicted for the newest batch without guesses
	planned float64 // of the newest trial, taken off drafts.spare
	over    float64 // what trials take beyond what is predicted for them, moving average
	excess  float64 // of the newest one, so far
}

func newDrafts() drafts {
	return drafts{cost: cost.New(&cost.State{}), spare: draftTrialFirst, every: trialFirst, hold: statesHold}
}

// settle takes off the budget what the newest batch took longer for a trial than was planned: its own rows, and the
// graphs that it and the step behind it needed. With predicted, the time of the Decode by the cost model.
func (d *drafts) settle(took, drafting, predicted time.Duration) {
	t := &d.trial
	switch {
	case t.in:
		t.excess = float64(took+drafting)/1e6 - t.plain - t.planned
	case t.after:
		t.excess += float64(took-predicted) / 1e6
		t.excess = min(max(-t.over, t.excess), mul(draftDear, t.planned))
		d.spare -= t.excess
		t.over = max(0, t.over+t.excess/2)
	}
	t.in, t.after = false, t.in
}

// observe learns from the draft model's part of a step.
func (d *drafts) observe(took time.Duration) {
	if took > 0 && !d.load.None() {
		d.cost.Observe(d.load, took, false)
	}
}

// predict returns how many milliseconds the draft model takes for l.
func (d *drafts) predict(l cost.Load) float64 {
	if l.None() {
		return 0
	}
	return d.cost.Predict(l)
}

// upper returns the time in milliseconds that l stays below in about 95 of 100 cases.
func (d *drafts) upper(l cost.Load) float64 {
	if l.None() {
		return 0
	}
	return d.cost.Upper(l)
}

// fed returns l with n more tokens of r's history, from the first one that the draft model lacks on. With guess the
// last of them is a row: its output is the first guess.
func fed(l cost.Load, r *request, n int, guess bool) cost.Load {
	if n == 0 {
		return l
	}
	rows := 0
	if guess {
		rows = 1
	}
	l.Prefill += float64(n - rows)
	l.Decode += float64(rows)
	l.Attended += cost.Attended(r.history()-r.lag, n)
	l.Read += float64(r.history() - r.lag + n)
	return l
}

// guessed returns l with the row of r's next guess behind n guesses. The first guess is the output of the history's
// last token, computed with those before it that the draft model lacks.
func guessed(l cost.Load, r *request, n int) cost.Load {
	if n == 0 {
		return fed(l, r, r.lag, true)
	}
	l.AddRows(r.history()+n-1, 1)
	return l
}

// chooseDrafts decides whose guesses are to be the draft model's, and for which requests it is to catch up.
func (s *Scheduler) chooseDrafts(b *batcher, p *guessStep) {
	g, d := &s.guesses, &s.drafts
	able := 0
	for k := range g.open {
		if s.batch[g.open[k].i].draft > 0 {
			able++
		}
	}
	if able == 0 {
		if s.cfg.DraftStates && g.guessable > 0 {
			d.without(p.step) // states are kept before the next trial only
		}
		return
	}
	used, trying := false, false
	var trial *guessRow // the one that lacks least
	for k := range g.open {
		c := &g.open[k]
		r := s.batch[c.i]
		if r.draft == 0 {
			continue
		}
		if trial == nil || r.lag < s.batch[trial.i].lag {
			trial = c
		}
		chance, saves, pays := s.draftPays(b, p, c, able, r.draft)
		switch {
		case s.cfg.AllGuesses:
			if r.feeding = r.lag > s.cfg.DraftBatch/2; !r.feeding {
				c.draft(r, 1)
				c.forced = r.draft
			}
		// The trial for which the draft model caught up.
		case r.lag <= draftNewest && r.trying:
			r.feeding, r.trying = false, false
			c.draft(r, chance)
			c.forced = min(trialRows, r.draft)
		case r.lag <= draftNewest:
			if r.feeding = false; !pays {
				continue
			}
			c.draft(r, chance)
		// Continue the catch-up: the time spent on it would be lost.
		case r.feeding:
		case pays:
			if r.saved += saves; r.saved >= mul(s.catchUp(r), float64(int(1)<<r.futile)) {
				r.saved, r.feeding, r.futile = 0, true, min(r.futile+1, maxFutile)
			} else if r.offer == 0 {
				c.why = reason.DraftBehind
			}
		default:
			continue
		}
		trying = trying || c.forced > 0 || r.feeding && r.trying
		used = used || c.drafted && c.forced == 0 || r.feeding && !r.trying
	}
	d.trial.waits = trying
	// Trials are for a draft model that is not used: guesses in use show themselves how often they come true.
	if used {
		d.since, d.every = 0, trialFirst
		return
	}
	d.without(p.step)
	r := s.batch[trial.i]
	price, catchUp := s.trialPrice(b, trial), 0.0
	if r.lag > draftNewest {
		catchUp = s.catchUp(r)
	}
	if trying || price+catchUp > d.spare || d.since < d.every {
		return
	}
	d.spare -= price + catchUp
	d.trial.planned = price
	d.since, d.every = 0, min(2*d.every, draftTrialEvery)
	if r.lag > draftNewest {
		r.feeding, r.trying, d.trial.waits = true, true, true
		return
	}
	trial.draft(r, s.sureChance(r, DraftGrade))
	trial.forced = min(trialRows, r.draft)
}

// trialPrice returns the time in milliseconds of a trial for c's request: the time predicted for its rows and the draft
// model's, and what earlier trials took longer than that.
func (s *Scheduler) trialPrice(b *batcher, c *guessRow) float64 {
	row := s.cost.Predict(s.withGuess(b, c)) - s.cost.Predict(b.load) + s.draftRow(s.batch[c.i], 1)
	return mul(trialRows, row) + s.drafts.trial.over
}

// without counts a step of so many milliseconds without the draft model.
func (d *drafts) without(step float64) {
	d.since++
	d.spare = min(d.spare+mul(draftTrialShare, step), draftTrialMost)
}

// draftPays reports whether at most so many guesses of the draft model for c's request yield more tokens per
// millisecond than those of its text, and the milliseconds that the step with them saves. The draft model guesses for
// able requests in a round. chance is that of its guesses.
func (s *Scheduler) draftPays(b *batcher, p *guessStep, c *guessRow, able, most int) (chance, saves float64,
	pays bool) {
	r := s.batch[c.i]
	row := s.cost.Predict(s.withGuess(b, c)) - s.cost.Predict(b.load)
	chance = s.sureChance(r, DraftGrade)
	value, took := best(p, c.value, c.chance, row, r.offer)
	with, withTook := best(p, mul(r.worth(), chance), chance, row+s.draftRow(r, able), most)
	saves = mul(with, took/value) - withTook
	return chance, saves, mul(with-value, took) > mul(guessMargin, mul(value, withTook-took))
}

// draft lets the draft model make c's guesses.
func (c *guessRow) draft(r *request, chance float64) {
	c.drafted, c.chance, c.value = true, chance, mul(r.worth(), chance)
}

// draftRow returns the time in milliseconds of one guess of the draft model for r in a round of n guesses.
func (s *Scheduler) draftRow(r *request, n int) float64 {
	fixed := s.drafts.cost.Predict(cost.Load{})
	return s.drafts.cost.Predict(guessed(cost.Load{}, r, 1)) - fixed + fixed/float64(n)
}

// catchUp returns the time in milliseconds that the draft model takes for the tokens of r's history that it lacks.
func (s *Scheduler) catchUp(r *request) float64 {
	return s.drafts.cost.Predict(fed(cost.Load{}, r, r.lag, false))
}

// best returns the value and the time of the step with the number of guesses of one request, at most most, that yields
// most per millisecond. first is the value of the first guess, chance the probability and price the time of each.
func best(p *guessStep, first, chance, price float64, most int) (value, took float64) {
	value, took = p.value, p.step
	for v, t := value, took; most > 0; most-- {
		v += first
		t += price
		if mul(v, took) > mul(value, t) {
			value, took = v, t
		}
		first = mul(first, chance)
	}
	return value, took
}

// draftRound is one more guess of the draft model for each of the marked requests.
type draftRound struct {
	rows         int
	batch, draft cost.Load // with it
	rate         float64
	forced       bool // it is part of a trial
}

// draftRound finds the next round that pays, and marks its requests; rows is 0 if there is none.
func (s *Scheduler) draftRound(b *batcher, p *guessStep) draftRound {
	g, d := &s.guesses, &s.drafts
	out := draftRound{batch: b.load, draft: d.load}
	if d.depth > 0 {
		out.draft.More++
	}
	value, took := 0.0, d.cost.Predict(cost.Load{}) // of the Decode itself, then of its rows too
	for k := range g.open {
		c := &g.open[k]
		c.take = false
		r := s.batch[c.i]
		if !c.drafted || c.n != d.depth || c.n >= r.draft || out.rows >= p.room-p.added {
			continue
		}
		forced := c.n < c.forced
		row := out.batch
		row.ExtendRows(s.plan.Batch[c.i].Start+s.plan.Batch[c.i].N, 1)
		draft := guessed(out.draft, r, c.n)
		price := mul(s.cost.Predict(row)-s.cost.Predict(out.batch), s.again(c)) + d.cost.Predict(draft) -
			d.cost.Predict(out.draft)
		if draft.Prefill+draft.Decode > float64(s.cfg.DraftBatch) && d.depth == 0 ||
			!forced && (c.forced > 0 || c.value < mul(p.fast(), price)) {
			continue
		}
		c.take = true
		out.rows++
		out.batch, out.draft, out.forced = row, draft, out.forced || forced
		value += c.value
		took += price
	}
	if out.rate = value / max(took, 1e-6); out.rate < p.fast() && !out.forced {
		out.rows = 0
	}
	return out
}

// addRound adds the marked requests' guesses to the step.
func (s *Scheduler) addRound(b *batcher, p *guessStep, round *draftRound) {
	d := &s.drafts
	p.step += d.predict(round.draft) - d.predict(d.load)
	d.load = round.draft
	d.depth++
	for k := range s.guesses.open {
		if c := &s.guesses.open[k]; c.take {
			s.addGuess(b, c, s.withGuess(b, c), p)
		}
	}
}

// drafted notes in the plan that the guesses of r are the draft model's.
func (s *Scheduler) drafted(r *request, c *guessRow) {
	sl := &s.plan.Batch[c.i]
	sl.Drafted, sl.Feed = true, r.lag
	r.futile = 0
}

// feedDrafts lets the draft model catch up: it doubles the step's time at most.
func (s *Scheduler) feedDrafts(b *batcher, p *guessStep) {
	if p.room <= 0 {
		return
	}
	g, d := &s.guesses, &s.drafts
	left := min(p.left-mul(s.cost.Predict(b.load), s.cost.Margin())-d.upper(d.load), p.step)
	for k := range g.open {
		c := &g.open[k]
		r := s.batch[c.i]
		if !r.feeding || r.draft == 0 {
			continue
		}
		most := min(r.lag, s.cfg.DraftBatch-int(d.load.Prefill+d.load.Decode))
		n := d.cost.Chunk(d.upper(d.load)+left, d.load, r.history()-r.lag, most, d.cost.Upper)
		if n <= 0 {
			c.why = reason.DraftTarget
			continue
		}
		l := fed(d.load, r, n, false)
		left -= d.upper(l) - d.upper(d.load)
		d.load = l
		s.plan.Batch[c.i].Feed = n
		c.why = reason.DraftCatchUp
		r.log.add(s.now, reason.DraftCatchUp, n)
	}
}
