package sched

import (
	"math"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Speculation: the caller guesses what follows a request's history (EvToken.Offer), and a step may compute some of the
// guessed tokens beside the next one. Those that turn out to be what is sampled save a step each; the others have cost
// their rows. How many rows a step has for them is decided here, in every step anew, by what they cost and how often
// they come true:
//
//   - A guess is worth the chance that it and those before it come true, times what a token of its request is worth.
//   - Its price is the time of its row by the cost model. Rows are added, the best first, as long as the next one
//     yields more per millisecond than the step with those before it.
//   - The step stays within the ITL target of its answers, in 95 of 100 cases.
//   - Prompts that wait take the time instead.
//   - Guesses of a draft model have a price too, see draft.go.
//   - With Config.Rereads a wrong guess makes its slice be computed again, together with the next token. Its rows are
//     priced with the rows that this is expected to take.
//
// Chances are learned for each request, thinking apart from answering, and for each grade of the caller's guesses;
// those of all requests are where a new one begins. Guesses that are not computed are compared with what is sampled all
// the same, so a request that has begun to repeat itself is noticed without a trial. Only the price of a row needs
// trials, after trialFirst … trialEvery steps whose good guesses seem not to pay.

// NumGrades is the number of grades of guesses (EvToken.Grade).
const NumGrades = 16

const (
	// maxGuessRows is the most rows of guesses in a step.
	maxGuessRows = 64
	// A request's own record of a grade counts as much as all requests' together after ownWeight comparisons. Records
	// keep 1 - 1/ownMemory and 1 - 1/allMemory of themselves with each comparison: text changes from passage to
	// passage.
	ownWeight = 2
	ownMemory = 12
	allMemory = 128
	// chanceDoubt is the number of standard deviations by which a recorded chance is lowered. With 0, four streams
	// whose guesses come true in 95 of 100 cases have 0.96 of the tokens/s (simulated); with 1, those of 50 have 0.9.
	chanceDoubt = 0.5
	// Before the first comparison a guess comes true in half of the cases.
	firstChance, firstWeight = 0.5, 2
	// backgroundWorth is the weight of a background request's token; that of an interactive request is 1.
	backgroundWorth = 0.5
	// guessMargin is the yield that a row needs, relative to the rest of the step: the price is an estimate.
	guessMargin = 1.05
	// After trialFirst steps with guesses of at least goodChance that are not worth their rows, trialRows are computed:
	// the price may be an error of the cost model. The interval doubles up to trialEvery.
	trialFirst = 8
	trialEvery = 256
	trialRows  = 3
	goodChance = 0.7
	// A trial is repeated when it took less than trialCheap of the expected time.
	trialCheap = 0.9
	// After alike steps with equally many guesses one has another number, so that the model can tell the price of a row
	// from that of the step: half as many, or trialRows more than a few.
	alike = 12
)

func phaseIndex(p State) int {
	if p == Think {
		return 1
	}
	return 0
}

// guesses is the state of speculation over all requests: acceptance, and trials of the price of a row.
type guesses struct {
	all       trust
	open      []guessRow // scratch of speculate
	guessable int        // answers in the newest batch that may have guesses, offered or not
	declined  int        // steps with good guesses that seemed not to pay, since the last trial
	trial     bool       // the newest batch is a trial
	every     int        // steps until the next trial, doubling from trialFirst to trialEvery
	most      int        // the most guesses that a step has had
	last      int        // guesses of the newest step with some
	same      int        // steps with some in a row that had as many
}

// guessRow is a request whose next guess may get a row.
type guessRow struct {
	i      int     // its slice
	chance float64 // of each guess, given those before it
	all    float64 // chance that all rows so far come true
	value  float64 // of the next guess: its worth times the chance that it and those before it come true
	n      int     // rows so far

	drafted bool   // the guesses are the draft model's
	forced  int    // rows that it gets as a trial of the draft model
	take    bool   // it is in the round that draftRound has found
	why     Reason // why it has none, if that is not the step's reason; reason.None = it is
}

// guessStep is the step to which rows of guesses are added. Times are in milliseconds.
type guessStep struct {
	value float64 // of its tokens, the guesses' chances included
	step  float64 // its time, with what lies between two steps
	left  float64 // time that Decode and the draft model may take together: see guessLimit
	added int     // rows
	room  int     // the most
}

// fast returns the yield in tokens per millisecond from which on a further row pays.
func (p *guessStep) fast() float64 { return mul(guessMargin, p.value/p.step) }

func newGuesses(running int) guesses { return guesses{open: make([]guessRow, 0, running)} }

// chance returns the probability that a guess of a grade comes true for r, given that those before it have.
func (s *Scheduler) chance(r *request, grade int) float64 {
	p, _ := s.record(r, grade)
	return p
}

// sureChance is chance less what its record may owe to luck: guesses are chosen by it, and among those that seem as
// good as they have to be most were lucky.
func (s *Scheduler) sureChance(r *request, grade int) float64 {
	p, luck := s.record(r, grade)
	return max(0, p-mul(chanceDoubt, luck))
}

// speculate adds rows of guessed tokens to the batch, which is complete otherwise.
func (s *Scheduler) speculate(b *batcher) {
	g := &s.guesses
	d := &s.drafts
	d.load, d.depth, d.trial.in, d.trial.waits = cost.Load{}, 0, false, false
	p := guessStep{value: s.openGuesses(b), room: min(b.left, b.cells-b.unserved, maxGuessRows)}
	if len(g.open) == 0 && !s.cfg.DraftStates {
		return
	}
	why := reason.DraftUnlikely
	// These bound the step before any price is compared.
	switch {
	case s.promptsWait():
		why, p.room = reason.DraftPrompts, 0
	case p.room <= 0:
		why = reason.DraftRoom
	}
	if p.left = s.guessLimit(b); s.cfg.AllGuesses {
		p.left = math.Inf(1)
	}
	plain := s.cost.Predict(b.load)
	p.step = mul(s.overhead.value, 1e-6) + plain
	if s.cfg.DraftBatch > 0 && d.cost.Steps() == 0 {
		d.cost.Assume(&s.cost.Model, s.cfg.DraftCost)
	}
	if p.room > 0 && s.cfg.DraftBatch > 0 {
		s.chooseDrafts(b, &p)
	}
	if s.cfg.DraftStates {
		s.chooseStates(b, &p)
	}
	if len(g.open) == 0 {
		return
	}
	vary, limited := g.same >= alike && !s.cfg.AllGuesses, p.room
	if vary && g.last > trialRows {
		p.room = min(p.room, g.last/2)
	}
	if !s.addGuesses(b, &p) {
		why = reason.DraftTarget
	}
	taken := reason.Draft
	switch p.room = limited; {
	// Only where the price of the rows was the reason: a trial cannot make room or time.
	case p.added == 0 && why == reason.DraftUnlikely && s.trialDue():
		s.guessTrial(b, &p, trialRows)
		taken, g.trial = reason.DraftTrial, p.added > 0
	case vary && p.added > 0 && p.added == g.last:
		s.guessTrial(b, &p, p.added+trialRows)
	}
	switch {
	case p.added > 0 && p.added != g.last:
		g.last, g.same = p.added, 0
	case p.added > 0:
		g.same++
	case vary: // half as many do not pay
		g.same = 0
	}
	s.feedDrafts(b, &p)
	for k := range g.open {
		c := &g.open[k]
		r := s.batch[c.i]
		what := taken
		switch {
		case c.n == 0:
			if c.why == reason.None {
				c.why = why
			}
			s.decide(r, c.why)
			continue
		case c.drafted:
			s.drafted(r, c)
			if what = reason.DraftModel; c.forced > 0 {
				what = reason.DraftModelTrial
				d.trial.in, d.trial.plain = true, plain
			}
		}
		s.decide(r, what)
		r.log.add(s.now, what, c.n)
	}
	if p.added > 0 {
		s.renumber()
	}
}

// openGuesses lists the requests of the batch whose next tokens can be guessed, and returns what its tokens are worth.
func (s *Scheduler) openGuesses(b *batcher) (value float64) {
	g := &s.guesses
	g.open, g.guessable = g.open[:0], 0
	for i := range s.plan.Batch {
		sl, r := &s.plan.Batch[i], s.batch[i]
		if r == nil || sl.Kind != SliceDecode || sl.Row < 0 {
			continue
		}
		value += r.worth()
		if r.guesses {
			g.guessable++
		}
		switch {
		case !r.guesses:
		case r.offer == 0 && r.draft == 0:
			s.decide(r, reason.DraftNone)
		case s.cfg.Rereads && (len(s.plan.Batch) > 1 || sl.N > 1):
			s.decide(r, reason.DraftState)
		default:
			chance := s.sureChance(r, r.grade)
			g.open = append(g.open, guessRow{i: i, chance: chance, all: 1, value: mul(r.worth(), chance)})
		}
	}
	return value
}

// addGuesses adds the rows that pay, the best first. It returns false when the next one would miss the ITL target.
func (s *Scheduler) addGuesses(b *batcher, p *guessStep) bool {
	g := &s.guesses
	for p.added < p.room {
		best, rate := -1, 0.0
		for k := range g.open {
			c := &g.open[k]
			if r := s.batch[c.i]; !c.drafted && c.n < r.offer {
				sl := &s.plan.Batch[c.i]
				if v := c.value / max(mul(s.cost.Another(sl.Start+sl.N), s.again(c)), 1e-6); v > rate {
					best, rate = k, v
				}
			}
		}
		// A forced round is a trial of the draft model: it is made although it seems not to pay.
		if round := s.draftRound(b, p); round.rows > 0 && (round.rate >= rate || round.forced) {
			if !s.guessFits(round.batch, round.draft, round.rows, p) {
				return false
			}
			s.addRound(b, p, &round)
			continue
		}
		if best < 0 || rate < p.fast() && !s.cfg.AllGuesses {
			break
		}
		row := s.withGuess(b, &g.open[best])
		if !s.guessFits(row, s.drafts.load, 1, p) {
			return false
		}
		s.addGuess(b, &g.open[best], row, p)
	}
	return true
}

// again returns the number of rows that c's next guess is expected to take: its own and, with Config.Rereads, those of
// the tokens that are computed again if it is the first wrong one, the history's last token among them.
func (s *Scheduler) again(c *guessRow) float64 {
	if !s.cfg.Rereads {
		return 1
	}
	return 1 + mul(mul(c.all, 1-c.chance), float64(c.n+1))
}

// worth returns the weight of one token of r in the yield of a step.
func (r *request) worth() float64 {
	if r.flow.class == Background {
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

// guessLimit returns the time in milliseconds that the ITL targets of the batch's answers, and the answers of other
// engines (EvLimit), leave for the step.
func (s *Scheduler) guessLimit(b *batcher) float64 {
	if others := s.limitMs(); others > 0 {
		return min(others, s.ownGuessLimit(b))
	}
	return s.ownGuessLimit(b)
}

func (s *Scheduler) ownGuessLimit(b *batcher) float64 {
	left := time.Duration(math.MaxInt64)
	for i := range s.plan.Batch {
		r := s.batch[i]
		if r == nil || s.plan.Batch[i].Kind != SliceDecode {
			continue
		}
		t := r.spec.TargetITL
		if t == 0 && r.flow.class == Interactive {
			t = s.cfg.ITLTarget
		}
		if t == 0 {
			continue
		}
		if r.emitted {
			t -= s.now.Sub(r.lastEmit)
		}
		left = min(left, t)
	}
	if left == math.MaxInt64 {
		return math.Inf(1)
	}
	limit, plain := float64(left)/1e6-mul(s.overhead.value, 1e-6), s.cost.Predict(b.load)
	if plain > limit { // missed without guesses too: then only more tokens per step help
		return mul(infeasibleSlack, mul(plain, s.cost.Margin()))
	}
	return limit
}

// guessFits reports whether a step that computes batch, with rows more than so far, behind the draft model's work
// stays within the time that is left. Up to one row more than steps have had before need not allow for what the cost
// model has not measured: it measures by them, and a row takes no longer than the step without it.
func (s *Scheduler) guessFits(batch, draft cost.Load, rows int, p *guessStep) bool {
	left := p.left - s.drafts.upper(draft)
	if p.added+rows-1 <= s.guesses.most {
		return mul(s.cost.Predict(batch), s.cost.Margin()) <= left
	}
	return s.cost.Upper(batch) <= left
}

// withGuess returns the batch's load with one more row of c's request.
func (s *Scheduler) withGuess(b *batcher, c *guessRow) cost.Load {
	l, sl := b.load, &s.plan.Batch[c.i]
	l.ExtendRows(sl.Start+sl.N, 1)
	return l
}

// addGuess gives c's request one more row, with which the batch's load is row.
func (s *Scheduler) addGuess(b *batcher, c *guessRow, row cost.Load, p *guessStep) {
	sl := &s.plan.Batch[c.i]
	sl.N++
	sl.Guessed++
	s.plan.Tokens++
	s.plan.GuessedTokens++
	p.step += mul(s.cost.Predict(row)-s.cost.Predict(b.load), s.again(c))
	p.value += c.value
	p.added++
	b.load = row
	b.left--
	b.cells--
	c.n++
	c.all = mul(c.all, c.chance)
	c.value = mul(c.value, c.chance)
}

// trialDue reports whether a good guess has not been worth its row in trialEvery steps.
func (s *Scheduler) trialDue() bool {
	g := &s.guesses
	for k := range g.open {
		if c := &g.open[k]; !c.drafted && s.batch[c.i].offer > 0 && c.chance >= goodChance {
			g.declined++
			break
		}
	}
	if g.declined < max(g.every, trialFirst) {
		return false
	}
	// While trials are as dear as expected they become rare.
	g.declined, g.every = 0, min(2*max(g.every, trialFirst), trialEvery)
	return true
}

// guessTrial adds rows to those that the step has until it has most, for the request whose guesses are the likeliest.
func (s *Scheduler) guessTrial(b *batcher, p *guessStep, most int) {
	g := &s.guesses
	var best *guessRow
	for k := range g.open {
		if c := &g.open[k]; !c.drafted && s.batch[c.i].offer > 0 && (best == nil || c.chance > best.chance) {
			best = c
		}
	}
	for best != nil && p.added < min(most, p.room) && best.n < s.batch[best.i].offer {
		row := s.withGuess(b, best)
		if !s.guessFits(row, s.drafts.load, 1, p) {
			break
		}
		s.addGuess(b, best, row, p)
	}
}

// learnPrice compares the time of the newest batch with its prediction. A trial that was cheaper than expected is
// repeated in the step after the next.
func (s *Scheduler) learnPrice(took time.Duration) {
	g, p := &s.guesses, &s.plan
	g.most = max(g.most, p.GuessedTokens)
	if g.trial && float64(took) < mul(trialCheap, float64(p.Predicted)) {
		g.every = trialFirst
		g.declined = g.every - 2
		s.cost.DoubtRows(took)
	}
	g.trial = false
}

// decide records the newest decision about r's guesses.
func (s *Scheduler) decide(r *request, why Reason) {
	s.count[why]++
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
	if r == nil || !r.guesses {
		return g, false
	}
	grade := r.grade
	switch r.guessing {
	case reason.DraftModel, reason.DraftModelTrial, reason.DraftBehind, reason.DraftCatchUp:
		grade = DraftGrade
	default:
		if r.offer == 0 && r.draft > 0 {
			grade = DraftGrade
		}
	}
	return Guessing{Why: r.guessing, Since: r.guessSince, Chance: s.chance(r, grade)}, true
}
