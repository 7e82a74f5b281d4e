package guess

import (
	"math"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// MaxRows is the most rows of guesses in a step.
const MaxRows = 64

const (
	// margin is the yield that a row needs, relative to the rest of the step: the price is an estimate.
	margin = 1.05
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

// Config describes the engine and the draft model to a Chooser. The fields are those of sched.Config.
type Config struct {
	Rereads    bool
	DraftBatch int
	DraftBlock int
	DraftCost  float64
	States     bool // DraftStates
	All        bool // AllGuesses
}

// Chooser chooses the guesses of each step, and learns from those that were made.
type Chooser struct {
	Draft Drafts

	cfg   Config
	all   trust
	block places  // of the draft model's guesses, where it makes several at once
	alone bool    // the step has one slice
	value float64 // of the step's tokens without guesses
	able  int     // answers in the step that may have guesses, offered or not
	open  []Row   // those that have some
	shut  []Row   // those that have none

	declined int  // steps with good guesses that seemed not to pay, since the last trial
	trial    bool // the newest batch is a trial
	every    int  // steps until the next trial, doubling from trialFirst to trialEvery
	added    int  // guesses of the newest step
	most     int  // the most guesses that a step has had
	last     int  // guesses of the newest step with some
	same     int  // steps with some in a row that had as many
}

// Request is the record of one request's guesses.
type Request struct {
	Able bool // something guesses what follows its history: Add has it, not Plain
	// Offer is the number of tokens behind its history that the caller can guess, 0 = none, and Grade theirs.
	Offer, Grade int
	// Draft is the number of those that the draft model can guess, 0 once it has, and Lag what it lacks of the history.
	Draft, Lag int
	Guessed    int  // guesses in the newest batch
	Drafted    bool // they are the draft model's

	saved   float64 // ms that its guesses would have saved if it had known the history
	futile  uint8   // times that the draft model has caught up since its newest guess for it
	feeding bool    // the draft model computes what it lacks
	trying  bool    // and then makes a trial
	trust   trust   // how often guesses come true for it
}

// Leave forgets what can be guessed: the request has given up its cells. How often guesses came true is kept.
func (r *Request) Leave() {
	r.Offer, r.Draft, r.Lag, r.Guessed = 0, 0, 0, 0
	r.saved, r.futile, r.feeding, r.trying = 0, 0, false, false
}

// News comes with a token; the fields are those of sched.EvToken.
type News struct {
	Right      int
	Wrong      bool
	DraftRight int
	DraftWrong bool

	Offer, Grade, Draft, Lag int
}

// Token takes what came of r's newest guesses, and what can be guessed now. thinking says what r has generated.
func (c *Chooser) Token(r *Request, thinking bool, n News) {
	learn := func(grade, right int, wrong bool, own float64) {
		if right > 0 || wrong {
			c.all.of(thinking, grade).add(right, wrong, allMemory)
			r.trust.of(thinking, grade).add(right, wrong, own)
		}
	}
	learn(r.Grade, n.Right, n.Wrong, ownMemory)
	learn(DraftGrade, n.DraftRight, n.DraftWrong, draftMemory)
	if c.cfg.DraftBatch > 0 && n.DraftRight == 0 && !n.DraftWrong {
		r.trust.of(thinking, DraftGrade).fade(draftMemory)
	}
	c.block.learn(n.DraftRight, n.DraftWrong)
	if n.DraftRight > 0 {
		c.Draft.cameTrue(n.DraftRight)
	}
	if n.Lag > r.Lag+MaxRows {
		r.feeding = false // the draft model has lost the history
	}
	r.Offer, r.Grade, r.Draft, r.Lag, r.Guessed = n.Offer, n.Grade, n.Draft, n.Lag, 0
}

// Row is an answer whose next token is in the step, and the decision about its guesses.
type Row struct {
	*Request
	Slice    int // its index in the batch
	Start, N int // its slice: N tokens from position Start on, to the end of its history
	Thinking bool
	Worth    float64 // of one of its tokens

	Guesses int           // rows that it gets for them
	Feed    int           // tokens of the history that the draft model computes before Decode
	Why     reason.Reason // None = that of the step

	chance  float64 // of each guess, given those before it; see comes
	sure    float64 // chance that all rows so far come true
	next    float64 // value of the next guess: its worth times the chance that it and those before it come true
	drafted bool    // the guesses are the draft model's
	forced  int     // rows that it gets as a trial of the draft model
	take    bool    // it is in the round that draftRound has found
}

// ByDraft reports whether the guesses that the row gets are the draft model's.
func (r *Row) ByDraft() bool { return r.drafted && r.Guesses > 0 }

// end is the position of the next guess.
func (r *Row) end() int { return r.Start + r.N + r.Guesses }

// history is the number of tokens up to the one that is computed.
func (r *Row) history() int { return r.Start + r.N }

// Step is the step to which rows of guesses are added. Times are in milliseconds.
type Step struct {
	Model    *cost.Model
	Load     cost.Load // of the batch; Choose adds the guesses
	Room     int       // rows that it can have at most
	Limit    float64   // time that Decode and the draft model may take together
	Overhead float64   // time between two steps
	Prompts  bool      // prompts wait

	value float64 // of its tokens, the guesses' chances included
	took  float64 // its time, with what lies between two steps
}

// fast returns the yield in tokens per millisecond from which on a further row pays.
func (p *Step) fast() float64 { return mul(margin, p.value/p.took) }

// New returns a Chooser for steps with so many requests at most.
func New(running int, cfg Config) Chooser {
	return Chooser{cfg: cfg, Draft: newDrafts(), open: make([]Row, 0, running), shut: make([]Row, 0, running)}
}

// Begin begins a step; alone says that it has one slice.
func (c *Chooser) Begin(alone bool) {
	c.alone, c.value, c.able, c.added = alone, 0, 0, 0
	c.open, c.shut = c.open[:0], c.shut[:0]
	d := &c.Draft
	d.Load, d.depth, d.trial.in, d.trial.waits = cost.Load{}, 0, false, false
}

// Plain tells of an answer whose next token is in the step and for which nothing guesses. Its token is worth so much.
func (c *Chooser) Plain(worth float64) { c.value += worth }

// Add tells of any other answer whose next token is in the step. It returns why none of its tokens is guessed; None =
// Choose decides.
func (c *Chooser) Add(row Row) reason.Reason {
	c.value += row.Worth
	c.able++
	switch {
	case row.Offer == 0 && row.Draft == 0:
		c.shut = append(c.shut, row)
		return reason.DraftNone
	case c.cfg.Rereads && (!c.alone || row.N > 1): // rule 5
		c.shut = append(c.shut, row)
		return reason.DraftState
	}
	c.open = append(c.open, c.appraised(row))
	return reason.None
}

// appraised returns the row with what its guesses are worth (rule 1).
func (c *Chooser) appraised(row Row) Row {
	row.sure, row.chance = 1, c.sureChance(&row, row.Grade)
	row.next = mul(row.Worth, row.chance)
	return row
}

// Wanted reports whether there is something to choose.
func (c *Chooser) Wanted() bool { return len(c.open) > 0 || c.cfg.States }

// Rows returns the answers that may have guesses, with what was decided for each.
func (c *Chooser) Rows() []Row { return c.open }

// Choose chooses the guesses of the step. It reports whether the caller keeps the states of its rows for a head.
func (c *Chooser) Choose(p *Step) (states bool) {
	d := &c.Draft
	p.value = c.value
	p.Room = min(p.Room, MaxRows)
	why := reason.DraftUnlikely
	// These bound the step before any price is compared.
	switch {
	case p.Prompts: // rule 4
		why, p.Room = reason.DraftPrompts, 0
	case p.Room <= 0:
		why = reason.DraftRoom
	}
	if c.cfg.All {
		p.Limit = math.Inf(1)
	}
	plain := p.Model.Predict(p.Load)
	p.took = p.Overhead + plain
	if c.cfg.DraftBatch > 0 && d.Cost.Steps() == 0 {
		d.Cost.Assume(p.Model, c.cfg.DraftCost)
	}
	if p.Room > 0 && c.cfg.DraftBatch > 0 {
		c.chooseDrafts(p)
	}
	if c.cfg.States {
		states = c.chooseStates(p)
	}
	if len(c.open) == 0 {
		return states
	}
	vary, room := c.same >= alike && !c.cfg.All, p.Room
	if vary && c.last > trialRows {
		p.Room = min(p.Room, c.last/2)
	}
	if !c.addGuesses(p) {
		why = reason.DraftTarget
	}
	taken := reason.Draft
	switch p.Room = room; {
	// Only where the price of the rows was the reason: a trial cannot make room or time.
	case c.added == 0 && why == reason.DraftUnlikely && c.trialDue():
		c.try(p, trialRows)
		taken, c.trial = reason.DraftTrial, c.added > 0
	case vary && c.added > 0 && c.added == c.last:
		c.try(p, c.added+trialRows)
	}
	switch {
	case c.added > 0 && c.added != c.last:
		c.last, c.same = c.added, 0
	case c.added > 0:
		c.same++
	case vary: // half as many do not pay
		c.same = 0
	}
	c.feedDrafts(p)
	for k := range c.open {
		row := &c.open[k]
		switch {
		case row.Guesses == 0:
			if row.Why == reason.None {
				row.Why = why
			}
		case row.drafted:
			row.Feed, row.futile = row.Lag, 0
			if row.Why = reason.DraftModel; row.forced > 0 {
				row.Why = reason.DraftModelTrial
				d.trial.in, d.trial.plain = true, plain
			}
		default:
			row.Why = taken
		}
	}
	return states
}

// addGuesses adds the rows that pay, the best first (rules 1 to 3). It returns false when the next one would exceed the
// limit.
func (c *Chooser) addGuesses(p *Step) bool {
	for c.added < p.Room {
		var best *Row
		rate := 0.0
		for k := range c.open {
			if row := &c.open[k]; row.Guesses < c.offered(row) {
				if v := row.next / max(mul(p.Model.Another(row.end()), c.again(row)), 1e-6); v > rate {
					best, rate = row, v
				}
			}
		}
		// A forced round is a trial of the draft model: it is made although it seems not to pay.
		if round := c.draftRound(p); round.rows > 0 && (round.rate >= rate || round.forced) {
			if !c.fits(round.batch, round.draft, round.rows, p) {
				return false
			}
			c.addRound(p, &round)
			continue
		}
		if best == nil || rate < p.fast() && !c.cfg.All {
			break
		}
		load := with(p.Load, best)
		if !c.fits(load, c.Draft.Load, 1, p) {
			return false
		}
		c.add(best, load, p)
	}
	return true
}

// again returns the number of rows that the next guess of a row is expected to take: its own and, with Config.Rereads,
// those of the tokens that are computed again if it is the first wrong one, the history's last token among them.
func (c *Chooser) again(row *Row) float64 {
	if !c.cfg.Rereads {
		return 1
	}
	return 1 + mul(mul(row.sure, 1-c.comes(row, row.Guesses)), float64(row.Guesses+1))
}

// fits reports whether a step that computes batch, with rows more than so far, behind the draft model's work stays
// within the time that is left. Up to one row more than steps have had before need not allow for what the cost model
// has not measured: it measures by them, and a row takes no longer than the step without it.
func (c *Chooser) fits(batch, draft cost.Load, rows int, p *Step) bool {
	left := p.Limit - c.Draft.upper(draft)
	if c.added+rows-1 <= c.most {
		return mul(p.Model.Predict(batch), p.Model.Margin()) <= left
	}
	return p.Model.Upper(batch) <= left
}

// with returns a batch's load with one more guess of a row's request.
func with(l cost.Load, row *Row) cost.Load {
	l.ExtendRows(row.end(), 1)
	return l
}

// add gives a request one more row, with which the batch's load is load.
func (c *Chooser) add(row *Row, load cost.Load, p *Step) {
	p.took += mul(p.Model.Predict(load)-p.Model.Predict(p.Load), c.again(row))
	p.value += row.next
	p.Load = load
	c.added++
	c.taken(row)
}

// taken counts one more guess of a row.
func (c *Chooser) taken(row *Row) {
	row.sure = mul(row.sure, c.comes(row, row.Guesses))
	row.Guesses++
	row.next = mul(row.next, c.comes(row, row.Guesses))
}

// offered returns the number of a row's guesses that are there for the taking: those of its text, or of the block that
// the draft model makes in this step. A trial's are taken with the block.
func (c *Chooser) offered(row *Row) int {
	switch {
	case !row.drafted:
		return row.Offer
	case c.blocks() && row.Guesses > 0 && row.forced == 0:
		return row.Draft
	}
	return 0
}

// trialDue reports whether a good guess has not been worth its row in trialEvery steps.
func (c *Chooser) trialDue() bool {
	for k := range c.open {
		if row := &c.open[k]; !row.drafted && row.Offer > 0 && row.chance >= goodChance {
			c.declined++
			break
		}
	}
	if c.declined < max(c.every, trialFirst) {
		return false
	}
	// While trials are as dear as expected they become rare.
	c.declined, c.every = 0, min(2*max(c.every, trialFirst), trialEvery)
	return true
}

// try adds rows to those that the step has until it has most, for the request whose guesses are the likeliest.
func (c *Chooser) try(p *Step, most int) {
	var best *Row
	for k := range c.open {
		if row := &c.open[k]; !row.drafted && row.Offer > 0 && (best == nil || row.chance > best.chance) {
			best = row
		}
	}
	for best != nil && c.added < min(most, p.Room) && best.Guesses < best.Offer {
		load := with(p.Load, best)
		if !c.fits(load, c.Draft.Load, 1, p) {
			break
		}
		c.add(best, load, p)
	}
}

// Trial reports whether the newest step is a trial: its unusual shape says nothing about the machine's speed.
func (c *Chooser) Trial() bool { return c.trial }

// Learn compares the time of the newest step, which the model has learned, with its prediction. A trial that was
// cheaper than expected is repeated in the step after the next.
func (c *Chooser) Learn(m *cost.Model, took, drafting, predicted time.Duration) {
	c.Draft.settle(took, drafting, predicted)
	c.most = max(c.most, c.added)
	if c.trial && float64(took) < mul(trialCheap, float64(predicted)) {
		c.every = trialFirst
		c.declined = c.every - 2
		m.DoubtRows(took)
	}
	c.trial = false
}
