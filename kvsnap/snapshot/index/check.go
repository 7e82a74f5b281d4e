package index

import (
	"fmt"
	"slices"
)

// Check verifies the invariants; for tests and invariant builds.
func (x *Index) Check() error {
	for k, n := range x.nodes {
		switch {
		case n.Key != k:
			return fmt.Errorf("node %x filed under %x", n.Key[:4], k[:4])
		case n.usable && n.P0 > 0 && n.Parent == nil:
			return fmt.Errorf("[%d, %d) is usable without a parent", n.P0, n.P1)
		case !n.usable && n.P0 == 0 && !n.Named:
			return fmt.Errorf("[0, %d) is not usable", n.P1)
		case n.Named && (n.usable || n.Parent != nil || slices.Contains(x.after[n.After], n)):
			return fmt.Errorf("[%d, %d) is named, and found by its tokens", n.P0, n.P1)
		case !n.usable && x.parentFor(n) != nil:
			return fmt.Errorf("[%d, %d) waits although a parent is there", n.P0, n.P1)
		}
		if p := n.Parent; p != nil && (!n.usable || !p.usable || x.nodes[p.Key] != p || p.P1 != n.P0 ||
			p.After != n.Before || !visible(p.Namespace, n.Namespace)) {
			return fmt.Errorf("[%d, %d) has a parent [%d, %d) that is not one", n.P0, n.P1, p.P0, p.P1)
		}
		if n.usable && len(n.marks) != n.P1/Block-n.P0/Block {
			return fmt.Errorf("[%d, %d) is filed at %d places", n.P0, n.P1, len(n.marks))
		}
	}
	through, ends := 0, 0
	for _, s := range x.slots {
		if len(s.through)+len(s.ends) == 0 {
			return fmt.Errorf("there is an empty slot")
		}
		for _, n := range slices.Concat(s.through, s.ends) {
			if !n.usable || x.nodes[n.Key] != n {
				return fmt.Errorf("[%d, %d) is filed but not usable", n.P0, n.P1)
			}
		}
		through += len(s.through)
		ends += len(s.ends)
	}
	for _, n := range x.nodes {
		if n.usable {
			through -= len(n.marks)
			ends--
		}
	}
	if through != 0 || ends != 0 {
		return fmt.Errorf("%d surplus places and %d surplus ends are filed", through, ends)
	}
	return nil
}

// Check verifies the queue's sums.
func (q *Queue) Check() error {
	n, tokens := 0, int64(0)
	for _, l := range [...]*list{&q.trial, &q.kept} {
		sum := int64(0)
		for e := l.root.next; e != &l.root; e = e.next {
			if e.list != l || e.next.prev != e {
				return fmt.Errorf("queue links are broken at [%d, %d)", e.node.P0, e.node.P1)
			}
			sum += e.Bytes
			if n++; !e.node.Named {
				tokens += int64(len(e.node.Tokens))
			}
		}
		if sum != l.bytes {
			return fmt.Errorf("queue counts %d bytes, its elements have %d", l.bytes, sum)
		}
	}
	if n != q.n || tokens != q.tokens {
		return fmt.Errorf("queue counts %d parts of %d tokens, has %d of %d", q.n, q.tokens, n, tokens)
	}
	return nil
}
