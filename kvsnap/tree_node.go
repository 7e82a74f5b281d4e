package kvsnap

// root is the node of the empty prefix.
const root int32 = 0

// node is a run of cells, positions [start, end), that the same sequences hold. The path from the root to a sequence's
// tip is what the sequence holds.
//
// Unlike in a textbook radix tree two children of a node may begin with the same token: two requests that computed the
// same text side by side hold different cells, and it is cells that are counted here.
type node struct {
	parent     int32
	first      int32 // children, a doubly linked list by next and prev; -1 = none
	next, prev int32
	start, end int // Invariant: start == parent's end, start < end (but for the root)
	refs       int // sequences that hold it. Invariant: ≥ 1 (but for the root)
	runs       int // of them: running requests
	pins       int // of them: pinned
	tips       int // of them: those that end here. Invariant: refs == tips + Σ refs of the children
	holder     Seq // one of them, in whose tokens it can be read. Invariant: its path goes through this node
	used       Instant
	value      float64 // what it is worth to keep, see Tree.worth

	// Written and read within one match: mark says for which one, lim up to which position the namespace sees the node,
	// and via through which sequence.
	mark uint32
	lim  int
	via  Seq
}

// class is what a node's cells count as in Cells.
func (t *Tree) class(n *node) *int {
	switch {
	case n.runs > 0 && n.refs == 1:
		return &t.cells.Own
	case n.runs > 0:
		return &t.cells.Shared
	case n.pins > 0:
		return &t.cells.Pinned
	}
	return &t.cells.Cached
}

// change adds to the counts of node i and keeps the sums of cells right. A node that nobody holds any more has given
// its cells back.
func (t *Tree) change(i int32, refs, runs, pins int) {
	n := &t.nodes[i]
	size := n.end - n.start
	if n.refs > 0 {
		*t.class(n) -= size
		t.cells.Free += size
	}
	n.refs, n.runs, n.pins = n.refs+refs, n.runs+runs, n.pins+pins
	if n.refs > 0 {
		*t.class(n) += size
		t.cells.Free -= size
	}
}

// along applies change to the nodes from i up to, not including, stop.
func (t *Tree) along(i, stop int32, refs, runs, pins int) {
	for ; i != stop; i = t.nodes[i].parent {
		t.change(i, refs, runs, pins)
	}
}

// grow moves node i's end by n cells that its one sequence has computed.
func (t *Tree) grow(i int32, n int) {
	t.nodes[i].end += n
	*t.class(&t.nodes[i]) += n
	t.cells.Free -= n
}

// newNode takes a node out of the arena and puts it below parent, held by nobody.
func (t *Tree) newNode(parent int32, start, end int, holder Seq) int32 {
	i := t.spare[len(t.spare)-1] // Tree.reserve was called
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

func (t *Tree) freeNode(i int32) {
	t.unlink(i)
	t.nodes[i].refs = 0
	t.spare = append(t.spare, i)
}

// split cuts node i at position at, start < at < end, and returns the upper half; i stays the lower one, where its
// tips and children are.
func (t *Tree) split(i int32, at int) int32 {
	n := &t.nodes[i]
	t.unlink(i)
	u := t.newNode(n.parent, n.start, at, n.holder)
	up := &t.nodes[u]
	up.refs, up.runs, up.pins, up.used, up.value = n.refs, n.runs, n.pins, n.used, n.value
	n.start, n.parent = at, u
	t.link(i)
	return u
}

// lonely reports whether node i could be one with its only child: no sequence ends between them.
func (t *Tree) lonely(i int32) bool {
	n := &t.nodes[i]
	return i != root && n.refs > 0 && n.tips == 0 && n.first >= 0 && t.nodes[n.first].next < 0
}

// compact joins node i to its only child, unless i is worth more: a system prompt that many ask for must not lend its
// worth to the one text behind it that happens to be left.
func (t *Tree) compact(i int32) {
	if t.lonely(i) && t.nodes[i].value <= t.nodes[t.nodes[i].first].value {
		t.join(i)
	}
}

// tidy compacts the path of s.
func (t *Tree) tidy(s Seq) {
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		for p := t.nodes[i].parent; t.lonely(p) && t.nodes[p].value <= t.nodes[i].value; p = t.nodes[i].parent {
			t.join(p)
		}
	}
}

// reserve makes sure of a spare node, before anything is changed: when the arena is full it joins what compact has left
// apart. Each sequence ends in one node and a node in which none ends has two children then: fewer nodes than twice the
// sequences.
func (t *Tree) reserve() {
	if len(t.spare) > 0 {
		return
	}
	for i := range t.nodes {
		if t.lonely(int32(i)) {
			t.join(int32(i))
		}
	}
}

// join makes lonely node i and its child one; the child's index stays.
func (t *Tree) join(i int32) {
	n := &t.nodes[i]
	c := n.first
	child := &t.nodes[c]
	t.unlink(c)
	child.start, child.parent = n.start, n.parent
	child.used, child.value = max(child.used, n.used), max(child.value, n.value)
	t.freeNode(i)
	t.link(c)
}

// at is the node of s's path that holds position pos-1, so that a sequence of length pos would end in it; the root for
// pos 0.
func (t *Tree) at(s Seq, pos int) int32 {
	i := t.seqs[s].tip
	for t.nodes[i].start >= pos && i != root {
		i = t.nodes[i].parent
	}
	return i
}

// cut returns the node in which a sequence that holds the first pos cells of s would end, splitting one for it.
func (t *Tree) cut(s Seq, pos int) int32 {
	t.reserve()
	i := t.at(s, pos)
	if pos < t.nodes[i].end {
		return t.split(i, pos)
	}
	return i
}

// counts are what sequence s adds to refs, runs and pins of its nodes.
func (q *sequence) counts() (refs, runs, pins int) {
	refs = 1
	if q.state == running {
		runs = 1
	} else if q.fixed() {
		pins = 1
	}
	return refs, runs, pins
}

// hold makes s, which holds nothing, hold the path to node i.
func (t *Tree) hold(s Seq, i int32) {
	q := &t.seqs[s]
	q.tip = i
	t.nodes[i].tips++
	refs, runs, pins := q.counts()
	t.along(i, root, refs, runs, pins)
}

// shorten makes s hold its first keep cells only and returns how many cells became free.
func (t *Tree) shorten(s Seq, keep int) (freed int) {
	before := t.cells.Free
	q := &t.seqs[s]
	refs, runs, pins := q.counts()
	stop := t.cut(s, keep)
	i := q.tip
	t.nodes[i].tips--
	q.tip = stop
	t.nodes[stop].tips++
	for i != stop {
		n := &t.nodes[i]
		parent := n.parent
		t.change(i, -refs, -runs, -pins)
		if n.refs == 0 {
			t.freeNode(i)
		} else {
			if n.holder == s {
				n.holder = t.otherHolder(i)
			}
			t.compact(i)
		}
		i = parent
	}
	return t.cells.Free - before
}

// otherHolder finds a sequence that holds node i, whose children's holders are right.
func (t *Tree) otherHolder(i int32) Seq {
	if c := t.nodes[i].first; c >= 0 {
		return t.nodes[c].holder
	}
	for s := range t.seqs {
		if t.seqs[s].state != free && t.seqs[s].tip == i {
			return Seq(s)
		}
	}
	panic("kvsnap: a node is held by nobody")
}

// length is how many cells s holds.
func (t *Tree) length(s Seq) int { return t.nodes[t.seqs[s].tip].end }

// own is how many cells only s holds.
func (t *Tree) own(s Seq) (n int) {
	for i := t.seqs[s].tip; i != root && t.nodes[i].refs == 1; i = t.nodes[i].parent {
		n += t.nodes[i].end - t.nodes[i].start
	}
	return n
}
