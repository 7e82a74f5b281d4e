package kvsnap

import (
	"slices"

	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// Release ends a running request and caches nothing.
func (t *Tree) Release(s Seq) Released {
	t.generation++
	t.running(s)
	t.actions = t.actions[:0]
	wake := t.wakeUp(s, noLimit)
	t.drop(s)
	t.verify()
	return Released{Actions: t.actions, Wake: wake}
}

// drop frees sequence id s and appends the removal of its cells to the actions.
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
	*q = sequence{hashes: q.hashes[:0], stops: q.stops[:0]}
	if had > 0 {
		t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, To: -1})
	}
	return freed
}

// Park takes running sequence s away from its request, which was preempted, and keeps all that was computed as a cached
// prefix. Its cells keep their tiers until the request acquires a sequence again or Cancel says that it has ended.
func (t *Tree) Park(now Instant, s Seq) Released {
	q, before := t.running(s), t.ledger.AnswerBlocks()
	for i := q.tip; i != root && t.nodes[i].refs() == 1; i = t.nodes[i].parent {
		n := &t.nodes[i]
		t.ledger.Evict(&n.span, n.span.Cells(), blocks.Preempted)
	}
	t.ledger.Interrupted(before)
	return t.keep(now, s, q.tokens[:t.length(s)], true)
}

// Retain ends a running request and keeps its longest computed prefix that agrees with history as a cached prefix.
// history is the tokens with which the next turn is expected to begin; it may be longer or shorter than the computed
// tokens, and nil keeps nothing.
//
// If a longer cached prefix of the namespace begins with all of it, that one remains and Entry names it. Shorter
// cached prefixes with which it begins are merged into it, unless they are pinned.
func (t *Tree) Retain(now Instant, s Seq, history []Token) Released {
	return t.keep(now, s, history, false)
}

// keep is Retain, or Park when parked is set.
func (t *Tree) keep(now Instant, s Seq, history []Token, parked bool) Released {
	t.generation++
	q := t.running(s)
	t.actions = t.actions[:0]
	wake := t.wakeUp(s, noLimit)
	computed := t.length(s)
	keep := min(CommonPrefix(q.tokens[:computed], history), q.limit)
	// A memory that cannot remove ranges cannot keep part of a sequence.
	if keep < t.cfg.KeepMin || t.cfg.Seals && keep < computed {
		t.drop(s)
		return Released{Actions: t.actions, Wake: wake}
	}
	if keep < computed {
		t.shorten(s, keep)
		t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: keep, To: -1})
	}
	prompt := len(q.hashes)
	q.hashes = q.hashes[:min(prompt, keep/blockTokens)]
	q.tokens = slices.Clone(q.tokens[:keep])
	q.hashes = hashBlocks(q.hashes, q.ns, q.tokens)
	for i := prompt; i < len(q.hashes); i++ {
		t.sketch.add(q.hashes[i]) // Acquire counted the prompt's blocks
	}
	h := blocks.Holders{Running: -1}
	if parked {
		h.Parked = 1
	}
	t.addToPath(q.tip, root, h)
	q.state, q.limit, q.stalled, q.shareable, q.parked = cached, noLimit, false, min(q.shareable, keep), parked
	q.made = t.generation
	q.stops = q.stops[:0]
	t.stats.Runs--
	t.stats.Entries++
	t.touch(now, s)
	if t.cfg.Seals {
		if same := t.sealed(s); same != NoSeq && !parked {
			inherit(&t.seqs[same], q)
			t.stats.Merged++
			t.drop(s)
			return Released{Entry: t.seqs[same].entry, Kept: keep, Actions: t.actions, Wake: wake}
		}
	} else if longer := t.merge(s); longer != NoSeq {
		return Released{Entry: t.seqs[longer].entry, Kept: keep, Actions: t.actions, Wake: wake}
	}
	t.compactPath(s)
	t.entries++
	q.entry = t.entries
	q.turns++
	q.used = now
	t.stats.Retained++
	entry := q.entry
	if t.cfg.Seals {
		t.thin(s)
	}
	t.verify()
	return Released{Entry: entry, Kept: keep, Actions: t.actions, Wake: wake}
}

// merge drops the cached prefixes with which the new one, s, begins. If a longer one begins with s, merge drops s and
// returns the longer one. Parked prefixes are not dropped.
func (t *Tree) merge(s Seq) (longer Seq) {
	q := &t.seqs[s]
	for i := range t.seqs {
		o := &t.seqs[i]
		if Seq(i) == s || o.state != cached || o.ns != q.ns {
			continue
		}
		if n := min(len(o.hashes), len(q.hashes)); n > 0 && o.hashes[n-1] != q.hashes[n-1] {
			continue // the hashes differ, so the tokens do
		}
		n := CommonPrefix(o.tokens, q.tokens)
		switch {
		case n == len(q.tokens) && (n < len(o.tokens) || o.pinned) && !q.parked && n <= t.Whole(Seq(i)):
			inherit(o, q)
			t.stats.Merged++
			t.drop(s)
			return Seq(i)
		case n == len(o.tokens) && !o.pinned && !o.parked:
			inherit(q, o)
			t.raiseValue(s, &t.nodes[o.tip].span)
			t.stats.Merged++
			t.drop(Seq(i))
		}
	}
	return NoSeq
}

// raiseValue raises the value of all that s holds to at least that of from, the end of a cached prefix that s
// continues.
func (t *Tree) raiseValue(s Seq, from *blocks.Span) {
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		t.ledger.Inherit(&t.nodes[i].span, from)
	}
}

// inherit adds the history of merged cached prefix from to the one that remains.
func inherit(to, from *sequence) {
	to.hits = max(to.hits, from.hits)
	to.turns = max(to.turns, from.turns)
	to.used = max(to.used, from.used)
	to.created = min(to.created, from.created)
	to.shareable = max(to.shareable, from.shareable)
}
