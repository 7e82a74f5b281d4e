package kvsnap

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// state is the use of a sequence id.
type state uint8

const (
	free state = iota
	running
	cached
)

// noLimit is sequence.limit while no Cut has changed the sequence.
const noLimit = math.MaxInt

// sequence is the record of one sequence id.
type sequence struct {
	state  state
	tip    int32   // node in which it ends; root = it holds no cells
	tokens []Token // running: the caller's slice, computed or not; cached: a copy of exactly the tokens it holds
	made   uint64  // Tree.generation when its tokens became these
	limit  int     // cells from here on saw tokens that Cut removed; they cannot be shared or retained
	ns     uint64
	// Tokens before baseLen have cells as those of namespace base: all of them, unless Prompt.BaseLen says less.
	base    uint64
	baseLen int

	shareable int
	req       uint64
	entry     uint64 // cached: its number
	pinned    bool
	parked    bool // cached: preempted request req continues with it, so its cells keep their tiers
	ingesting bool // parked: its thought is being copied back
	// Parked: the finished thought that was copied out and can be evicted alone; awayTo 0 = none.
	awayFrom, awayTo int
	stalled          bool
	waited           int // requests that wait for it
	created          Instant
	used             Instant
	hits             int
	turns            int
	hashes           []uint64 // prefix hash after each whole block of the prompt (running) or of all tokens (cached)
	stops            []int    // running: see Acquired.Stops
}

// waiter is a request that waits until sequence on has computed until tokens.
type waiter struct {
	req   uint64
	on    Seq
	until int
}

// Tree indexes the KV pool token by token. See the package comment. It belongs to one goroutine.
//
// Until Retain or Release it reads a running request's tokens in the caller's slice (Prompt.Tokens, later the argument
// of Progress). The caller may append to the slice but must not change tokens that the tree has seen. A cached prefix
// has a copy.
type Tree struct {
	cfg    Config
	ledger *blocks.Ledger // counts the cells of the nodes' spans
	nodes  []node         // an arena; node 0 is the root
	spare  []int32        // Invariant: the indices of the nodes that are not linked
	seqs   []sequence
	stats  Stats

	waiters []waiter // oldest first
	sketch  sketch
	entries uint64 // number of the newest cached prefix

	generation uint64   // changes with every change of the tree and with every match
	hashes     []uint64 // block hashes of the newest match's prompt
	matchNo    uint32   // number of the newest match, see node.matchNo
	found      int32    // the node in which the newest match ends
	actions    []Action
	wake       []uint64
	victims    []Victim
	segments   []segment // scratch of Cut
	chain      []Seq     // scratch of thin
	calls      int       // counts verify calls
}

// New makes the tree of an empty pool. The error names the field of cfg that is out of range.
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
	def(&cfg.SealEvery, DefaultSealEvery)
	ledger, err := blocks.New(blocks.Config{Cells: cfg.Cells, CellBytes: cfg.CellBytes, BlockCells: cfg.BlockCells})
	if err != nil {
		return nil, fmt.Errorf("kvsnap: %w", err)
	}
	ids := cfg.Sequences - cfg.Scratch
	// Two thirds of the nodes suffice, see reserve; the others keep spans of different values and tiers apart, see fit.
	t := &Tree{
		cfg: cfg, ledger: ledger, nodes: make([]node, 6*ids+4), seqs: make([]sequence, ids),
		sketch: newSketch(cfg.Cells/blockTokens, cfg.Seed),
	}
	t.nodes[root] = node{parent: -1, first: -1, next: -1, prev: -1, holder: NoSeq}
	for i := len(t.nodes) - 1; i > 0; i-- {
		t.spare = append(t.spare, int32(i))
	}
	return t, nil
}

// ScratchSeq returns the i-th reserved sequence id, 0 ≤ i < Config.Scratch.
func (t *Tree) ScratchSeq(i int) Seq { return Seq(t.cfg.Sequences - 1 - i) }

// Ledger counts the cells of the pool. The caller reads it, and reserves cells; only the tree changes its spans.
func (t *Tree) Ledger() *blocks.Ledger { return t.ledger }

// Cells returns the ledger's counts. O(1).
func (t *Tree) Cells() blocks.Cells { return t.ledger.Cells() }

// Own returns the number of cells that only running sequence s holds; its release frees them.
func (t *Tree) Own(s Seq) int { t.running(s); return t.own(s) }

// Stats returns the counters.
func (t *Tree) Stats() Stats { return t.stats }

// verify follows every change of the tree. Builds with invariants run Check on every eighth call, since Check reads the
// whole pool.
func (t *Tree) verify() {
	if invariants.Enabled {
		if t.calls++; t.calls%8 == 0 {
			if err := t.Check(); err != nil {
				panic(err.Error() + "\n" + t.Dump())
			}
		}
	}
}

// running returns the record of sequence s and panics when s does not run a request.
func (t *Tree) running(s Seq) *sequence {
	if s < 0 || int(s) >= len(t.seqs) || t.seqs[s].state != running {
		panic(fmt.Sprintf("kvsnap: sequence %d does not run a request", s))
	}
	return &t.seqs[s]
}

// Lookup returns the match that Acquire would use. The tree's content stays as it is.
func (t *Tree) Lookup(p *Prompt) Match {
	t.generation++
	if len(p.Tokens) == 0 || p.Apart {
		t.hashes = t.hashes[:0]
		return Match{Source: NoSeq, generation: t.generation}
	}
	t.hashes = hashBlocks(t.hashes[:0], p.NS, p.Tokens)
	m := t.match(p, t.hashes)
	m.generation = t.generation
	return m
}

// Acquire gives a request a sequence and the cells that it can share, or names the request to wait for. A waiting
// request holds nothing; call Cancel when it ends before it is woken. Acquire first and make room for the rest with
// EvictCells afterwards: eviction then leaves the shared cells alone. The prefix that Park kept for the request becomes
// an ordinary one.
//
// It fails with ErrNoSequence, or when the prompt has no tokens.
func (t *Tree) Acquire(now Instant, p *Prompt) (Acquired, error) {
	m := t.Lookup(p)
	return t.AcquireMatch(now, p, &m)
}

// AcquireMatch is Acquire with the match that Lookup(p) found: the prompt is not hashed and matched a second time. If
// the tree has changed since, or has looked up another prompt, it looks p up again. Between the two calls only p.NoWait
// may change.
func (t *Tree) AcquireMatch(now Instant, p *Prompt, found *Match) (Acquired, error) {
	if len(p.Tokens) == 0 {
		return Acquired{Seq: NoSeq}, errors.New("kvsnap: acquire a sequence: the prompt has no tokens")
	}
	m := *found
	if m.generation != t.generation {
		m = t.Lookup(p)
	}
	t.generation++
	t.stopWaiting(p.Req)
	if m.Ahead >= t.cfg.JoinMin && !p.NoWait {
		on := m.aheadSeq
		t.waiters = append(t.waiters, waiter{p.Req, on, m.Len + m.Ahead})
		t.seqs[on].waited++
		t.stats.Joins++
		return Acquired{Waiting: true, WaitFor: m.AheadReq, Until: m.Len + m.Ahead, Seq: NoSeq, Match: m}, nil
	}
	t.actions, t.victims = t.actions[:0], t.victims[:0] // unpark appends to them too
	s, err := t.sequenceFor(&m)
	if err != nil {
		return Acquired{Seq: NoSeq, Match: m}, err
	}
	if !p.Apart {
		t.count(&m, p)
	}
	q := &t.seqs[s]
	if q.state == cached {
		t.takeOver(s, m.Len)
	} else {
		*q = sequence{state: running, tip: root, created: now, hashes: q.hashes[:0], stops: q.stops[:0]}
		if m.Len == 0 {
			t.nodes[root].tips++
		} else {
			t.attach(s, t.nodeEndingAt(m.Source, m.Len))
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
	q.base, q.baseLen = p.baseOf()
	q.made = t.generation
	if p.Apart {
		// No cell of it may be shared: see sequence.limit.
		q.limit = 0
	}
	q.shareable = max(0, min(p.Shareable, len(p.Tokens)))
	q.hashes = append(q.hashes[:0], t.hashes...)
	for _, key := range q.hashes {
		t.sketch.add(key)
	}
	t.planStops(q, p, &m)
	shared := m.Len - t.own(s)
	t.touch(now, s)
	if lost := t.unpark(p.Req); lost > 0 {
		before := t.ledger.AnswerBlocks()
		t.ledger.EvictTier(blocks.OutputCritical, lost, blocks.Pressure)
		t.ledger.Interrupted(before)
	}
	t.verify()
	return Acquired{
		Seq: s, Cached: m.Len, Shared: shared, Match: m, Evicted: t.victims, Stops: q.stops, Actions: t.actions,
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

// sequenceFor finds an id for a request: a free one, else that of the least valuable cached prefix, else the match's
// source.
func (t *Tree) sequenceFor(m *Match) (Seq, error) {
	if s := t.freeID(m.Source); s != NoSeq {
		return s, nil
	}
	if src := m.Source; m.Len > 0 && t.seqs[src].state == cached && !t.seqs[src].pinned && !t.seqs[src].ingesting {
		return src, nil
	}
	return NoSeq, fmt.Errorf("acquire a sequence: %w: %d requests run, %d cached prefixes are pinned",
		ErrNoSequence, t.stats.Runs, t.stats.Entries)
}

// freeID finds a free id, or takes that of the least valuable cached prefix other than spare; NoSeq when there is none.
func (t *Tree) freeID(spare Seq) Seq {
	for s := range t.seqs {
		if t.seqs[s].state == free {
			return Seq(s)
		}
	}
	s := t.cheapestID(spare)
	if s != NoSeq {
		t.stats.IDEvictions++
		victim := t.nodes[t.seqs[s].tip].span
		t.evictTail(s, 0, &victim)
	}
	return s
}

// takeOver turns cached prefix s into a running request's sequence that begins with the prefix's first keep tokens. It
// is used where no other id is free.
func (t *Tree) takeOver(s Seq, keep int) {
	q := &t.seqs[s]
	if keep < t.length(s) {
		t.shorten(s, keep)
		t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: keep, To: -1})
	}
	h := blocks.Holders{Running: 1}
	if q.parked {
		h.Parked = -1
	}
	t.addToPath(q.tip, root, h)
	q.state, q.entry, q.parked, q.awayFrom, q.awayTo = running, 0, false, 0, 0
	if keep >= len(q.tokens)-1 {
		q.hits++
	}
	t.stats.Runs++
	t.stats.Entries--
}

// Cancel forgets a request that waits, or that has ended after Park. It does nothing when there is no such request. The
// actions are valid until the next call.
func (t *Tree) Cancel(req uint64) []Action {
	t.generation++
	t.actions = t.actions[:0]
	t.stopWaiting(req)
	t.unpark(req)
	t.verify()
	return t.actions
}

// unpark makes the prefix that Park kept for a request an ordinary cached prefix, up to an offloaded thought. It
// returns the number of cells of the answer that are lost behind one.
func (t *Tree) unpark(req uint64) (answer int) {
	s := t.Parked(req)
	if s == NoSeq {
		return 0
	}
	q := &t.seqs[s]
	if q.ingesting {
		q.ingesting = false
		t.pinPath(s, false)
	}
	if answer = t.closeGap(s); q.state == free {
		return answer
	}
	q.parked, q.awayFrom, q.awayTo = false, 0, 0
	t.addToPath(q.tip, root, blocks.Holders{Parked: -1})
	t.compactPath(s)
	return answer
}

func (t *Tree) stopWaiting(req uint64) {
	for i, w := range t.waiters {
		if w.req == req {
			t.seqs[w.on].waited--
			t.waiters = slices.Delete(t.waiters, i, i+1)
			return
		}
	}
}

// Progress records that sequence s now holds the first computed of tokens: its prompt and the generated tokens. The
// slice replaces the one before and begins with the same tokens. tier is the use of the newly computed cells. Call it
// after each Decode for each of its sequences; a decoded token costs O(1) and no allocation. It returns the waiting
// requests that should now call Acquire again, usually none; the slice is valid until the next call.
func (t *Tree) Progress(s Seq, tokens []Token, computed int, tier blocks.Tier) (wake []uint64) {
	t.generation++
	q := t.running(s)
	more := computed - t.length(s)
	if more < 0 || computed > len(tokens) || more > t.ledger.Free() {
		panic(fmt.Sprintf("kvsnap: Progress of sequence %d to %d of %d tokens: it held %d, and %d cells are free",
			s, computed, len(tokens), t.length(s), t.ledger.Free()))
	}
	q.tokens = tokens
	if more > 0 {
		t.extend(s, more, tier)
	}
	if q.waited > 0 {
		wake = t.wakeUp(s, computed)
	}
	t.verify()
	return wake
}

// EndThought records that the think block of running sequence s has ended: its ThinkActive cells become ThinkComplete,
// except those that another running request shares.
func (t *Tree) EndThought(s Seq) {
	t.running(s)
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		if n := &t.nodes[i]; n.span.Tier() == blocks.ThinkActive && n.runs() == 1 {
			t.ledger.SetTier(&n.span, blocks.ThinkComplete)
		}
	}
	t.verify()
}

// wakeUp removes and returns the requests that wait for s to compute until tokens or fewer.
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

// Stall records that running sequence s makes no progress for now, because its client does not read. No request waits
// for a stalled one; Stall returns those that did. Stall(s, false) ends the stall.
func (t *Tree) Stall(s Seq, stalled bool) (wake []uint64) {
	t.generation++
	q := t.running(s)
	q.stalled = stalled
	if stalled && q.waited > 0 {
		return t.wakeUp(s, noLimit)
	}
	return nil
}

// Cut removes the n cells from position from on of running sequence s and moves the later ones down: a context shift,
// or a dropped thought. tokens is the request's slice without the removed tokens. The moved cells were computed with
// the removed ones in view; they cannot be shared, and Retain does not keep them. Cut fails and changes nothing when
// any cell from position from on is shared, because the shift would move it in the other sequences too.
func (t *Tree) Cut(s Seq, tokens []Token, from, n int) (Released, error) {
	t.generation++
	q := t.running(s)
	length := t.length(s)
	switch {
	case t.cfg.Seals:
		return Released{}, errors.New("kvsnap: cut a sequence: this memory cannot remove a range")
	case from < 0 || n < 1 || from+n > length || len(tokens) < length-n:
		return Released{},
			fmt.Errorf("kvsnap: cut a sequence: %d cells from position %d are not in its %d cells and %d tokens",
				n, from, length, len(tokens))
	case t.own(s) < length-from:
		return Released{}, fmt.Errorf("kvsnap: cut a sequence: %d cells from position %d on are shared",
			length-from-t.own(s), from)
	}
	t.cutCells(s, from, n)
	q.tokens, q.limit = tokens, min(q.limit, from)
	t.actions = append(t.actions[:0], Action{Kind: Remove, Src: NoSeq, Dst: s, From: from, To: from + n})
	if from+n < length {
		t.actions = append(t.actions, Action{Kind: Shift, Src: NoSeq, Dst: s, From: from + n, To: -1, Delta: -n})
	}
	return Released{Actions: t.actions, Wake: t.wakeUp(s, noLimit)}, nil
}

// segment is a run of cells with one tier.
type segment struct {
	cells int
	tier  blocks.Tier
}

// cutCells takes n cells from position from on out of s, to which all cells behind from belong alone.
func (t *Tree) cutCells(s Seq, from, n int) {
	t.segments = t.segments[:0]
	for i := t.seqs[s].tip; t.nodes[i].end > from; i = t.nodes[i].parent {
		x := &t.nodes[i]
		start := max(x.start, from)
		cut := max(0, min(x.end, from+n)-start)
		t.segments = append(t.segments, segment{x.end - start - cut, x.span.Tier()})
	}
	t.shorten(s, from)
	for _, g := range slices.Backward(t.segments) {
		if g.cells > 0 {
			t.extend(s, g.cells, g.tier)
		}
	}
}
