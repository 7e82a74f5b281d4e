package guess

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

const (
	// A draft model that lacks up to draftNewest tokens of a history computes them with its first guess. It lacks two
	// at most after a step with its guesses: the last of them, which it has not computed, and the sampled one.
	draftNewest = 16
	maxFutile   = 20 // of Request.futile
	// draftTrialShare of the time of steps without the draft model's guesses is spent on trials.
	draftTrialShare = 0.005
	// The first trials may take draftTrialFirst milliseconds together. Later ones take draftTrialMost at most: longer
	// ones are not made.
	draftTrialFirst = 50
	draftTrialMost  = 10_000
	draftTrialEvery = 1024 // the most steps from one trial without a right guess to the next
	// A trial costs at most draftDear times its prediction: a machine that slept says nothing about its price.
	draftDear = 8
)

// Drafts is the draft model: its cost model, its part of the newest step, and the budget of trials.
type Drafts struct {
	Cost cost.Model
	Load cost.Load // what it computes before the newest step's Decode; the zero value is nothing

	depth int     // rounds in it
	spare float64 // ms that trials may take
	since int     // steps without its guesses since the newest trial
	every int     // steps until the next trial, doubling from trialFirst to draftTrialEvery
	trial draftTrial
	hold  int // see chooseStates
}

// draftTrial is the price of trials. Times are in milliseconds.
type draftTrial struct {
	in      bool    // the newest batch has the guesses of one
	after   bool    // the batch before had them
	waits   bool    // the draft model catches up for one
	plain   float64 // predicted for the newest batch without guesses
	planned float64 // of the newest trial, taken off Drafts.spare
	over    float64 // time of trials beyond its prediction, moving average
	excess  float64 // of the newest one, so far
}

func newDrafts() Drafts {
	return Drafts{Cost: cost.New(&cost.State{}), spare: draftTrialFirst, every: trialFirst, hold: statesHold}
}

// settle takes off the budget what the newest batch took longer for a trial than was planned: its own rows, and the
// graphs that it and the step behind it needed. With predicted, the time of the Decode by the cost model.
func (d *Drafts) settle(took, drafting, predicted time.Duration) {
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

// cameTrue takes so many guesses of the newest batch that came true. If it was a trial, the next one is near, and has
// the time that these have saved.
func (d *Drafts) cameTrue(n int) {
	d.every = trialFirst
	if d.trial.after {
		d.spare = min(d.spare+mul(float64(n), d.trial.plain), draftTrialMost)
	}
}

// Observe learns from the draft model's part of a step.
func (d *Drafts) Observe(took time.Duration) {
	if took > 0 && !d.Load.None() {
		d.Cost.Observe(d.Load, took, false)
	}
}

// Predict returns how many milliseconds the draft model takes for l.
func (d *Drafts) Predict(l cost.Load) float64 {
	if l.None() {
		return 0
	}
	return d.Cost.Predict(l)
}

// upper returns the time in milliseconds that l stays below in about 95 of 100 cases.
func (d *Drafts) upper(l cost.Load) float64 {
	if l.None() {
		return 0
	}
	return d.Cost.Upper(l)
}

// fed returns l with n more tokens of a row's history, from the first one that the draft model lacks on. With guess the
// last of them is a row: its output is the first guess.
func fed(l cost.Load, row *Row, n int, guess bool) cost.Load {
	if n == 0 {
		return l
	}
	rows := 0
	if guess {
		rows = 1
	}
	from := row.history() - row.Lag
	l.Prefill += float64(n - rows)
	l.Decode += float64(rows)
	l.Attended += cost.Attended(from, n)
	l.Read += float64(from + n)
	return l
}

// guessed returns l with the row of the next guess behind n guesses. The first guess is the output of the history's
// last token, computed with those before it that the draft model lacks.
func guessed(l cost.Load, row *Row, n int) cost.Load {
	if n == 0 {
		return fed(l, row, row.Lag, true)
	}
	l.AddRows(row.history()+n-1, 1)
	return l
}

// blocks reports whether the draft model makes a block of guesses in one Decode.
func (c *Chooser) blocks() bool { return c.cfg.DraftBlock > 1 }

// blocked returns l with the whole block of a row's guesses, and what the draft model lacks of the history before it.
func (c *Chooser) blocked(l cost.Load, row *Row) cost.Load {
	l = fed(l, row, row.Lag, false)
	l.ExtendRows(row.history(), c.cfg.DraftBlock)
	return l
}

// chooseDrafts decides whose guesses are to be the draft model's, and for which requests it is to catch up.
func (c *Chooser) chooseDrafts(p *Step) {
	d := &c.Draft
	able := 0
	for k := range c.open {
		if c.open[k].Draft > 0 {
			able++
		}
	}
	if able == 0 {
		if c.cfg.States && c.able > 0 {
			d.without(p.took) // states are kept before the next trial only
		}
		return
	}
	used, trying := false, false
	var trial *Row // the one that lacks least
	for k := range c.open {
		row := &c.open[k]
		r := row.Request
		if r.Draft == 0 {
			continue
		}
		if trial == nil || r.Lag < trial.Lag {
			trial = row
		}
		chance, saves, pays := c.draftPays(p, row, able, r.Draft)
		switch {
		case c.cfg.All:
			if r.feeding = r.Lag > c.cfg.DraftBatch/2; !r.feeding {
				c.draft(row, 1)
				row.forced = r.Draft
			}
		// The trial for which the draft model caught up.
		case r.Lag <= draftNewest && r.trying:
			r.feeding, r.trying = false, false
			c.draft(row, chance)
			row.forced = min(trialRows, r.Draft)
		case r.Lag <= draftNewest: // rule 7
			if r.feeding = false; !pays {
				continue
			}
			c.draft(row, chance)
		// Continue the catch-up: the time spent on it would be lost.
		case r.feeding:
		case pays: // rule 8
			if r.saved += saves; r.saved >= mul(c.catchUp(row), float64(int(1)<<r.futile)) {
				r.saved, r.feeding, r.futile = 0, true, min(r.futile+1, maxFutile)
			} else if r.Offer == 0 {
				row.Why = reason.DraftBehind
			}
		default:
			continue
		}
		trying = trying || row.forced > 0 || r.feeding && r.trying
		used = used || row.drafted && row.forced == 0 || r.feeding && !r.trying
	}
	d.trial.waits = trying
	// Trials are for a draft model that is not used: guesses in use show themselves how often they come true.
	if used {
		d.since, d.every = 0, trialFirst
		return
	}
	d.without(p.took)
	price, catchUp := c.trialPrice(p, trial), 0.0 // rule 9
	if trial.Lag > draftNewest {
		catchUp = c.catchUp(trial)
	}
	if trying || price+catchUp > d.spare || d.since < d.every {
		return
	}
	d.spare -= price + catchUp
	d.trial.planned = price
	d.since, d.every = 0, min(2*d.every, draftTrialEvery)
	if trial.Lag > draftNewest {
		trial.feeding, trial.trying, d.trial.waits = true, true, true
		return
	}
	c.draft(trial, c.sureChance(trial, DraftGrade))
	trial.forced = min(trialRows, trial.Draft)
}

// trialPrice returns the time in milliseconds of a trial for a row's request: the time predicted for its rows and the
// draft model's, and what earlier trials took longer than that.
func (c *Chooser) trialPrice(p *Step, row *Row) float64 {
	each, own := p.Model.Predict(with(p.Load, row))-p.Model.Predict(p.Load), c.draftRow(row, 1)
	if c.blocks() {
		return mul(trialRows, each) + own + c.Draft.trial.over
	}
	return mul(trialRows, each+own) + c.Draft.trial.over
}

// without counts a step of so many milliseconds without the draft model.
func (d *Drafts) without(step float64) {
	d.since++
	d.spare = min(d.spare+mul(draftTrialShare, step), draftTrialMost)
}

// draftPays reports whether at most so many guesses of the draft model for a row's request yield more tokens per
// millisecond than those of its text, and the milliseconds that the step with them saves. The draft model guesses for
// able requests in a round. chance is that of its guesses.
func (c *Chooser) draftPays(p *Step, row *Row, able, most int) (chance, saves float64, pays bool) {
	each, own := p.Model.Predict(with(p.Load, row))-p.Model.Predict(p.Load), c.draftRow(row, able)
	chance = c.sureChance(row, DraftGrade)
	value, took := c.best(p, row, 0, each, row.Offer)
	drafted := *row
	c.draft(&drafted, chance)
	var draft, draftTook float64
	if c.blocks() {
		draft, draftTook = c.best(p, &drafted, own, each, most)
	} else {
		draft, draftTook = c.best(p, &drafted, 0, each+own, most)
	}
	saves = mul(draft, took/value) - draftTook
	return chance, saves, mul(draft-value, took) > mul(margin, mul(value, draftTook-took))
}

// draft lets the draft model make a row's guesses.
func (c *Chooser) draft(r *Row, chance float64) {
	r.drafted, r.chance = true, chance
	r.next = mul(r.Worth, c.comes(r, 0))
}

// draftRow returns the time in milliseconds that the draft model takes for a row in a Decode for n of them: for one
// guess, or for a block.
func (c *Chooser) draftRow(row *Row, n int) float64 {
	fixed, load := c.Draft.Cost.Predict(cost.Load{}), guessed(cost.Load{}, row, 1)
	if c.blocks() {
		load.ExtendRows(row.history()+1, c.cfg.DraftBlock-1)
	}
	return c.Draft.Cost.Predict(load) - fixed + fixed/float64(n)
}

// catchUp returns the time in milliseconds that the draft model takes for the tokens of a row's history that it lacks.
func (c *Chooser) catchUp(row *Row) float64 {
	return c.Draft.Cost.Predict(fed(cost.Load{}, row, row.Lag, false))
}

// best returns the value and the time of the step with the number of guesses of a row, at most most, that yields most
// per millisecond. once is the time that they take together, each that of one more.
func (c *Chooser) best(p *Step, row *Row, once, each float64, most int) (value, took float64) {
	value, took = p.value, p.took
	first := row.next
	for i, v, t := 0, value, took+once; i < most; i++ {
		v += first
		t += each
		if mul(v, took) > mul(value, t) {
			value, took = v, t
		}
		first = mul(first, c.comes(row, i+1))
	}
	return value, took
}

// draftRound is one more guess of the draft model for each of the marked rows.
type draftRound struct {
	rows         int
	batch, draft cost.Load // with it
	rate         float64
	forced       bool // it is part of a trial
}

// draftRound finds the next round that pays, and marks its rows; rows is 0 if there is none.
func (c *Chooser) draftRound(p *Step) draftRound {
	if c.blocks() {
		return c.blockRound(p)
	}
	d := &c.Draft
	out := draftRound{batch: p.Load, draft: d.Load}
	if d.depth > 0 {
		out.draft.More++
	}
	value, took := 0.0, d.Cost.Predict(cost.Load{}) // of the Decode itself, then of its rows too
	for k := range c.open {
		row := &c.open[k]
		row.take = false
		if !row.drafted || row.Guesses != d.depth || row.Guesses >= row.Draft || out.rows >= p.Room-c.added {
			continue
		}
		forced := row.Guesses < row.forced
		batch, draft := with(out.batch, row), guessed(out.draft, row, row.Guesses)
		price := mul(p.Model.Predict(batch)-p.Model.Predict(out.batch), c.again(row)) + d.Cost.Predict(draft) -
			d.Cost.Predict(out.draft)
		if draft.Prefill+draft.Decode > float64(c.cfg.DraftBatch) && d.depth == 0 ||
			!forced && (row.forced > 0 || row.next < mul(p.fast(), price)) {
			continue
		}
		row.take = true
		out.rows++
		out.batch, out.draft, out.forced = batch, draft, out.forced || forced
		value += row.next
		took += price
	}
	if out.rate = value / max(took, 1e-6); out.rate < p.fast() && !out.forced {
		out.rows = 0
	}
	return out
}

// blockRound is draftRound where the draft model makes a block of guesses at once. Its price is that of the whole
// block, its value that of as many guesses as pay for their rows. The round has the first of each block, the others are
// taken one by one.
func (c *Chooser) blockRound(p *Step) draftRound {
	d := &c.Draft
	out := draftRound{batch: p.Load, draft: d.Load}
	if d.depth > 0 {
		return out
	}
	value, took := 0.0, d.Cost.Predict(cost.Load{})
	for k := range c.open {
		row := &c.open[k]
		if row.take = false; !row.drafted || row.Draft == 0 || out.rows >= p.Room-c.added {
			continue
		}
		draft := c.blocked(out.draft, row)
		if draft.Prefill+draft.Decode > float64(c.cfg.DraftBatch) {
			continue
		}
		batch, try := out.batch, *row
		all, price := 0.0, d.Cost.Predict(draft)-d.Cost.Predict(out.draft)
		for try.Guesses < row.Draft {
			load := with(batch, &try)
			each := mul(p.Model.Predict(load)-p.Model.Predict(batch), c.again(&try))
			if forced := try.Guesses < row.forced; !forced && (row.forced > 0 || try.next < mul(p.fast(), each)) {
				break
			}
			all, price, batch = all+try.next, price+each, load
			c.taken(&try)
		}
		if row.forced == 0 && all < mul(p.fast(), price) {
			continue
		}
		row.take = true
		out.rows++
		out.batch, out.draft, out.forced = with(out.batch, row), draft, out.forced || row.forced > 0
		value, took = value+all, took+price
	}
	if out.rate = value / max(took, 1e-6); out.rate < p.fast() && !out.forced {
		out.rows = 0
	}
	return out
}

// addRound adds the marked rows' guesses to the step.
func (c *Chooser) addRound(p *Step, round *draftRound) {
	d := &c.Draft
	p.took += d.Predict(round.draft) - d.Predict(d.Load)
	d.Load = round.draft
	d.depth++
	for k := range c.open {
		row := &c.open[k]
		if !row.take {
			continue
		}
		c.add(row, with(p.Load, row), p)
		for c.blocks() && row.Guesses < min(row.forced, row.Draft, p.Room-c.added+row.Guesses) {
			c.add(row, with(p.Load, row), p)
		}
	}
}

// feedDrafts lets the draft model catch up, within the step's limit in 95 of 100 cases. It doubles the step's time at
// most, by the prediction alone: that is no promise, and a price that is not known yet has to be measured.
func (c *Chooser) feedDrafts(p *Step) {
	if p.Room <= 0 {
		return
	}
	d := &c.Draft
	left, double := p.Limit-mul(p.Model.Predict(p.Load), p.Model.Margin())-d.upper(d.Load), p.took
	for k := range c.open {
		row := &c.open[k]
		if !row.feeding || row.Draft == 0 {
			continue
		}
		most := min(row.Lag, c.cfg.DraftBatch-int(d.Load.Prefill+d.Load.Decode))
		from := row.history() - row.Lag
		likely := d.Cost.Chunk(d.Predict(d.Load)+double, d.Load, from, most, d.Cost.Predict)
		n := d.Cost.Chunk(d.upper(d.Load)+left, d.Load, from, min(most, likely), d.Cost.Upper)
		if n <= 0 {
			row.Why = reason.DraftTarget
			continue
		}
		l := fed(d.Load, row, n, false)
		left -= d.upper(l) - d.upper(d.Load)
		double -= d.Predict(l) - d.Predict(d.Load)
		d.Load = l
		row.Feed, row.Why = n, reason.DraftCatchUp
	}
}
