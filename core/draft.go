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
// One that guesses blocks (DraftConfig.Block) has one round, in which each row with logits is a guess.
//
// The head of a model (DraftConfig.States) is such an engine too. Each of its rows follows the state of the row before:
// a row of the model, whose states the caller keeps (KeepsStates), or its own row of the round before (Behind). It does
// not know a history from its begin on but from the first token whose state was kept. Its own rows behind the history
// are removed after the step, those that came true too: the next step computes them with the model's states.
//
// A head may have no cells and read the model's (DraftConfig.Shared). Then it knows each history whole: its rows are in
// the request's sequence of the model, all of them where the newest token will be, and leave nothing there.
//
// A request has a sequence of the draft model from the first of these steps on until it ends, is preempted, or another
// one needs the sequence or its cells. What the draft model has computed beyond what came true is removed before the
// next step (DraftRemove).

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
	// behind has for each row of the newest FillDraft what it follows; with DraftConfig.States
	behind []Behind
	keeps  bool // see KeepsStates
	off    bool // it has failed: nothing is asked of it any more
}

// Behind says which state a row of the head follows: that of Request's row at position At or, where Request is nil,
// that of row At of the batch before. Where At is negative the row is a guess of a block and follows none.
type Behind struct {
	Request *Request
	At      int
}

// keptStates are the rows of a request whose states are kept: those at positions [from, to).
type keptStates struct{ from, to int }

// draftSlot is a sequence of the draft model.
type draftSlot struct {
	r     *Request // nil: free
	first int      // token of r's history with which it begins; 0 but for a head
	n     int      // tokens of r's history up to the last one in it
	ahead int      // tokens that it guessed behind them
	at    uint64   // drafts.steps of its newest use

	// Of the newest step: tokens of r's history to compute, and then to guess; the row of its newest guess.
	feed, guesses, row int
}

// used returns the number of its cells.
func (sl *draftSlot) used() int { return sl.n - sl.first + sl.ahead }

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
	if c.cfg.Draft.States > 0 {
		begin, ok := c.headBegins(r)
		if !ok {
			return
		}
		lag -= begin
	}
	room := c.cfg.Draft.Cells - d.used
	if sl := c.slot(r); sl != nil {
		lag = len(r.Tokens) - sl.n
	} else {
		// takeSlot can take the sequences and cells of idle requests.
		taken := true
		for i := range d.slots {
			switch sl := &d.slots[i]; {
			case sl.r == nil:
				taken = false
			case c.idle(sl):
				taken = false
				room += sl.used()
			}
		}
		if taken {
			return
		}
	}
	if c.cfg.Draft.blocks() {
		most = min(most, c.cfg.Draft.Block)
	}
	if lag+c.cfg.Draft.ahead(most)+1 <= room || c.cfg.Draft.Shared {
		e.Draft, e.Lag = most, lag
	}
}

// headBegins returns the first token of r's history that the head can compute, and whether it can compute all from
// there on: not with images, whose rows have no tokens, nor with adapters, which it does not have. What it has of the
// history before a gap is removed.
func (c *Core) headBegins(r *Request) (begin int, ok bool) {
	k := &r.guess.states
	begin = k.from + 1
	if c.cfg.Draft.Shared { // the tokens before are in the model's cells
		begin = max(begin, len(r.Tokens)-1)
	}
	if len(r.Segments) > 0 || r.Mix > 0 || k.to < len(r.Tokens)-1 || begin >= len(r.Tokens) {
		return 0, false
	}
	if sl := c.slot(r); sl != nil && sl.n < begin {
		if used := sl.used(); used > 0 {
			c.op(Op{Kind: DraftRemove, Dst: Seq(r.guess.slot - 1), To: -1})
			c.drafts.used -= used
		}
		sl.first, sl.n, sl.ahead = begin, begin, 0
	}
	return begin, true
}

// KeepsStates reports whether the caller keeps the states of all rows of the newest Step's batch: the scheduler expects
// that a head is used soon (sched.Plan.States), and the batch decodes answers, or the end of a prompt, for which it may
// guess. Of a batch with several mixes of adapters the engine has not all.
func (c *Core) KeepsStates() bool { return c.drafts.keeps }

// wantStates decides KeepsStates.
func (c *Core) wantStates() {
	d := &c.drafts
	d.keeps = false
	if !c.plan.States || d.off {
		return
	}
	mixes := [2]uint8{0: 255} // the least and the largest
	for i := range c.plan.Batch {
		s := &c.plan.Batch[i]
		r := c.requests[s.Req]
		for _, at := range [...]int{s.Start, s.Start + s.N - 1} {
			mix := r.Mix
			if at < r.MixFrom {
				mix = 0
			}
			mixes = [...]uint8{min(mixes[0], mix), max(mixes[1], mix)}
		}
		d.keeps = d.keeps || s.Kind != sched.SliceProbe && s.Row >= 0 && r.guess.most > 0
	}
	d.keeps = d.keeps && mixes[0] == mixes[1]
}

// stated notes which states of r the slice s has left.
func (c *Core) stated(r *Request, s *sched.Slice) {
	if c.cfg.Draft.States == 0 {
		return
	}
	k := &r.guess.states
	switch {
	case !c.drafts.keeps:
		*k = keptStates{}
		return
	case s.Start < k.from || s.Start > k.to:
		k.from = s.Start
	}
	k.to = s.Start + s.N
	k.from = max(k.from, k.to-c.cfg.Draft.States)
}

// Behind returns what each row of the newest FillDraft follows, with DraftConfig.States.
func (c *Core) Behind() []Behind { return c.drafts.behind }

func (c *Core) idle(sl *draftSlot) bool { return sl.at+draftIdle < c.drafts.steps }

// settleDraft keeps the cells of r's draft guesses that came true and removes the others.
func (c *Core) settleDraft(r *Request) {
	sl, g := c.slot(r), &r.guess.draft
	if sl == nil || sl.ahead == 0 {
		return
	}
	keep := 0
	if g.from == sl.n && c.cfg.Draft.States == 0 {
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
	if sl.used() > 0 {
		c.op(Op{Kind: DraftRemove, Dst: Seq(i), To: -1})
	}
	c.drafts.used -= sl.used()
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
		cells := s.Feed + c.cfg.Draft.ahead(s.Guessed)
		if c.cfg.Draft.Shared {
			if cells = 0; s.Start != len(r.Tokens)-1 {
				continue // the newest token is not the next one that the model computes
			}
		}
		most := c.cfg.Draft.Cells - reserved - cells
		if r.guess.slot == 0 && !c.takeSlot(r, most) || d.used > most || d.off {
			continue
		}
		sl := c.slot(r)
		if sl.feed = min(s.Feed, len(r.Tokens)-sl.n); s.Drafted && sl.n+sl.feed == len(r.Tokens) && sl.feed > 0 {
			sl.guesses = s.Guessed
		}
		reserved += cells
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
			if sl := &d.slots[free]; c.cfg.Draft.Shared {
				sl.first, sl.n = len(r.Tokens)-1, len(r.Tokens)-1
			} else if c.cfg.Draft.States > 0 {
				sl.first = r.guess.states.from + 1
				sl.n = sl.first
			}
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
	d.rows, d.behind = d.rows[:0], d.behind[:0]
	for i := range d.slots {
		sl := &d.slots[i]
		switch r := sl.r; {
		case d.round == 0 && sl.feed > 0:
			for p := sl.n; p < sl.n+sl.feed; p++ {
				c.follow(Behind{r, p - 1})
				sl.row = b.Add(c.draftToken(r.Tokens[p]), runtime.Pos(p), c.draftSeq(i),
					sl.guesses > 0 && p == len(r.Tokens)-1 && !c.cfg.Draft.blocks())
			}
			for k := range c.blockOf(sl) {
				c.follow(Behind{At: -1})
				b.Add(0, runtime.Pos(len(r.Tokens)+k), Seq(i), true)
			}
		case d.round > 0 && d.round < sl.guesses && !c.cfg.Draft.blocks():
			c.follow(Behind{At: sl.row})
			at := sl.n + d.round - 1
			if c.cfg.Draft.Shared {
				at = sl.n
			}
			sl.row = b.Add(c.draftToken(r.guess.draft.tokens[d.round-1]), runtime.Pos(at), c.draftSeq(i), true)
		default:
			continue
		}
		if sl.guesses > 0 {
			d.rows = append(d.rows, sl)
		}
	}
	return b.Len() > 0
}

// blockOf returns the number of rows that the guesses of sl take at once, behind the history.
func (c *Core) blockOf(sl *draftSlot) int {
	if sl.guesses == 0 || !c.cfg.Draft.blocks() {
		return 0
	}
	return c.cfg.Draft.Block
}

// follow notes what the next row of FillDraft follows.
func (c *Core) follow(b Behind) {
	if c.cfg.Draft.States > 0 {
		c.drafts.behind = append(c.drafts.behind, b)
	}
}

// draftToken returns t, or token 0 if the draft model does not have it.
func (c *Core) draftToken(t Token) Token {
	if t < 0 || int(t) >= c.cfg.Draft.Tokens {
		return 0
	}
	return t
}

// Drafted takes the duration of the newest FillDraft's batch, and the most probable token of each of its rows with
// logits, in their order. A head that reads the model's cells may find no room for its rows beside them; then there are
// no tokens, and no further rounds.
func (c *Core) Drafted(took time.Duration, tokens []Token) {
	d := &c.drafts
	c.cfg.Trace.drafted(took, tokens)
	each := max(1, c.cfg.Draft.Block)
	if c.cfg.Draft.Shared {
		c.draftedShared(took, tokens)
		return
	}
	if len(tokens) != len(d.rows)*each {
		panic(fmt.Sprintf("core: the draft model guessed %d tokens in a round of %d", len(tokens), len(d.rows)*each))
	}
	d.took += took
	for i := range d.slots {
		switch sl := &d.slots[i]; {
		case d.round == 0:
			sl.n += sl.feed
			sl.ahead += c.blockOf(sl) // one that takes no part may have rows that are not settled
			d.used += sl.feed + c.blockOf(sl)
		case d.round < sl.guesses:
			sl.ahead++
			d.used++
		}
	}
	for i, sl := range d.rows {
		g := &sl.r.guess.draft
		for k := range min(each, sl.guesses-d.round) { // more of a block are not computed
			g.tokens[d.round+k] = c.draftToken(tokens[i*each+k])
			g.n = d.round + k + 1
		}
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
		if used += sl.used(); sl.r != nil && (sl.r.guess.slot != i+1 || sl.n > len(sl.r.Tokens) || sl.r.ended) {
			panic(fmt.Sprintf("core: sequence %d of the draft model has %d tokens of request %d, which has %d and "+
				"sequence %d", i, sl.n, sl.r.ID, len(sl.r.Tokens), sl.r.guess.slot-1))
		}
	}
	if used != d.used || used > c.cfg.Draft.Cells {
		panic(fmt.Sprintf("core: the draft model holds %d cells, %d are counted, there are %d", used, d.used,
			c.cfg.Draft.Cells))
	}
}

// draftSeq returns the sequence of the draft model's rows for slot i.
func (c *Core) draftSeq(i int) Seq {
	if c.cfg.Draft.Shared {
		return c.drafts.slots[i].r.seq
	}
	return Seq(i)
}

// draftedShared is Drafted of a head that has no cells.
func (c *Core) draftedShared(took time.Duration, tokens []Token) {
	d := &c.drafts
	if len(tokens) != len(d.rows) && len(tokens) > 0 {
		panic(fmt.Sprintf("core: the head guessed %d tokens in a round of %d", len(tokens), len(d.rows)))
	}
	d.took += took
	for i, sl := range d.rows {
		if len(tokens) == 0 {
			sl.guesses = d.round
			continue
		}
		g := &sl.r.guess.draft
		g.tokens[d.round] = c.draftToken(tokens[i])
		g.n = d.round + 1
	}
	d.round++
}
