package kvsnap

import (
	"fmt"

	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// Check recounts the cells and their holders and verifies every invariant that a field states. O(cells).
func (t *Tree) Check() error {
	type count struct {
		blocks.Holders
		tips int
	}
	counts := make([]count, len(t.nodes))
	waited := make([]int, len(t.seqs))
	runs, entries := 0, 0
	numbers := map[uint64]bool{}
	for s := range t.seqs {
		q := &t.seqs[s]
		if q.state == free {
			continue
		}
		h := q.counts()
		counts[q.tip].tips++
		for i := q.tip; i != root; i = t.nodes[i].parent {
			n := &t.nodes[i]
			if n.start != t.nodes[n.parent].end || n.start >= n.end {
				return fmt.Errorf("%w: node %d is [%d, %d) below one that ends at %d", errBroken, i, n.start, n.end,
					t.nodes[n.parent].end)
			}
			if n.end > len(q.tokens) {
				return fmt.Errorf("%w: sequence %d holds %d cells and %d tokens", errBroken, s, n.end, len(q.tokens))
			}
			c := &counts[i].Holders
			*c = blocks.Holders{
				All: c.All + h.All, Running: c.Running + h.Running, Parked: c.Parked + h.Parked,
				Pinned: c.Pinned + h.Pinned,
			}
			if got, want := n.start+CommonPrefix(q.tokens[n.start:n.end], t.seqs[n.holder].tokens[n.start:n.end]),
				min(n.end, max(n.start, q.limit)); got < want {
				return fmt.Errorf("%w: sequences %d and %d share node %d and differ at %d", errBroken, s, n.holder, i,
					got)
			}
		}
		switch q.state {
		case running:
			if runs++; q.parked || q.pinned {
				return fmt.Errorf("%w: the sequence of running request %d is parked or pinned", errBroken, q.req)
			}
		case cached:
			entries++
			if numbers[q.entry] || q.entry == 0 {
				return fmt.Errorf("%w: cached prefix number %d is zero or not unique", errBroken, q.entry)
			}
			numbers[q.entry] = true
			if len(q.tokens) != t.length(Seq(s)) || len(q.hashes) != len(q.tokens)/blockTokens ||
				q.shareable > len(q.tokens) {
				return fmt.Errorf("%w: cached prefix %d has %d tokens, %d hashes, %d shareable and %d cells", errBroken,
					q.entry, len(q.tokens), len(q.hashes), q.shareable, t.length(Seq(s)))
			}
			if q.stalled || q.limit != noLimit {
				return fmt.Errorf("%w: cached prefix %d is stalled or cut", errBroken, q.entry)
			}
			if !q.parked && (q.ingesting || q.awayTo > 0) || t.away(q.tip) {
				return fmt.Errorf("%w: cached prefix %d is parked %t, ingesting %t, its thought ends at %d of %d",
					errBroken, q.entry, q.parked, q.ingesting, q.awayTo, len(q.tokens))
			}
		}
	}
	linked := 0
	for i := range t.nodes {
		n, k := &t.nodes[i], counts[i]
		if i == int(root) || k.All == 0 {
			continue
		}
		linked++
		if t.away(int32(i)) && t.thoughtNode(n.holder) != int32(i) {
			return fmt.Errorf("%w: node %d [%d, %d) is offloaded and no thought of a parked prefix", errBroken, i,
				n.start, n.end)
		}
		if n.span.Holders() != k.Holders || n.tips != k.tips || n.span.Len() != n.end-n.start {
			return fmt.Errorf("%w: node %d [%d, %d) has %d cells, holders %+v and %d tips; there are %+v", errBroken, i,
				n.start, n.end, n.span.Cells(), n.span.Holders(), n.tips, k)
		}
		if q := &t.seqs[n.holder]; q.state == free || t.nodeAt(n.holder, n.end) != int32(i) {
			return fmt.Errorf("%w: node %d names sequence %d, which does not hold it", errBroken, i, n.holder)
		}
	}
	err := t.ledger.Audit(func(yield func(*blocks.Span) bool) {
		for i := range t.nodes {
			if counts[i].All > 0 && i != int(root) && !yield(&t.nodes[i].span) {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	if t.nodes[root].tips != counts[root].tips || t.nodes[root].end != 0 || linked+1+len(t.spare) != len(t.nodes) {
		return fmt.Errorf("%w: %d tips at the root, %d counted; %d nodes linked and %d spare of %d", errBroken,
			t.nodes[root].tips, counts[root].tips, linked, len(t.spare), len(t.nodes))
	}
	if runs != t.stats.Runs || entries != t.stats.Entries {
		return fmt.Errorf("%w: %d requests run and %d prefixes are cached, counted %d and %d", errBroken, t.stats.Runs,
			t.stats.Entries, runs, entries)
	}
	for _, w := range t.waiters {
		if t.seqs[w.on].state != running || w.until <= t.length(w.on) {
			return fmt.Errorf("%w: request %d waits for %d tokens of sequence %d, which has %d", errBroken, w.req,
				w.until, w.on, t.length(w.on))
		}
		waited[w.on]++
	}
	for s := range t.seqs {
		if waited[s] != t.seqs[s].waited {
			return fmt.Errorf("%w: %d requests wait for sequence %d, which says %d", errBroken, waited[s], s,
				t.seqs[s].waited)
		}
	}
	return nil
}
