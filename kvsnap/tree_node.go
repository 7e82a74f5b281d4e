package kvsnap

import "github.com/uma-serve/uma-serve/meridian/blocks"

// root is the node of the empty prefix.
const root int32 = 0

// node is a run of cells, positions [start, end), that the same sequences hold and that have one tier. A sequence holds
// the nodes from the root to its tip.
//
// Unlike in a textbook radix tree, two children of a node may begin with the same token: requests that computed the
// same text at the same time hold different cells, and the ledger counts cells.
type node struct {
	parent     int32
	first      int32 // first child; the children are a list linked by next and prev; -1 = none
	next, prev int32
	start, end int // Invariant: start == parent's end, start < end (except for the root)
	// Invariant: end - start cells, in the pool or offloaded, and a holder (the root has neither)
	span   blocks.Span
	tips   int // sequences that end here. Invariant: span's holders == tips + Σ holders of the children
	holder Seq // one of them, whose tokens are the node's. Invariant: its path goes through this node

	// Valid during match number matchNo only: the namespace sees the node up to position lim, through sequence via.
	matchNo uint32
	lim     int
	via     Seq
}

// refs returns the number of sequences that hold the node.
func (n *node) refs() int { return n.span.Holders().All }

// runs returns the number of running requests among the holders.
func (n *node) runs() int { return n.span.Holders().Running }

// pins returns the number of pinned or ingesting prefixes among the holders.
func (n *node) pins() int { return n.span.Holders().Pinned }

// addToPath adds h to the holders of the nodes from i up to, not including, stop.
func (t *Tree) addToPath(i, stop int32, h blocks.Holders) {
	for ; i != stop; i = t.nodes[i].parent {
		t.ledger.Hold(&t.nodes[i].span, h)
	}
}

// extend gives running sequence s n free cells of a tier behind those that it holds.
func (t *Tree) extend(s Seq, n int, tier blocks.Tier) {
	q := &t.seqs[s]
	tip := &t.nodes[q.tip]
	if q.tip != root && tip.refs() == 1 && tip.span.Tier() == tier {
		tip.end += n
		t.ledger.Grow(&tip.span, n)
		return
	}
	t.reserve()
	i := t.newNode(q.tip, tip.end, tip.end+n, s)
	tip.tips--
	t.nodes[i].tips, q.tip = 1, i
	t.ledger.Allocate(&t.nodes[i].span, tier, n, q.counts())
}

// newNode takes a node out of the arena and links it below parent, with an empty span. Call reserve first.
func (t *Tree) newNode(parent int32, start, end int, holder Seq) int32 {
	i := t.spare[len(t.spare)-1]
	t.spare = t.spare[:len(t.spare)-1]
	t.nodes[i] = node{parent: parent, first: -1, next: -1, prev: -1, start: start, end: end, holder: holder}
	t.link(i)
	return i
}

func (t *Tree) link(i int32) {
	n := &t.nodes[i]
	p := &t.nodes[n.parent]
	n.prev, n.next = -1, p.first
	if p.first >= 0 {
		t.nodes[p.first].prev = i
	}
	p.first = i
}

func (t *Tree) unlink(i int32) {
	n := &t.nodes[i]
	if n.prev >= 0 {
		t.nodes[n.prev].next = n.next
	} else {
		t.nodes[n.parent].first = n.next
	}
	if n.next >= 0 {
		t.nodes[n.next].prev = n.prev
	}
}

// freeNode returns node i, whose span has no holders, to the arena.
func (t *Tree) freeNode(i int32) {
	t.unlink(i)
	t.nodes[i].span = blocks.Span{}
	t.spare = append(t.spare, i)
}

// split divides node i at position at, start < at < end, and returns the new upper half. Node i becomes the lower half
// and keeps its tips and children.
func (t *Tree) split(i int32, at int) int32 {
	n := &t.nodes[i]
	t.unlink(i)
	u := t.newNode(n.parent, n.start, at, n.holder)
	t.ledger.Split(&t.nodes[u].span, &n.span, at-n.start)
	n.start, n.parent = at, u
	t.link(i)
	return u
}

// joinable reports whether node i can be joined with its only child: no sequence ends between them.
func (t *Tree) joinable(i int32) bool {
	n := &t.nodes[i]
	return i != root && n.refs() > 0 && n.tips == 0 && n.first >= 0 && t.nodes[n.first].next < 0 && !t.away(i) &&
		!t.away(n.first)
}

// fit reports whether node i and its child c are alike enough to be joined: they have one tier, and i is not more
// valuable. The value of a system prompt that many requests use must not pass to the one text behind it that is left.
func (t *Tree) fit(i, c int32) bool {
	upper, lower := &t.nodes[i].span, &t.nodes[c].span
	return upper.Tier() == lower.Tier() && !t.ledger.MoreValuable(upper, lower)
}

// compact joins node i with its only child if they fit.
func (t *Tree) compact(i int32) {
	if t.joinable(i) && t.fit(i, t.nodes[i].first) {
		t.join(i)
	}
}

// compactPath compacts the path of s.
func (t *Tree) compactPath(s Seq) {
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		for p := t.nodes[i].parent; t.joinable(p) && t.fit(p, i); p = t.nodes[i].parent {
			t.join(p)
		}
	}
}

// reserve ensures that there is a spare node. When the arena is full, it joins every joinable node, whether or not it
// fits its child. Then each node has a tip or at least two children, or is beside one of at most one offloaded
// thought a sequence, so there are fewer nodes than four times the sequences.
func (t *Tree) reserve() {
	if len(t.spare) > 0 {
		return
	}
	for i := range t.nodes {
		if t.joinable(int32(i)) {
			t.join(int32(i))
		}
	}
}

// join merges joinable node i into its child, whose index remains.
func (t *Tree) join(i int32) {
	n := &t.nodes[i]
	c := n.first
	child := &t.nodes[c]
	t.unlink(c)
	child.start, child.parent = n.start, n.parent
	t.ledger.Join(&n.span, &child.span)
	t.freeNode(i)
	t.link(c)
}

// nodeAt returns the node of s's path that holds position pos-1; the root for pos 0.
func (t *Tree) nodeAt(s Seq, pos int) int32 {
	i := t.seqs[s].tip
	for t.nodes[i].start >= pos && i != root {
		i = t.nodes[i].parent
	}
	return i
}

// nodeEndingAt returns the node of s's path that ends at position pos. It splits a node if there is none.
func (t *Tree) nodeEndingAt(s Seq, pos int) int32 {
	t.reserve()
	i := t.nodeAt(s, pos)
	if pos < t.nodes[i].end {
		return t.split(i, pos)
	}
	return i
}

// counts returns what a sequence adds to the holders of its nodes.
func (q *sequence) counts() blocks.Holders {
	h := blocks.Holders{All: 1}
	if q.state == running {
		h.Running = 1
	}
	if q.pinned || q.ingesting {
		h.Pinned = 1
	}
	if q.parked {
		h.Parked = 1
	}
	return h
}

// attach makes s, which holds no cells, hold the path to node i.
func (t *Tree) attach(s Seq, i int32) {
	q := &t.seqs[s]
	q.tip = i
	t.nodes[i].tips++
	t.addToPath(i, root, q.counts())
}

// shorten makes s hold its first keep cells only and returns the number of cells that became free.
func (t *Tree) shorten(s Seq, keep int) (freed int) {
	before := t.ledger.Free()
	q := &t.seqs[s]
	leaves := q.counts().Minus()
	stop := t.nodeEndingAt(s, keep)
	i := q.tip
	t.nodes[i].tips--
	q.tip = stop
	t.nodes[stop].tips++
	for i != stop {
		n := &t.nodes[i]
		parent := n.parent
		t.ledger.Hold(&n.span, leaves)
		if n.refs() == 0 {
			t.freeNode(i)
		} else {
			if n.holder == s {
				n.holder = t.otherHolder(i)
			}
			t.compact(i)
		}
		i = parent
	}
	return t.ledger.Free() - before
}

// otherHolder finds a sequence that holds node i. The holders of i's children must be valid.
func (t *Tree) otherHolder(i int32) Seq {
	if c := t.nodes[i].first; c >= 0 {
		return t.nodes[c].holder
	}
	for s := range t.seqs {
		if t.seqs[s].state != free && t.seqs[s].tip == i {
			return Seq(s)
		}
	}
	panic("kvsnap: no sequence holds the node")
}

// length returns the number of cells that s holds.
func (t *Tree) length(s Seq) int { return t.nodes[t.seqs[s].tip].end }

// own returns the number of cells that only s holds.
func (t *Tree) own(s Seq) (n int) {
	for i := t.seqs[s].tip; i != root && t.nodes[i].refs() == 1; i = t.nodes[i].parent {
		n += t.nodes[i].span.Cells()
	}
	return n
}
