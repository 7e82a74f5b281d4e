package core

import (
	"math/bits"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/spec"
)

// Speculation. After each token core guesses the next ones of a request, and the scheduler decides how many of them the
// next step computes (Slice.Guessed). Each has a logits row. The caller draws from the first row as always; when the
// token is the guessed one, the row behind it is the request's next (Request.NextRow), and so on. So each token is
// drawn from the row, and with the state of the sampling chain, that it would have been drawn from without speculation.
// The cells of guesses that were wrong are removed before the next step.
//
// A state (Config.Seals) cannot give up what it has read. There the request's sequence is copied before the step, and
// after a wrong guess the copy takes its place: what the step has computed right is computed again with the next token
// (EvToken.Again). The copy costs nothing where the two share a state until one of them writes. Only a request that is
// alone in its step has guesses: the engine computes rows of several sequences in several passes, unless each has as
// many.

// MaxGuess is the limit on guessed tokens of one request in a step.
const MaxGuess = 16

const (
	// indexStep is the number of prompt tokens that are indexed per generated token: some 20 µs.
	indexStep = 4096
	// indexAhead is the room of an index for generated tokens, beside the prompt. A longer text drops its oldest tokens
	// from the index.
	indexAhead = 2048
	// Indexes of all requests take maxIndexBytes at most; requests beyond that are guessed from other texts only.
	maxIndexBytes = 64 << 20
	// spareIndexes is the number of indexes of ended requests that are kept for reuse.
	spareIndexes = 8
)

// guess is the state of speculation for one request: the tokens guessed to follow its history, and their outcome.
type guess struct {
	most   int     // tokens of a guess; 0 = none is made
	text   guessed // from a text
	grade  int
	source spec.Source
	draft  guessed // from the draft model, if the newest step has computed its guesses

	// Of the newest step, until the next one.
	rows     int // guesses in it
	drafted  bool
	base     int // tokens of the history that were computed with it
	kept     int // guesses that came true and whose rows were used. Invariant: kept ≤ rows
	thinking bool
	next     int // see NextRow

	index *spec.Index
	other Seq // the sequence that the newest guess from another text came from; NoSeq = none
	tried bool
	slot  int // its sequence of the draft model, plus one; 0 = it has none
	// the states that a head can follow
	states keptStates
	head   bool // what guesses for it is a head
	Guesses
}

// guessed are tokens that may follow a history, and what has become of them.
type guessed struct {
	tokens [MaxGuess]Token
	n      int  // of tokens; 0 = there is no guess
	from   int  // index in Request.Tokens of the first one
	right  int  // of tokens: those that came true, from the first on. Invariant: right ≤ n
	wrong  bool // the one behind those was compared, and was another
}

// begin forgets the tokens; the next ones follow a history of so many.
func (g *guessed) begin(from int) { g.n, g.from, g.right, g.wrong = 0, from, 0, false }

// compare compares the newest token of a history with the guess.
func (g *guessed) compare(tokens []Token) {
	switch at := len(tokens) - 1; {
	case g.wrong || g.right == g.n || at != g.from+g.right:
	case g.tokens[g.right] == tokens[at]:
		g.right++
	default:
		g.wrong = true
	}
}

// inStep returns the guesses whose rows are in the newest step.
func (g *guess) inStep() *guessed {
	if g.drafted {
		return &g.draft
	}
	return &g.text
}

// tokens returns the draft model's guesses, or those from a text.
func (g *guess) tokens(drafted bool) *[MaxGuess]Token {
	if drafted {
		return &g.draft.tokens
	}
	return &g.text.tokens
}

// stepSource returns the source of the guesses that inStep returns.
func (g *guess) stepSource() spec.Source {
	switch {
	case g.drafted && g.head:
		return spec.Head
	case g.drafted:
		return spec.Draft
	}
	return g.source
}

// Guesses counts the guessed tokens of a request that were computed, and those of them that came true.
type Guesses struct {
	Drafted, Accepted [2]GuessCount // [0] answering, [1] thinking
}

// GuessCount counts by source.
type GuessCount [spec.NumSources]int

// Guesses returns the request's counts, those of the newest step included.
func (r *Request) Guesses() Guesses {
	g := r.guess.Guesses
	g.add(&r.guess)
	return g
}

// add counts the guesses of the newest step.
func (c *Guesses) add(g *guess) {
	phase := 0
	if g.thinking {
		phase = 1
	}
	c.Drafted[phase][g.stepSource()] += g.rows
	c.Accepted[phase][g.stepSource()] += g.kept
}

// NextRow returns the offset from Slice.Row to the row of the request's next token, after a Token that was guessed; 0 =
// its next row is in a later step.
func (r *Request) NextRow() int { return r.guess.next }

// guessed notes which guesses of r the step s has computed.
func (c *Core) guessed(r *Request, s *sched.Slice) {
	g := &r.guess
	g.rows, g.base, g.kept, g.next = s.Guessed, s.Start+s.N-s.Guessed, 0, 0
	if g.drafted = s.Drafted; !g.drafted {
		g.draft.n = 0 // guesses of a step that failed have no outcome
	}
	if s.Guessed > 0 {
		g.thinking = r.Control.Phase() == meridian.ThinkDecode
		c.verified = append(c.verified, r)
	}
}

// compare compares r's newest token with the guesses.
func (c *Core) compare(r *Request) {
	r.guess.next = 0
	if drawn, comes := c.draw(r, len(r.Tokens)-1); drawn && !comes {
		r.guess.inStep().wrong = true // the token may be the guessed one nevertheless
	}
	r.guess.text.compare(r.Tokens)
	r.guess.draft.compare(r.Tokens)
}

// Synthetic returns the guess that is to be r's next token, whatever its row says, with Config.Synthetic.
func (c *Core) Synthetic(r *Request) (Token, bool) {
	in := r.guess.inStep()
	if _, comes := c.draw(r, len(r.Tokens)); !comes {
		return 0, false
	}
	return in.tokens[in.right], true
}

// draw decides by Config.Synthetic whether the newest step's guess for r's token at index at comes true; nothing is
// drawn where there is no such guess. The place and the token before decide, so that each call says the same.
func (c *Core) draw(r *Request, at int) (drawn, comes bool) {
	g := &r.guess
	in := g.inStep()
	if in.wrong || in.right >= min(g.rows, in.n, len(c.cfg.Synthetic)) || at != in.from+in.right || at == 0 {
		return false, false
	}
	// The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
	x := (uint64(at)<<32 ^ uint64(uint32(r.Tokens[at-1]))) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return true, float64((x^x>>31)>>11)/(1<<53) < c.cfg.Synthetic[in.right]
}

// keepGuesses counts the cells of guesses that came true as r's, except that of the newest token: its row may be needed
// again.
func (c *Core) keepGuesses(r *Request) {
	g := &r.guess
	if g.rows == 0 {
		return
	}
	in := g.inStep()
	c.keep(r, min(in.from+min(in.right, g.rows), len(r.Tokens)-1))
}

// keep notes that the step has computed r's history up to n tokens. The cells of a state are counted once all of the
// step's rows have been used: else they are dropped.
func (c *Core) keep(r *Request, n int) {
	if !c.cfg.Seals {
		c.grown(r.lastAt, r, n)
	}
	r.guess.kept = max(r.guess.kept, n-r.guess.base)
}

// has returns the number of tokens of r's history that are computed, those of the newest step's guesses included.
func (r *Request) has() int {
	if r.guess.rows > 0 {
		return r.guess.base + r.guess.kept
	}
	return r.computed
}

// again returns the number of tokens of r's history that the next step has to compute once more.
func (c *Core) again(r *Request) int {
	if g := &r.guess; c.cfg.Seals && g.kept < g.rows {
		return r.has() - r.computed
	}
	return 0
}

// goesOn reports whether r's newest token is a guess whose row has been computed. Then that row is r's next.
func (c *Core) goesOn(r *Request) bool {
	g := &r.guess
	in := g.inStep()
	if g.rows == 0 || in.wrong || in.right > g.rows || in.from+in.right != len(r.Tokens) {
		return false
	}
	c.keep(r, len(r.Tokens))
	g.next = g.kept
	return true
}

// offer sets in e the outcome of r's newest guesses, and makes the next ones.
func (c *Core) offer(r *Request, e *sched.EvToken) {
	g := &r.guess
	e.Accepted, e.Right, e.Wrong = g.kept, g.text.right, g.text.wrong
	e.DraftRight, e.DraftWrong = g.draft.right, g.draft.wrong
	if e.Cut > 0 {
		c.dropDraft(r) // the draft model's positions no longer match
		g.states = keptStates{}
	}
	c.settleDraft(r)
	g.text.begin(len(r.Tokens))
	g.draft.begin(len(r.Tokens))
	most := min(g.most, r.MaxTokens-r.Generated()-1, c.cfg.Sched.Cells-len(r.Tokens)-1)
	if most <= 0 {
		return
	}
	c.offerDraft(r, e, most)
	if e.Cut > 0 && g.index != nil {
		g.index.Reset()
	}
	match, source := 0, spec.Other
	if rest := c.otherText(r, e.Cut > 0); len(rest) > 0 {
		g.text.n, match = copy(g.text.tokens[:most], rest), r.Generated()
	} else if c.indexed(r) {
		source = spec.Own
		g.text.n, match = g.index.Guess(r.Tokens, g.text.tokens[:most])
	}
	g.text.n = words(g.text.tokens[:g.text.n])
	if g.text.n > 0 {
		g.grade, g.source = spec.Grade(source, match), source
		e.Offer, e.Grade = g.text.n, g.grade
	}
}

// words returns the number of tokens before the first one that stands for an image: no model generates such a token.
func words(tokens []Token) int {
	for i, t := range tokens {
		if t < 0 {
			return i
		}
	}
	return len(tokens)
}

// otherText returns what follows r's history in another text of its user: a cached one, or that of a running request.
// Texts that begin like it are looked for at its first token, and again whenever its length has doubled.
func (c *Core) otherText(r *Request, cut bool) []Token {
	g := &r.guess
	n := r.Generated()
	if cut || r.cut > 0 {
		return nil // positions no longer match those of other texts
	}
	if g.tried && g.other == NoSeq && bits.OnesCount(uint(n)) != 1 {
		return nil
	}
	near := NoSeq
	if g.tried {
		near = g.other
	}
	g.tried = true
	var rest []Token
	rest, g.other = c.tree.Beyond(r.seq, r.Space(), r.Tokens, near)
	return rest
}

// indexed extends r's index by indexStep tokens and reports whether it covers the whole history.
func (c *Core) indexed(r *Request) bool {
	g := &r.guess
	if g.index == nil {
		n := r.Prompt + min(r.MaxTokens, indexAhead)
		for i, x := range c.spare {
			if x.Fits(n) {
				last := len(c.spare) - 1
				g.index, c.spare[i] = x, c.spare[last]
				c.spare[last] = nil
				c.spare = c.spare[:last]
				break
			}
		}
		if g.index == nil {
			if c.indexBytes >= maxIndexBytes {
				return false
			}
			g.index = spec.New(n)
			c.indexBytes += g.index.Bytes()
		}
	}
	return g.index.Extend(r.Tokens, indexStep)
}

// dropIndex takes the index of a request that has ended.
func (c *Core) dropIndex(r *Request) {
	x := r.guess.index
	if x == nil {
		return
	}
	r.guess.index = nil
	if len(c.spare) == spareIndexes {
		c.indexBytes -= x.Bytes()
		return
	}
	x.Reset()
	c.spare = append(c.spare, x)
}

// rollBack removes the cells of guesses that did not come true, and counts.
func (c *Core) rollBack() {
	for i, r := range c.verified {
		g := &r.guess
		switch {
		case c.cfg.Seals:
			c.settleGuard(r)
		case g.kept < g.rows:
			c.op(Op{Kind: SeqRemove, Dst: r.seq, From: r.computed, To: -1})
		}
		g.Guesses.add(g)
		c.note(Note{Kind: Verified, Request: r, N: g.rows, Accepted: g.kept, Source: g.stepSource(),
			Thinking: g.thinking})
		g.rows, g.kept = 0, 0
		c.verified[i] = nil
	}
	c.verified = c.verified[:0]
}

// guardSeq returns the copy of a sequence with guesses in the newest step (Config.Seals). No thought is copied back
// into a model with states, so the sequence for that is free.
func (c *Core) guardSeq() Seq { return c.ingestSeq() }

// addGuard copies the sequence of the request whose guesses the batch has.
func (c *Core) addGuard() {
	if !c.cfg.Seals {
		return
	}
	for i := range c.plan.Batch {
		if s := &c.plan.Batch[i]; s.Guessed > 0 {
			c.op(Op{Kind: SeqCopy, Src: c.requests[s.Req].seq, Dst: c.guardSeq(), To: s.Start})
		}
	}
}

// dropGuard gives up the copy that addGuard has made.
func (c *Core) dropGuard() { c.op(Op{Kind: SeqRemove, Dst: c.guardSeq(), To: -1}) }

// settleGuard keeps what the newest step has computed of r, if all of its guesses came true and were used, and else
// goes back to the copy.
func (c *Core) settleGuard(r *Request) {
	if g := &r.guess; g.kept == g.rows {
		c.grown(r.lastAt, r, r.has())
	} else {
		c.op(Op{Kind: SeqRemove, Dst: r.seq, To: -1})
		c.op(Op{Kind: SeqCopy, Src: c.guardSeq(), Dst: r.seq, To: r.computed})
	}
	c.dropGuard()
}
