package kvsnap

import (
	"errors"
	"fmt"
	"slices"
)

// worth is what a node's cells are worth to keep: how often they were asked for lately, times what one of them costs to
// compute again, on top of the level at which the pool evicts now. This is GreedyDual-Size with frequency (Cherkasova,
// HP Labs technical report HPL-98-69R1, 1998) with the frequencies of a TinyLFU sketch. As the level rises with each
// victim, what is not asked for any more sinks; what was asked for k times outlives k pools full of prompts that were
// asked for once. Prompts that nobody sends again therefore push out each other, not a conversation.
func (t *Tree) worth(i int32) float64 {
	n := &t.nodes[i]
	marks := t.seqs[n.holder].marks
	often := 1
	if b := min(n.start/blockTokens, len(marks)-1); b >= 0 {
		often = max(1, t.sketch.estimate(marks[b]))
	}
	cost := 1 + float64(n.start+n.end)/2/float64(t.cfg.DoubleAt) // a token at position p attends to p others
	return t.level + float64(often)*cost
}

// touch says that all that s holds was used now.
func (t *Tree) touch(now Instant, s Seq) {
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		n := &t.nodes[i]
		n.used = max(n.used, now)
		n.value = max(n.value, t.worth(i))
	}
}

// less orders two cached sequences by what the cells at their ends are worth, the oldest first among equals.
func (t *Tree) less(a, b Seq) bool {
	x, y := &t.nodes[t.seqs[a].tip], &t.nodes[t.seqs[b].tip]
	switch {
	case x.value != y.value:
		return x.value < y.value
	case x.used != y.used:
		return x.used < y.used
	}
	return t.seqs[a].entry < t.seqs[b].entry
}

// covered reports whether cached sequence s could go without a loss: all it holds is held by another cached one of its
// namespace.
func (t *Tree) covered(s Seq) bool {
	q := &t.seqs[s]
	if t.nodes[q.tip].refs == 1 {
		return false
	}
	for o := range t.seqs {
		if c := &t.seqs[o]; Seq(o) != s && c.state == cached && c.ns == q.ns && t.length(Seq(o)) >= t.length(s) && t.at(Seq(o), t.length(s)) == q.tip {
			return true
		}
	}
	return false
}

// cheapestID is the cached prefix whose sequence id is missed least, but for the one to be spared.
func (t *Tree) cheapestID(spare Seq) Seq {
	best, costless := NoSeq, false
	for i := range t.seqs {
		s := Seq(i)
		if q := &t.seqs[i]; q.state != cached || q.fixed() || s == spare {
			continue
		}
		if c := t.covered(s); best == NoSeq || c && !costless || c == costless && t.less(s, best) {
			best, costless = s, c
		}
	}
	return best
}

// cheapestEnd is the cached prefix whose last cells are the least worth keeping, of those that would free any.
func (t *Tree) cheapestEnd() Seq {
	best := NoSeq
	for i := range t.seqs {
		s := Seq(i)
		q := &t.seqs[i]
		if q.state != cached || q.tip == root {
			continue
		}
		if n := &t.nodes[q.tip]; n.first >= 0 || n.runs > 0 || n.pins > 0 {
			continue
		}
		if best == NoSeq || t.less(s, best) {
			best = s
		}
	}
	return best
}

// Evictable is the number of cells EvictCells can free.
func (t *Tree) Evictable() int { return t.cells.Cached }

// EvictCells frees at least n cells held by cached prefixes, or all it can: least worth keeping first, tails before
// heads. The victims say what goes, for a copy to be made first; then carry out the actions. Both slices are valid
// until the next call.
func (t *Tree) EvictCells(n int) (freed int, victims []Victim, actions []Action) {
	t.actions, t.victims = t.actions[:0], t.victims[:0]
	for freed < n {
		s := t.cheapestEnd()
		if s == NoSeq {
			break
		}
		i := t.seqs[s].tip
		node := &t.nodes[i]
		t.level = max(t.level, node.value)
		// From the end, in whole blocks; but no rest that is not worth a cached prefix of its own.
		from := node.end - (n-freed+blockTokens-1)/blockTokens*blockTokens
		if from-node.start < t.cfg.KeepMin || t.cfg.WholeOnly {
			from = node.start
		}
		if from < t.cfg.KeepMin {
			from = 0
		}
		before := t.cells.Free
		for o := range t.seqs { // all that end there
			if t.seqs[o].state == cached && t.seqs[o].tip == i && t.seqs[o].tip != root {
				t.evictTail(Seq(o), from)
			}
		}
		freed += t.cells.Free - before
	}
	t.stats.Evictions += uint64(len(t.victims))
	t.stats.EvictedCells += uint64(freed)
	t.verify()
	return freed, t.victims, t.actions
}

// evictTail cuts cached prefix s down to its first keep tokens and notes it as a victim.
func (t *Tree) evictTail(s Seq, keep int) {
	q := &t.seqs[s]
	v := Victim{Entry: q.entry, NS: q.ns, Seq: s, Tokens: q.tokens, From: keep, To: len(q.tokens), Offload: q.hits > 0 || q.turns > 1}
	k := slices.IndexFunc(t.victims, func(o Victim) bool { return o.Entry == v.Entry })
	if k < 0 {
		k = len(t.victims)
		t.victims = append(t.victims, v)
	}
	before := t.cells.Free
	if keep > 0 {
		t.shorten(s, keep)
		if !t.covered(s) {
			q.tokens = slices.Clip(q.tokens[:keep])
			q.marks = q.marks[:keep/blockTokens]
			q.shareable = min(q.shareable, keep)
			t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: keep, To: -1})
		} else {
			keep = 0 // its rest lives on in another one
		}
	}
	if keep == 0 {
		t.drop(s)
	}
	o := &t.victims[k]
	o.From = min(o.From, keep)
	o.Freed += t.cells.Free - before
	o.Bytes = int64(o.Freed) * int64(t.cfg.CellBytes)
}

// lookup finds the sequence of a cached prefix.
func (t *Tree) lookup(entry uint64) (Seq, error) {
	for s := range t.seqs {
		if t.seqs[s].state == cached && t.seqs[s].entry == entry {
			return Seq(s), nil
		}
	}
	return NoSeq, fmt.Errorf("%w: number %d; list them with uma-cli kv", ErrNoEntry, entry)
}

// Pin keeps a cached prefix from eviction. At most half of the cells and of the sequence ids can be pinned, so that
// requests always find room.
func (t *Tree) Pin(entry uint64) error {
	s, err := t.lookup(entry)
	if err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	q := &t.seqs[s]
	if q.pinned {
		return nil
	}
	ids, cells := 1, t.length(s)
	for o := range t.seqs {
		if t.seqs[o].state == cached && t.seqs[o].pinned {
			ids++
			cells += t.length(Seq(o))
		}
	}
	if ids > len(t.seqs)/2 || cells > t.cfg.Cells/2 {
		return fmt.Errorf("pin cached prefix %d: %w", entry,
			fmt.Errorf("pinned would be %d of %d sequence ids and %d of %d cells, at most half may be: unpin another one first", ids, len(t.seqs), cells, t.cfg.Cells))
	}
	t.fix(s, func() { q.pinned = true })
	return nil
}

// fix carries out what makes a cached prefix stay, or no longer, and counts it.
func (t *Tree) fix(s Seq, change func()) {
	q := &t.seqs[s]
	_, _, before := q.counts()
	change()
	_, _, after := q.counts()
	t.along(q.tip, root, 0, 0, after-before)
	t.verify()
}

// Hold keeps a cached prefix as it is while its cells are copied in slices between steps; Unhold takes one Hold back.
// Unlike Pin it has no limit, and not even Drop removes the prefix meanwhile.
func (t *Tree) Hold(entry uint64) error {
	s, err := t.lookup(entry)
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	t.fix(s, func() { t.seqs[s].holds++ })
	return nil
}

// Unhold takes one Hold back.
func (t *Tree) Unhold(entry uint64) error {
	s, err := t.lookup(entry)
	switch {
	case err != nil:
		return fmt.Errorf("unhold: %w", err)
	case t.seqs[s].holds == 0:
		return fmt.Errorf("unhold: cached prefix %d is not held", entry)
	}
	t.fix(s, func() { t.seqs[s].holds-- })
	return nil
}

// Unpin takes Pin back.
func (t *Tree) Unpin(entry uint64) error {
	s, err := t.lookup(entry)
	if err != nil {
		return fmt.Errorf("unpin: %w", err)
	}
	t.fix(s, func() { t.seqs[s].pinned = false })
	return nil
}

// Drop removes a cached prefix, pinned or not. Cells that others hold stay with them.
func (t *Tree) Drop(entry uint64) (Ended, error) {
	s, err := t.lookup(entry)
	if err != nil {
		return Ended{}, fmt.Errorf("drop: %w", err)
	}
	if t.seqs[s].holds > 0 {
		return Ended{}, fmt.Errorf("drop cached prefix %d: %w; try again in a second", entry, ErrHeld)
	}
	t.actions = t.actions[:0]
	t.drop(s)
	t.verify()
	return Ended{Actions: t.actions}, nil
}

// Tokens are the tokens of a cached prefix; not to be written.
func (t *Tree) Tokens(entry uint64) ([]Token, error) {
	s, err := t.lookup(entry)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return t.seqs[s].tokens, nil
}

// errBroken is what check found.
var errBroken = errors.New("kvsnap: invariant broken")
