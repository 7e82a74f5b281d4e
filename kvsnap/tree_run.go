package kvsnap

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

// state of a sequence id.
type state uint8

const (
	free state = iota
	running
	cached
)

// noLimit: all that the sequence holds is what its tokens say.
const noLimit = math.MaxInt

// sequence is what a sequence id is used for.
type sequence struct {
	state  state
	tip    int32   // node in which it ends; root = it holds no cells
	tokens []Token // running: the caller's, computed or not; cached: our own, exactly what it holds
	limit  int     // tokens from here on are not what was computed (Tree.Cut), nobody may share them
	ns     uint32

	shareable int
	req       uint64
	entry     uint64 // cached: its number
	pinned    bool
	holds     int // cached: Hold less Unhold
	stalled   bool
	waited    int // held requests that wait for it
	given     int // running: cells it was given at its start that others held too
	created   Instant
	used      Instant
	hits      int
	turns     int
	marks     []uint64 // hashes after each whole block of the prompt (running) or of all tokens (cached)
}

// fixed: a cached prefix that stays.
func (q *sequence) fixed() bool { return q.pinned || q.holds > 0 }

// waiter is a held request: it may go on when sequence on has computed until tokens.
type waiter struct {
	req   uint64
	on    Seq
	until int
}

// Tree is the index of what the KV pool holds, token by token, and the ledger of its cells. See the package comment.
// It belongs to one goroutine.
//
// It reads a running request's tokens in the caller's own slice (Prompt.Tokens, and what Progress is given) until
// Retain or Release; they may grow, but those it has been told of must not change until then. A cached prefix has its
// own copy.
type Tree struct {
	cfg   Config
	nodes []node  // an arena; node 0 is the root
	spare []int32 // Invariant: the indices of the nodes that are not linked
	seqs  []sequence
	cells Cells
	stats Stats

	waiters []waiter // in the order they were held
	sketch  sketch
	level   float64 // what the last victim was worth: see worth
	entries uint64  // numbers given so far

	mark     uint32 // number of the current match
	found    int32  // the node its longest match ends in
	aheadSeq Seq    // the sequence of Match.On
	marks    []uint64
	actions  []Action
	wake     []uint64
	victims  []Victim
	calls    int // for the checks of invariant builds
}

// New makes the tree of an empty pool.
func New(cfg Config) (*Tree, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&cfg.JoinMin, DefaultJoinMin)
	def(&cfg.KeepMin, DefaultKeepMin)
	def(&cfg.DoubleAt, DefaultDoubleAt)
	ids := cfg.Sequences - cfg.Scratch
	// Half of the nodes would do, see reserve; the other half is for boundaries that are worth keeping.
	t := &Tree{
		cfg: cfg, nodes: make([]node, 4*ids+4), seqs: make([]sequence, ids), cells: Cells{Free: cfg.Cells},
		sketch: newSketch(cfg.Cells/blockTokens, cfg.Seed),
	}
	t.nodes[root] = node{parent: -1, first: -1, next: -1, prev: -1, holder: NoSeq}
	for i := len(t.nodes) - 1; i > 0; i-- {
		t.spare = append(t.spare, int32(i))
	}
	return t, nil
}

// ScratchSeq is the i-th sequence id that the tree never hands out, 0 ≤ i < Config.Scratch.
func (t *Tree) ScratchSeq(i int) Seq { return Seq(t.cfg.Sequences - 1 - i) }

// Cells is the pool now. O(1).
func (t *Tree) Cells() Cells { return t.cells }

// Own is the number of cells that end with the running sequence s, because nobody else holds them.
func (t *Tree) Own(s Seq) int { t.running(s); return t.own(s) }

// Pool is how many of the cells that EvictCells cannot free are nobody's own, when each cell is the own of the running
// request that computed or took it over (its cells less Started.Shared): cells whose request has gone while others share
// them, and pinned ones. It is what sched.EvPool tells. Invariant: Σ own + Pool + Cells.Cached + Cells.Free ==
// Config.Cells. O(sequence ids).
func (t *Tree) Pool() int {
	n := t.cells.Own + t.cells.Shared + t.cells.Pinned
	for s := range t.seqs {
		if q := &t.seqs[s]; q.state == running {
			n -= t.length(Seq(s)) - q.given
		}
	}
	return n
}

// Stats are the counters now.
func (t *Tree) Stats() Stats { return t.stats }

// verify is called at the end of whatever changes the books: builds with invariants check them.
func (t *Tree) verify() {
	if invariants.Enabled {
		if t.calls++; t.calls%8 == 0 { // each is a pass over the whole pool
			if err := t.Check(); err != nil {
				panic(err.Error() + "\n" + t.Dump())
			}
		}
	}
}

// running returns the state of a running request's sequence. Anything else is the caller's mistake.
func (t *Tree) running(s Seq) *sequence {
	if s < 0 || int(s) >= len(t.seqs) || t.seqs[s].state != running {
		panic(fmt.Sprintf("kvsnap: sequence %d does not run a request", s))
	}
	return &t.seqs[s]
}

// Lookup says what Start would share, and changes nothing: for admission, and for `uma-cli`.
func (t *Tree) Lookup(p *Prompt) Match {
	if len(p.Tokens) == 0 {
		return Match{Source: NoSeq}
	}
	t.marks = hashMarks(t.marks[:0], p.NS, p.Tokens)
	return t.match(p, t.marks)
}

// Start gives a request a sequence and the cells it can share, or says on whom to wait. On Held nothing has changed
// but that the tree remembers to wake it; call Cancel when the request goes away meanwhile. Start first, then make
// room for the rest with EvictCells: what the request shares is then safe.
//
// The errors are ErrNoSequence, and a prompt without tokens.
func (t *Tree) Start(now Instant, p *Prompt) (Started, error) {
	if len(p.Tokens) == 0 {
		return Started{Seq: NoSeq}, errors.New("kvsnap: start a request: its prompt has no tokens")
	}
	t.Cancel(p.Req)
	t.marks = hashMarks(t.marks[:0], p.NS, p.Tokens)
	m := t.match(p, t.marks)
	if m.Ahead >= t.cfg.JoinMin && !p.Alone {
		on := t.aheadSeq
		t.waiters = append(t.waiters, waiter{p.Req, on, m.Len + m.Ahead})
		t.seqs[on].waited++
		t.stats.Joins++
		return Started{Held: true, On: m.On, Until: m.Len + m.Ahead, Seq: NoSeq, Match: m}, nil
	}
	t.actions, t.victims = t.actions[:0], t.victims[:0]
	s, err := t.sequenceFor(&m)
	if err != nil {
		return Started{Seq: NoSeq, Match: m}, err
	}
	t.count(&m, p)
	q := &t.seqs[s]
	if q.state == cached { // taken over
		t.take(s, m.Len)
	} else {
		*q = sequence{state: running, tip: root, created: now, marks: q.marks[:0]}
		if m.Len == 0 {
			t.nodes[root].tips++
		} else {
			t.hold(s, t.cut(m.Source, m.Len))
			t.actions = append(t.actions, Action{Kind: Copy, Src: m.Source, Dst: s, To: m.Len})
			src := &t.seqs[m.Source]
			src.used = now
			if src.state == cached && m.Len >= len(src.tokens)-1 {
				src.hits++
			}
		}
		t.stats.Runs++
	}
	q.tokens, q.limit, q.ns, q.req, q.used = p.Tokens, noLimit, p.NS, p.Req, now
	q.shareable = max(0, min(p.Shareable, len(p.Tokens)))
	q.marks = append(q.marks[:0], t.marks...)
	for _, key := range q.marks {
		t.sketch.add(key)
	}
	q.given = m.Len - t.own(s)
	t.touch(now, s)
	t.verify()
	return Started{
		Seq: s, Cached: m.Len, Shared: q.given, Match: m, Evicted: t.victims, Actions: t.actions,
	}, nil
}

func (t *Tree) count(m *Match, p *Prompt) {
	t.stats.Lookups++
	t.stats.Misses[m.Reason]++
	t.stats.PromptTokens += uint64(len(p.Tokens))
	t.stats.CachedTokens += uint64(m.Len)
	if m.Len > 0 {
		t.stats.Hits++
	}
}

// sequenceFor finds an id for a request: a free one, or else that of the cached prefix that is least worth keeping; the
// match's own source when nothing else is left, or when the memory can only hand over whole sequences.
func (t *Tree) sequenceFor(m *Match) (Seq, error) {
	if t.cfg.WholeOnly && m.Len > 0 {
		return m.Source, nil
	}
	for s := range t.seqs {
		if t.seqs[s].state == free {
			return Seq(s), nil
		}
	}
	if s := t.cheapestID(m.Source); s != NoSeq {
		t.stats.IDEvictions++
		t.evictTail(s, 0)
		return s, nil
	}
	if m.Len > 0 && t.seqs[m.Source].state == cached && !t.seqs[m.Source].fixed() {
		return m.Source, nil
	}
	return NoSeq, fmt.Errorf("start a request: %w: %d run, %d cached prefixes are pinned or being copied", ErrNoSequence, t.stats.Runs, t.stats.Entries)
}

// take makes cached prefix s, of which the first keep tokens are wanted, a running request's sequence.
func (t *Tree) take(s Seq, keep int) {
	q := &t.seqs[s]
	if keep < t.length(s) {
		t.shorten(s, keep)
		t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: keep, To: -1})
	}
	t.along(q.tip, root, 0, 1, 0)
	q.state, q.entry = running, 0
	if keep >= len(q.tokens)-1 {
		q.hits++
	}
	t.stats.Runs++
	t.stats.Entries--
}

// Cancel forgets a request that is held.
func (t *Tree) Cancel(req uint64) {
	for i, w := range t.waiters {
		if w.req == req {
			t.seqs[w.on].waited--
			t.waiters = slices.Delete(t.waiters, i, i+1)
			return
		}
	}
}

// Progress tells that sequence s now holds the first computed of tokens (its prompt and what was generated; the slice
// replaces the one before and begins with the same tokens). Call it after each Decode for each of its sequences: a
// decoded token costs O(1) and no allocation. It returns the held requests to start now, nil for nearly every call;
// the slice is valid until the next call.
func (t *Tree) Progress(s Seq, tokens []Token, computed int) (wake []uint64) {
	q := t.running(s)
	n := &t.nodes[q.tip]
	more := computed - n.end
	if more < 0 || computed > len(tokens) || more > t.cells.Free {
		panic(fmt.Sprintf("kvsnap: sequence %d is said to hold %d of %d tokens: it held %d, and %d cells are free", s, computed, len(tokens), n.end, t.cells.Free))
	}
	q.tokens = tokens
	switch {
	case more == 0:
	case n.refs == 1 && q.tip != root:
		t.grow(q.tip, more)
	default:
		t.reserve()
		i := t.newNode(q.tip, n.end, computed, s)
		n.tips--
		t.nodes[i].tips, q.tip = 1, i
		t.change(i, 1, 1, 0)
	}
	if q.waited > 0 {
		wake = t.wakeUp(s, computed)
	}
	t.verify()
	return wake
}

// wakeUp takes the requests out that wait for s to have computed no more than until.
func (t *Tree) wakeUp(s Seq, until int) []uint64 {
	t.wake = t.wake[:0]
	t.waiters = slices.DeleteFunc(t.waiters, func(w waiter) bool {
		if w.on != s || w.until > until {
			return false
		}
		t.wake = append(t.wake, w.req)
		t.seqs[s].waited--
		return true
	})
	return t.wake
}

// Stall says that a running request makes no progress for now (its client does not read): nobody waits for it any
// more, and those who did are returned. Stall(s, false) takes that back.
func (t *Tree) Stall(s Seq, stalled bool) (wake []uint64) {
	q := t.running(s)
	q.stalled = stalled
	if stalled && q.waited > 0 {
		return t.wakeUp(s, noLimit)
	}
	return nil
}

// Cut takes the n cells from position from on out of running sequence s and moves those behind them down: a context
// shift, or a think block that is dropped. tokens is the request's slice after it, with those tokens gone. What is
// behind from was computed with the cells that are missing now, so nobody may share it, and Retain keeps none of it.
// It fails, and changes nothing, when some of the cells from position from on are shared: a shift would move them for
// the others, too.
func (t *Tree) Cut(s Seq, tokens []Token, from, n int) (Ended, error) {
	q := t.running(s)
	length := t.length(s)
	switch {
	case t.cfg.WholeOnly:
		return Ended{}, errors.New("kvsnap: cut a sequence: this memory cannot remove a range")
	case from < 0 || n < 1 || from+n > length || len(tokens) < length-n:
		return Ended{}, fmt.Errorf("kvsnap: cut a sequence: %d cells from position %d on, of %d cells and %d tokens left", n, from, length, len(tokens))
	case t.own(s) < length-from:
		return Ended{}, fmt.Errorf("kvsnap: cut a sequence: %d cells from position %d on are shared, wait or compute it again", length-from-t.own(s), from)
	}
	t.shorten(s, length-n) // the same number of its own cells
	q.given = min(q.given, from)
	q.tokens, q.limit = tokens, min(q.limit, from)
	t.actions = append(t.actions[:0], Action{Kind: Remove, Src: NoSeq, Dst: s, From: from, To: from + n})
	if from+n < length {
		t.actions = append(t.actions, Action{Kind: Shift, Src: NoSeq, Dst: s, From: from + n, To: -1, Delta: -n})
	}
	return Ended{Actions: t.actions, Wake: t.wakeUp(s, noLimit)}, nil
}

// Release ends a running request and keeps nothing.
func (t *Tree) Release(s Seq) Ended {
	t.running(s)
	t.actions = t.actions[:0]
	wake := t.wakeUp(s, noLimit)
	t.drop(s)
	t.verify()
	return Ended{Actions: t.actions, Wake: wake}
}

// drop ends whatever s is used for and asks for the removal of its cells.
func (t *Tree) drop(s Seq) (freed int) {
	q := &t.seqs[s]
	had := t.length(s)
	freed = t.shorten(s, 0)
	t.nodes[root].tips--
	if q.state == running {
		t.stats.Runs--
	} else {
		t.stats.Entries--
	}
	*q = sequence{marks: q.marks[:0]}
	if had > 0 {
		t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, To: -1})
	}
	return freed
}

// Retain ends a running request. What it has computed of history — the tokens that its next turn is expected to begin
// with — stays as a cached prefix, the rest goes. history may be longer or shorter than what was computed; nil keeps
// nothing.
//
// A cached prefix of the same namespace that begins with all of it makes it superfluous; one that it begins with itself
// becomes part of it, unless pinned.
func (t *Tree) Retain(now Instant, s Seq, history []Token) Ended {
	q := t.running(s)
	t.actions = t.actions[:0]
	wake := t.wakeUp(s, noLimit)
	computed := t.length(s)
	keep := min(CommonPrefix(q.tokens[:computed], history), q.limit)
	if keep < t.cfg.KeepMin || t.cfg.WholeOnly && keep < computed {
		t.drop(s)
		return Ended{Actions: t.actions, Wake: wake}
	}
	if keep < computed {
		t.shorten(s, keep)
		t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: keep, To: -1})
	}
	prompt := len(q.marks)
	q.marks = q.marks[:min(prompt, keep/blockTokens)]
	q.tokens = slices.Clone(q.tokens[:keep])
	q.marks = hashMarks(q.marks, q.ns, q.tokens)
	for i := prompt; i < len(q.marks); i++ {
		t.sketch.add(q.marks[i]) // those of the prompt were counted when it started
	}
	t.along(q.tip, root, 0, -1, 0)
	q.state, q.limit, q.stalled, q.shareable = cached, noLimit, false, min(q.shareable, keep)
	t.stats.Runs--
	t.stats.Entries++
	t.touch(now, s)
	if longer := t.merge(s); longer != NoSeq {
		return Ended{Entry: t.seqs[longer].entry, Kept: keep, Actions: t.actions, Wake: wake}
	}
	t.tidy(s)
	t.entries++
	q.entry = t.entries
	q.turns++
	q.used = now
	t.stats.Retained++
	t.verify()
	return Ended{Entry: q.entry, Kept: keep, Actions: t.actions, Wake: wake}
}

// merge drops what the new cached prefix s makes superfluous. When that is s itself, it returns the one to which it
// lost.
func (t *Tree) merge(s Seq) (longer Seq) {
	q := &t.seqs[s]
	for i := range t.seqs {
		o := &t.seqs[i]
		if Seq(i) == s || o.state != cached || o.ns != q.ns {
			continue
		}
		if n := min(len(o.marks), len(q.marks)); n > 0 && o.marks[n-1] != q.marks[n-1] {
			continue // another text: no need to compare
		}
		n := CommonPrefix(o.tokens, q.tokens)
		switch {
		case n == len(q.tokens) && (n < len(o.tokens) || o.fixed()):
			inherit(o, q)
			t.stats.Merged++
			t.drop(s)
			return Seq(i)
		case n == len(o.tokens) && !o.fixed():
			inherit(q, o)
			t.lend(s, t.nodes[o.tip].value)
			t.stats.Merged++
			t.drop(Seq(i))
		}
	}
	return NoSeq
}

// lend makes what s holds worth no less than v: it continues a cached prefix that was worth so much.
func (t *Tree) lend(s Seq, v float64) {
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		t.nodes[i].value = max(t.nodes[i].value, v)
	}
}

// inherit lets the remaining one of two cached prefixes speak for both.
func inherit(to, from *sequence) {
	to.hits = max(to.hits, from.hits)
	to.turns = max(to.turns, from.turns)
	to.used = max(to.used, from.used)
	to.created = min(to.created, from.created)
	to.shareable = max(to.shareable, from.shareable)
}
