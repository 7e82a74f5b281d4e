package kvsnap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// worth returns the number of recent requests for the cells of node i, by the TinyLFU sketch, times the cost of
// computing one of them again. The ledger makes it the node's value (blocks.Ledger.Touch): prompts that are sent once
// evict each other, not a conversation.
func (t *Tree) worth(i int32) float64 {
	n := &t.nodes[i]
	hashes := t.seqs[n.holder].hashes
	often := 1
	if b := min(n.start/blockTokens, len(hashes)-1); b >= 0 {
		often = max(1, t.sketch.estimate(hashes[b]))
	}
	cost := 1 + float64(n.start+n.end)/2/float64(t.cfg.DoubleAt) // a token at position p attends to p others
	return float64(often) * cost
}

// touch records that the nodes of s were used now.
func (t *Tree) touch(now Instant, s Seq) {
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		t.ledger.Touch(&t.nodes[i].span, int64(now), t.worth(i))
	}
}

// goesBefore asks the ledger which of two cached sequences is evicted first. Where it does not distinguish their last
// spans, the older prefix is.
func (t *Tree) goesBefore(a, b Seq) bool { return t.nodeGoesBefore(a, t.seqs[a].tip, b, t.seqs[b].tip) }

// nodeGoesBefore is goesBefore for node i of sequence a and node j of sequence b.
func (t *Tree) nodeGoesBefore(a Seq, i int32, b Seq, j int32) bool {
	if c := t.ledger.Compare(&t.nodes[i].span, &t.nodes[j].span); c != 0 {
		return c < 0
	}
	return t.seqs[a].entry < t.seqs[b].entry
}

// covered reports whether another cached sequence of the namespace holds all cells of cached sequence s.
func (t *Tree) covered(s Seq) bool {
	q := &t.seqs[s]
	if t.nodes[q.tip].refs() == 1 {
		return false
	}
	for o := range t.seqs {
		if c := &t.seqs[o]; Seq(o) != s && c.state == cached && c.ns == q.ns && t.length(Seq(o)) >= t.length(s) &&
			t.nodeAt(Seq(o), t.length(s)) == q.tip {
			return true
		}
	}
	return false
}

// cheapestID returns the cached prefix, other than spare, whose id can be freed at the least loss: a covered one first
// that no preempted request needs, then the first in the eviction order. NoSeq when there is none.
func (t *Tree) cheapestID(spare Seq) Seq {
	best, bestCovered := NoSeq, false
	for i := range t.seqs {
		s := Seq(i)
		if q := &t.seqs[i]; q.state != cached || q.pinned || q.ingesting || s == spare {
			continue
		}
		// A covered seal is not worthless: prompts can return to its end only through it.
		c := !t.seqs[i].parked && !t.cfg.Seals && t.covered(s)
		if best == NoSeq || c && !bestCovered || c == bestCovered && t.goesBefore(s, best) {
			best, bestCovered = s, c
		}
	}
	return best
}

// firstToGo returns the node that is first in the eviction order, and a cached prefix that holds it, of those whose
// eviction frees cells and strands none: the ends of cached prefixes, and the thoughts that Offloadable named. A node
// with children is skipped, because later tokens attend to its cells. NoSeq when there is none.
func (t *Tree) firstToGo() (best Seq, node int32) {
	best = NoSeq
	offer := func(s Seq, i int32) {
		if best == NoSeq || t.nodeGoesBefore(s, i, best, node) {
			best, node = s, i
		}
	}
	for i := range t.seqs {
		s := Seq(i)
		q := &t.seqs[i]
		if q.state != cached || q.tip == root {
			continue
		}
		if n := &t.nodes[q.tip]; n.first < 0 && n.span.State() == blocks.Cached {
			offer(s, q.tip)
		}
		if q.awayTo > 0 && !q.ingesting {
			if i := t.thoughtNode(s); i != root && i != q.tip && !t.away(i) &&
				t.nodes[i].span.State() == blocks.Cached {
				offer(s, i)
			}
		}
	}
	return best, node
}

// EvictCells frees at least n cells held by cached prefixes, or all Cells.Cached if those are fewer: in the ledger's
// order, tails before heads. Copy the victims' cells first if they are wanted, then carry out the actions. Both slices
// are valid until the next call.
func (t *Tree) EvictCells(n int) (freed int, victims []Victim, actions []Action) {
	return t.EvictAhead(n, n)
}

// EvictAhead frees n cells as EvictCells does, and then up to most cells while no cell of an answer would go: fewer,
// larger evictions cost less, but no answer is evicted ahead of need.
func (t *Tree) EvictAhead(n, most int) (freed int, victims []Victim, actions []Action) {
	t.generation++
	t.actions, t.victims = t.actions[:0], t.victims[:0]
	answers := t.ledger.AnswerBlocks()
	for {
		s, i := t.firstToGo()
		if s == NoSeq {
			break
		}
		node := &t.nodes[i]
		if node.span.Tier() == blocks.OutputCritical {
			most = n // nor the cells before the answer
		}
		want := max(n, most)
		if freed >= want {
			break
		}
		t.ledger.RaiseLevel(&node.span)
		if i != t.seqs[s].tip {
			freed += t.evictThought(s, i)
			continue
		}
		// Evict whole blocks from the end. A remainder shorter than KeepMin goes too.
		from := node.end - (want-freed+blockTokens-1)/blockTokens*blockTokens
		if from-node.start < t.cfg.KeepMin {
			from = node.start
		}
		if p := node.parent; from == node.start && p != root && t.away(p) {
			from = t.nodes[p].start // nothing is left behind the offloaded thought
		}
		// A head that is not worth caching goes too, and a memory that cannot remove ranges drops whole sequences only.
		if from < t.cfg.KeepMin || t.cfg.Seals {
			from = 0
		}
		before, victim := t.ledger.Free(), node.span
		for o := range t.seqs { // every cached prefix that ends in this node holds its cells
			if t.seqs[o].state == cached && t.seqs[o].tip == i && t.seqs[o].tip != root {
				t.evictTail(Seq(o), from, &victim)
			}
		}
		freed += t.ledger.Free() - before
	}
	t.ledger.Interrupted(answers)
	t.stats.Evictions += uint64(len(t.victims))
	t.stats.EvictedCells += uint64(freed)
	t.verify()
	return freed, t.victims, t.actions
}

// evictTail shortens cached prefix s to its first keep tokens and records it as a victim. span is a copy of its last
// node's span, under which the ledger counts the cells.
func (t *Tree) evictTail(s Seq, keep int, span *blocks.Span) {
	q := &t.seqs[s]
	v := Victim{Entry: q.entry, NS: q.ns, Seq: s, Tokens: q.tokens, From: keep, To: len(q.tokens), Whole: t.Whole(s),
		Tier: span.Tier(), Offload: q.hits > 0 || q.turns > 1}
	if q.parked {
		v.Req = q.req
	}
	k := slices.IndexFunc(t.victims, func(o Victim) bool { return o.Entry == v.Entry })
	if k < 0 {
		k = len(t.victims)
		t.victims = append(t.victims, v)
	}
	before := t.ledger.Free()
	if keep > 0 {
		t.shorten(s, keep)
		if !t.covered(s) {
			q.clip(keep)
			t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: keep, To: -1})
		} else {
			keep = 0 // another prefix holds the remainder
		}
	}
	if keep == 0 {
		t.drop(s)
	}
	freed := t.ledger.Free() - before
	t.ledger.Evict(span, freed, blocks.Pressure)
	o := &t.victims[k]
	o.From = min(o.From, keep)
	o.Freed += freed
	o.Bytes = t.ledger.Bytes(o.Freed)
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

// Pin excludes a cached prefix from eviction. At most half of the cells and half of the sequence ids can be pinned, so
// that requests always find room.
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
	// Shared cells count once for each prefix, so cells is an upper bound.
	for o := range t.seqs {
		if t.seqs[o].state == cached && t.seqs[o].pinned {
			ids++
			cells += t.length(Seq(o))
		}
	}
	if ids > len(t.seqs)/2 || cells > t.cfg.Cells/2 {
		return fmt.Errorf("pin cached prefix %d: %d of %d sequence ids and %d of %d cells would be pinned, at most "+
			"half can be: "+
			"unpin another prefix first", entry, ids, len(t.seqs), cells, t.cfg.Cells)
	}
	t.setPinned(s, true)
	return nil
}

// Unpin makes a cached prefix evictable again.
func (t *Tree) Unpin(entry uint64) error {
	s, err := t.lookup(entry)
	if err != nil {
		return fmt.Errorf("unpin: %w", err)
	}
	if t.seqs[s].pinned {
		t.setPinned(s, false)
	}
	return nil
}

// setPinned changes whether cached prefix s is pinned.
func (t *Tree) setPinned(s Seq, pinned bool) {
	t.generation++
	q := &t.seqs[s]
	if q.pinned = false; !q.ingesting { // one that is ingesting is kept already
		t.pinPath(s, pinned)
	}
	q.pinned = pinned
	t.verify()
}

// Drop removes a cached prefix, even a pinned one. Cells that other sequences hold stay theirs.
func (t *Tree) Drop(entry uint64) (Released, error) {
	s, err := t.lookup(entry)
	if err != nil {
		return Released{}, fmt.Errorf("drop: %w", err)
	}
	t.generation++
	t.actions = t.actions[:0]
	last := t.nodes[t.seqs[s].tip].span
	t.ledger.Evict(&last, t.drop(s), blocks.Dropped)
	t.verify()
	return Released{Actions: t.actions}, nil
}

// Tokens returns the tokens of a cached prefix. The caller must not change them.
func (t *Tree) Tokens(entry uint64) ([]Token, error) {
	s, err := t.lookup(entry)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return t.seqs[s].tokens, nil
}

// errBroken is wrapped by every error of Check.
var errBroken = errors.New("kvsnap: invariant broken")
