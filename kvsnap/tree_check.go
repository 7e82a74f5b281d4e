package kvsnap

import "fmt"

// Check recomputes the counts of cells and verifies every invariant that a field states. O(cells).
func (t *Tree) Check() error {
	type count struct{ refs, runs, pins, tips int }
	counts := make([]count, len(t.nodes))
	waited := make([]int, len(t.seqs))
	runs, entries := 0, 0
	numbers := map[uint64]bool{}
	for s := range t.seqs {
		q := &t.seqs[s]
		if q.state == free {
			continue
		}
		refs, run, pin := q.counts()
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
			counts[i].refs += refs
			counts[i].runs += run
			counts[i].pins += pin
			if got, want := n.start+CommonPrefix(q.tokens[n.start:n.end], t.seqs[n.holder].tokens[n.start:n.end]),
				min(n.end, max(n.start, q.limit)); got < want {
				return fmt.Errorf("%w: sequences %d and %d share node %d and differ at %d", errBroken, s, n.holder, i,
					got)
			}
		}
		switch q.state {
		case running:
			runs++
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
		}
	}
	var c Cells
	linked := 0
	for i := range t.nodes {
		n, k := &t.nodes[i], counts[i]
		if i == int(root) || k.refs == 0 {
			continue
		}
		linked++
		if n.refs != k.refs || n.runs != k.runs || n.pins != k.pins || n.tips != k.tips {
			return fmt.Errorf("%w: node %d says %d refs, %d runs, %d pins, %d tips; there are %v", errBroken, i, n.refs,
				n.runs, n.pins, n.tips, k)
		}
		if q := &t.seqs[n.holder]; q.state == free || t.nodeAt(n.holder, n.end) != int32(i) {
			return fmt.Errorf("%w: node %d names sequence %d, which does not hold it", errBroken, i, n.holder)
		}
		switch size := n.end - n.start; {
		case k.runs == 1 && k.refs == 1:
			c.Own += size
		case k.runs > 0:
			c.Shared += size
		case k.pins > 0:
			c.Pinned += size
		default:
			c.Cached += size
		}
	}
	c.Free = t.cfg.Cells - c.Own - c.Shared - c.Cached - c.Pinned
	if c != t.cells || c.Free < 0 {
		return fmt.Errorf("%w: the ledger says %+v, the nodes %+v", errBroken, t.cells, c)
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
