package sched

import (
	"fmt"
	"math"
	"time"
)

// Speculation: the caller guesses what follows a request's history (Event.Offer), and a step may compute some of the
// guessed tokens beside the next one. Those that turn out to be what is sampled save a step each; the others have cost
// their rows. How many rows a step has for them is decided here, in every step anew, by what they cost and how often
// they come true:
//
//   - A guess is worth the chance that it and those before it come true, times what a token of its request is worth.
//   - Its price is the time of its row by the cost model. Rows are added, the best first, as long as the next one
//     yields more per millisecond than the step with those before it.
//   - The step stays within the ITL target of its answers, in 95 of 100 cases.
//   - Prompts that wait take the time instead.
//
// Chances are learned for each request, thinking apart from answering, and for each grade of the caller's guesses;
// those of all requests are where a new one begins. Guesses that are not computed are compared with what is sampled all
// the same, so a request that has begun to repeat itself is noticed without a trial. Only the price of a row needs
// trials, after trialFirst … trialEvery steps whose good guesses seem not to pay.

// NumGrades is the number of grades of guesses (Event.Grade).
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
	// Before the first comparison a guess comes true in half of the cases.
	firstChance, firstWeight = 0.5, 2
	// backgroundWorth is what a token of a background request is worth, one of an interactive request being 1.
	backgroundWorth = 0.5
	// guessMargin is how much more than the rest of the step a row has to yield: the price is an estimate.
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

// record is how often guesses came true, with exponential forgetting.
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

func phaseIndex(p State) int {
	if p == Think {
		return 1
	}
	return 0
}

// guesses is what the scheduler knows about guesses in general.
type guesses struct {
	all      trust
	open     []guessRow // scratch of speculate
	declined int        // steps with good guesses that seemed not to pay, since the last trial
	trial    bool       // the newest batch is a trial
	every    int        // steps until the next trial, doubling from trialFirst to trialEvery
	most     int        // the most guesses that a step has had
	last     int        // guesses of the newest step with some
	same     int        // steps with some in a row that had as many
}

// guessRow is a request whose next guess may get a row.
type guessRow struct {
	i      int     // its slice
	chance float64 // of each guess, given those before it
	value  float64 // of the next guess: its worth times the chance that it and those before it come true
	n      int     // rows so far
}

func newGuesses(running int) guesses { return guesses{open: make([]guessRow, 0, running)} }

// chance is how likely each token of r's offer comes true, given those before it.
func (s *Scheduler) chance(r *request) float64 {
	phase := phaseIndex(r.phase)
	all, own := &s.guesses.all[phase][r.grade], &r.trust[phase][r.grade]
	base := (all.right + firstChance*firstWeight) / (all.total + firstWeight)
	return (own.right + mul(ownWeight, base)) / (own.total + ownWeight)
}

// checkGuesses panics when a token's event contradicts what was offered and computed.
func (s *Scheduler) checkGuesses(r *request, e *Event) {
	switch {
	case e.Accepted < 0 || e.Accepted > r.guessed || e.Accepted > e.Right:
		panic(fmt.Sprintf("sched: EvToken of request %d accepts %d guesses; %d were computed, %d came true", r.id,
			e.Accepted, r.guessed, e.Right))
	case e.Right < 0 || e.Right > r.offer || e.Wrong && e.Right == r.offer:
		panic(fmt.Sprintf("sched: EvToken of request %d: %d guesses came true; %d were offered", r.id, e.Right,
			r.offer))
	case e.Offer < 0 || e.Offer > maxGuessRows || e.Grade < 0 || e.Grade >= NumGrades || e.Offer > 0 && !r.guesses:
		panic(fmt.Sprintf("sched: EvToken of request %d offers %d guesses of grade %d; it must be 0…%d and 0…%d, and "+
			"announced at its arrival", r.id, e.Offer, e.Grade, maxGuessRows, NumGrades-1))
	}
}

// learnGuesses records the outcome of r's newest offer.
func (s *Scheduler) learnGuesses(r *request, e *Event) {
	if e.Right == 0 && !e.Wrong {
		return
	}
	phase := phaseIndex(r.phase)
	s.guesses.all[phase][r.grade].add(e.Right, e.Wrong, allMemory)
	r.trust[phase][r.grade].add(e.Right, e.Wrong, ownMemory)
}

// speculate adds rows of guessed tokens to the batch, which is complete otherwise.
func (s *Scheduler) speculate(b *batcher) {
	g := &s.guesses
	g.open = g.open[:0]
	value := 0.0 // of the step's tokens
	for i := range s.plan.Batch {
		sl, r := &s.plan.Batch[i], s.batch[i]
		if r == nil || sl.Kind != SliceDecode || sl.Row < 0 {
			continue
		}
		value += r.worth()
		switch {
		case !r.guesses:
		case r.offer == 0:
			s.decide(r, ReasonGuessNone)
		default:
			chance := s.chance(r)
			g.open = append(g.open, guessRow{i: i, chance: chance, value: mul(r.worth(), chance)})
		}
	}
	if len(g.open) == 0 {
		return
	}
	room := min(b.left, b.cells-b.unserved, maxGuessRows)
	why := ReasonGuessUnlikely
	switch {
	case s.promptsWait():
		why, room = ReasonGuessPrompts, 0
	case room <= 0:
		why = ReasonGuessRoom
	}
	limit := s.guessLimit(b)
	decode := s.cost.predict(b.load)
	step := mul(s.overhead.value, 1e-6) + decode
	added := 0
	vary, limited := g.same >= alike, room
	if vary && g.last > trialRows {
		room = min(room, g.last/2)
	}
	for added < room {
		best, row := -1, load{}
		rate := 0.0
		for k := range g.open {
			c := &g.open[k]
			if r := s.batch[c.i]; c.n < r.offer {
				l := s.withGuess(b, c)
				if v := c.value / max(s.cost.predict(l)-decode, 1e-6); v > rate {
					best, row, rate = k, l, v
				}
			}
		}
		if best < 0 || rate < mul(guessMargin, value/step) {
			break
		}
		if !s.guessFits(row, limit, added) {
			why = ReasonGuessTarget
			break
		}
		took := s.cost.predict(row)
		step += took - decode
		decode = took
		value += g.open[best].value
		s.addGuess(b, &g.open[best], row)
		added++
	}
	taken := ReasonGuess
	switch {
	case added == 0 && why == ReasonGuessUnlikely && s.trialDue():
		added, taken = s.guessTrial(b, 0, min(limited, trialRows), limit), ReasonGuessTrial
		g.trial = added > 0
	case vary && added > 0 && added == g.last:
		added = s.guessTrial(b, added, min(limited, added+trialRows), limit)
	}
	if added > 0 {
		if g.same++; added != g.last {
			g.last, g.same = added, 0
		}
	}
	for k := range g.open {
		c := &g.open[k]
		r := s.batch[c.i]
		if c.n == 0 {
			s.decide(r, why)
			continue
		}
		s.decide(r, taken)
		r.log.add(s.now, taken, c.n)
	}
	if added > 0 {
		s.renumber()
	}
}

// worth is what a token of r is worth.
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

// guessLimit is the time in milliseconds that the ITL targets of the batch's answers leave for the step, and the
// answers of other engines (EvLimit).
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
		t := time.Duration(r.itl)
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
	limit, plain := float64(left)/1e6-mul(s.overhead.value, 1e-6), s.cost.predict(b.load)
	if plain > limit { // where the tokens alone miss the target, fewer steps are all that helps
		return mul(infeasibleSlack, mul(plain, s.cost.ratio))
	}
	return limit
}

// guessFits reports whether a step with one row more than the added ones stays within limit. Up to one row more than
// steps have had before need not allow for what the cost model has not measured: it measures by them, and a row takes
// no longer than the step without it.
func (s *Scheduler) guessFits(row load, limit float64, added int) bool {
	if added <= s.guesses.most {
		return mul(s.cost.predict(row), s.cost.ratio) <= limit
	}
	return s.cost.upper(row) <= limit
}

// withGuess is the batch's load with one more row of c's request.
func (s *Scheduler) withGuess(b *batcher, c *guessRow) load {
	l, sl := b.load, &s.plan.Batch[c.i]
	l.slice(SliceDecode, sl.Start+sl.N, 1)
	return l
}

// addGuess gives c's request one more row.
func (s *Scheduler) addGuess(b *batcher, c *guessRow, row load) {
	sl := &s.plan.Batch[c.i]
	sl.N++
	sl.Guessed++
	s.plan.Tokens++
	s.plan.GuessedTokens++
	b.load = row
	b.left--
	b.cells--
	c.n++
	c.value = mul(c.value, c.chance)
}

// trialDue reports whether a good guess has not been worth its row in trialEvery steps.
func (s *Scheduler) trialDue() bool {
	g := &s.guesses
	for k := range g.open {
		if g.open[k].chance >= goodChance {
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
// It returns how many there are.
func (s *Scheduler) guessTrial(b *batcher, added, most int, limit float64) int {
	g := &s.guesses
	best := &g.open[0]
	for k := range g.open {
		if c := &g.open[k]; c.chance > best.chance {
			best = c
		}
	}
	for added < most && best.n < s.batch[best.i].offer {
		row := s.withGuess(b, best)
		if !s.guessFits(row, limit, added) {
			break
		}
		s.addGuess(b, best, row)
		added++
	}
	return added
}

// learnPrice is told how long the newest batch took. A trial that was cheaper than expected is repeated in the step
// after the next.
func (s *Scheduler) learnPrice(took time.Duration) {
	g, p := &s.guesses, &s.plan
	g.most = max(g.most, p.GuessedTokens)
	if g.trial && float64(took) < mul(trialCheap, float64(p.Predicted)) {
		g.every = trialFirst
		g.declined = g.every - 2
		s.cost.doubtRows(took)
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
	Why   Reason  // the newest decision; ReasonNone = there was none
	Since Instant // when the decisions for that reason began
	// Chance is how likely a guess of the newest grade comes true, in its phase.
	Chance float64
}

// Guessing returns the newest decision about a live request's guesses.
func (s *Scheduler) Guessing(id ReqID) (g Guessing, ok bool) {
	r := s.requests[id]
	if r == nil || !r.guesses {
		return g, false
	}
	return Guessing{Why: r.guessing, Since: r.guessSince, Chance: s.chance(r)}, true
}
