package core

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// A draft model is a second engine with cells and sequences for guesses alone. The scheduler decides in each step for
// which requests it computes tokens of the history (Slice.Feed) and guesses the next ones (Slice.Drafted); before the
// batch is filled the caller carries that out in rounds:
//
//	for c.FillDraft(batch) {
//		decode batch, take the most probable token of each row that has logits
//		c.Drafted(took, tokens)
//	}
//
// A request has a sequence of the draft model from the first of these steps on until it ends, is preempted, or another
// one needs the sequence or its cells. What the draft model has computed beyond what came true is removed before the
// next step (DraftRemove).

// DraftConfig describes the draft model's engine. The zero value means that there is none.
type DraftConfig struct {
	Sequences int // its ids are 0 … Sequences-1
	Cells     int // KV cells of all
	Batch     int // most tokens of one Decode
	// Tokens is the number of token ids, from 0 on, that both vocabularies share. The draft model reads other tokens as
	// token 0, and never guesses them.
	Tokens int
	Cost   float64 // see sched.Config.DraftCost
}

// Validate returns an error that names the first field out of range.
func (d *DraftConfig) Validate() error {
	if *d == (DraftConfig{}) {
		return nil
	}
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"sequences", d.Sequences, 1, MaxSequences}, {"cells", d.Cells, 1, 1 << 30}, {"batch", d.Batch, 1, 1 << 24},
		{"tokens", d.Tokens, 1, 1 << 30},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("core: draft model: %s = %d: must be %d…%d", f.name, f.v, f.lo, f.hi)
		}
	}
	return nil
}

// draftIdle is the number of steps without use after which a request may lose its sequence of the draft model to
// another one.
const draftIdle = 32

// drafts is the draft model's memory and its part of the newest step.
type drafts struct {
	slots []draftSlot   // by sequence
	used  int           // cells. Invariant: Σ slots' n + ahead ≤ DraftConfig.Cells
	steps uint64        // with a batch
	round int           // of the newest step: rounds carried out
	took  time.Duration // by them
	rows  []*draftSlot  // those whose guess is a row of the newest FillDraft
	off   bool          // it has failed: nothing is asked of it any more
}

// draftSlot is a sequence of the draft model.
type draftSlot struct {
	r     *Request // nil: free
	n     int      // tokens of r's history in it, from the first on
	ahead int      // tokens that it guessed behind them
	at    uint64   // drafts.steps of its newest use

	// Of the newest step: tokens of r's history to compute, and then to guess.
	feed, guesses int
}

// slot returns r's sequence of the draft model, nil when it has none.
func (c *Core) slot(r *Request) *draftSlot {
	if r.guess.slot == 0 {
		return nil
	}
	return &c.drafts.slots[r.guess.slot-1]
}

// offerDraft sets e.Draft, the number of tokens that the draft model can guess behind r's newest token, and e.Lag. It
// offers none where no sequence or no cells could be found for r.
func (c *Core) offerDraft(r *Request, e *sched.EvToken, most int) {
	d := &c.drafts
	if d.off || len(d.slots) == 0 {
		return
	}
	lag := len(r.Tokens)
	room := c.cfg.Draft.Cells - d.used
	if sl := c.slot(r); sl != nil {
		lag -= sl.n
	} else {
		// takeSlot can take the sequences and cells of idle requests.
		taken := true
		for i := range d.slots {
			switch sl := &d.slots[i]; {
			case sl.r == nil:
				taken = false
			case c.idle(sl):
				taken = false
				room += sl.n + sl.ahead
			}
		}
		if taken {
			return
		}
	}
	if lag+most <= room {
		e.Draft, e.Lag = most, lag
	}
}

func (c *Core) idle(sl *draftSlot) bool { return sl.at+draftIdle < c.drafts.steps }

// settleDraft keeps the cells of r's draft guesses that came true and removes the others.
func (c *Core) settleDraft(r *Request) {
	sl, g := c.slot(r), &r.guess.draft
	if sl == nil || sl.ahead == 0 {
		return
	}
	keep := 0
	if g.from == sl.n {
		keep = min(g.right, sl.ahead, len(r.Tokens)-1-sl.n) // the newest token's row is the next guess
	}
	if keep < sl.ahead {
		c.op(Op{Kind: DraftRemove, Dst: Seq(r.guess.slot - 1), From: sl.n + keep, To: -1})
	}
	c.drafts.used -= sl.ahead - keep
	sl.n += keep
	sl.ahead = 0
}

// dropDraft gives up r's sequence of the draft model.
func (c *Core) dropDraft(r *Request) {
	if sl := c.slot(r); sl != nil {
		c.freeSlot(r.guess.slot - 1)
	}
}

func (c *Core) freeSlot(i int) {
	sl := &c.drafts.slots[i]
	if sl.n+sl.ahead > 0 {
		c.op(Op{Kind: DraftRemove, Dst: Seq(i), To: -1})
	}
	c.drafts.used -= sl.n + sl.ahead
	sl.r.guess.slot = 0
	*sl = draftSlot{}
}

// placeDrafts gives a draft sequence and cells to each request of the batch for which the draft model is to compute. A
// request that finds none left is computed without a draft in this step.
func (c *Core) placeDrafts() {
	d := &c.drafts
	d.round, d.took = 0, 0
	if len(d.slots) == 0 {
		return
	}
	d.steps++
	for i := range d.slots {
		d.slots[i].feed, d.slots[i].guesses = 0, 0
	}
	for i := range c.plan.Batch {
		if s := &c.plan.Batch[i]; s.Feed > 0 {
			if sl := c.slot(c.requests[s.Req]); sl != nil {
				sl.at = d.steps // it is not idle
			}
		}
	}
	reserved := 0
	for i := range c.plan.Batch {
		s := &c.plan.Batch[i]
		if s.Feed == 0 {
			continue
		}
		r := c.requests[s.Req]
		r.guess.draft.begin(len(r.Tokens))
		most := c.cfg.Draft.Cells - reserved - s.Feed - max(0, s.Guessed-1)
		if r.guess.slot == 0 && !c.takeSlot(r, most) || d.used > most || d.off {
			continue
		}
		sl := c.slot(r)
		if sl.feed = min(s.Feed, len(r.Tokens)-sl.n); s.Drafted && sl.n+sl.feed == len(r.Tokens) && sl.feed > 0 {
			sl.guesses = s.Guessed
		}
		reserved += s.Feed + max(0, s.Guessed-1)
	}
}

// takeSlot gives r a sequence of the draft model, if need be those of idle requests, so that at most so many cells are
// in use.
func (c *Core) takeSlot(r *Request, most int) bool {
	d := &c.drafts
	for {
		free, oldest := -1, -1
		for i := range d.slots {
			switch sl := &d.slots[i]; {
			case sl.r == nil && free < 0:
				free = i
			case sl.r == nil:
			case c.idle(sl) && (oldest < 0 || sl.at < d.slots[oldest].at):
				oldest = i
			}
		}
		if free >= 0 && d.used <= most {
			d.slots[free] = draftSlot{r: r, at: d.steps}
			r.guess.slot = free + 1
			return true
		}
		if oldest < 0 {
			return false
		}
		c.freeSlot(oldest)
	}
}

// FillDraft writes what the draft model computes next in the newest Step to its batch, and reports whether there is
// anything. Answer with Drafted or DraftFailed.
func (c *Core) FillDraft(b *runtime.Batch) bool {
	d := &c.drafts
	b.Reset()
	d.rows = d.rows[:0]
	for i := range d.slots {
		sl := &d.slots[i]
		switch r := sl.r; {
		case d.round == 0 && sl.feed > 0:
			for p := sl.n; p < sl.n+sl.feed; p++ {
				b.Add(c.draftToken(r.Tokens[p]), runtime.Pos(p), Seq(i), sl.guesses > 0 && p == len(r.Tokens)-1)
			}
		case d.round > 0 && d.round < sl.guesses:
			b.Add(c.draftToken(r.guess.draft.tokens[d.round-1]), runtime.Pos(sl.n+d.round-1), Seq(i), true)
		default:
			continue
		}
		if sl.guesses > 0 {
			d.rows = append(d.rows, sl)
		}
	}
	return b.Len() > 0
}

// draftToken returns t, or token 0 if the draft model does not have it.
func (c *Core) draftToken(t Token) Token {
	if t < 0 || int(t) >= c.cfg.Draft.Tokens {
		return 0
	}
	return t
}

// Drafted takes the duration of the newest FillDraft's batch, and the most probable token of each of its rows with
// logits, in their order.
func (c *Core) Drafted(took time.Duration, tokens []Token) {
	d := &c.drafts
	c.cfg.Trace.drafted(took, tokens)
	if len(tokens) != len(d.rows) {
		panic(fmt.Sprintf("core: the draft model guessed %d tokens in a round of %d", len(tokens), len(d.rows)))
	}
	d.took += took
	for i := range d.slots {
		switch sl := &d.slots[i]; {
		case d.round == 0:
			sl.n += sl.feed
			d.used += sl.feed
		case d.round < sl.guesses:
			sl.ahead++
			d.used++
		}
	}
	for i, sl := range d.rows {
		g, tok := &sl.r.guess.draft, tokens[i]
		if tok < 0 || int(tok) >= c.cfg.Draft.Tokens {
			tok = 0
		}
		g.tokens[d.round] = tok
		g.n = d.round + 1
	}
	d.round++
	if invariants.Enabled {
		c.checkDrafts()
	}
}

// DraftFailed reports that the newest FillDraft's batch could not be decoded. The draft model is not used again, and
// answers continue without it.
func (c *Core) DraftFailed() {
	c.cfg.Trace.numbers("draft_failed")
	d := &c.drafts
	d.off, d.took = true, 0
	for i := range d.slots {
		sl := &d.slots[i]
		if sl.r == nil {
			continue
		}
		// The failed batch may be in its cells in part.
		c.op(Op{Kind: DraftRemove, Dst: Seq(i), To: -1})
		sl.r.guess.slot = 0
		*sl = draftSlot{}
	}
	d.used = 0
}

// checkDrafts panics when an invariant of the draft model's memory does not hold.
func (c *Core) checkDrafts() {
	d := &c.drafts
	used := 0
	for i := range d.slots {
		sl := &d.slots[i]
		if used += sl.n + sl.ahead; sl.r != nil && (sl.r.guess.slot != i+1 || sl.n > len(sl.r.Tokens) || sl.r.ended) {
			panic(fmt.Sprintf("core: sequence %d of the draft model has %d tokens of request %d, which has %d and "+
				"sequence %d", i, sl.n, sl.r.ID, len(sl.r.Tokens), sl.r.guess.slot-1))
		}
	}
	if used != d.used || used > c.cfg.Draft.Cells {
		panic(fmt.Sprintf("core: the draft model holds %d cells, %d are counted, there are %d", used, d.used,
			c.cfg.Draft.Cells))
	}
}
