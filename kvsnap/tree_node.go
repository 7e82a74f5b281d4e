package kvsnap

// root is the node of the empty prefix.
const root int32 = 0

// node is a run of cells, positions [start, end), that the same sequences hold. A sequence holds the nodes from the
// root to its tip.
//
// Unlike in a textbook radix tree, two children of a node may begin with the same token: requests that computed the
// same text at the same time hold different cells, and the tree counts cells.
type node struct {
	parent     int32
	first      int32 // first child; the children are a list linked by next and prev; -1 = none
	next, prev int32
	start, end int // Invariant: start == parent's end, start < end (except for the root)
	refs       int // sequences that hold it. Invariant: ≥ 1 (except for the root)
	runs       int // of them: running requests
	pins       int // of them: pinned
	tips       int // of them: those that end here. Invariant: refs == tips + Σ refs of the children
	holder     Seq // one of them, whose tokens are the node's. Invariant: its path goes through this node
	used       Instant
	value      float64 // eviction priority, see Tree.valueOf

	// Valid during match number matchNo only: the namespace sees the node up to position lim, through sequence via.
	matchNo uint32
	lim     int
	via     Seq
}

// class returns the field of Cells that counts the node's cells.
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

// addCounts adds to the counts of node i and updates Cells. The cells of a node without references become free.
func (t *Tree) addCounts(i int32, refs, runs, pins int) {
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

// addToPath applies addCounts to the nodes from i up to, not including, stop.
func (t *Tree) addToPath(i, stop int32, refs, runs, pins int) {
	for ; i != stop; i = t.nodes[i].parent {
		t.addCounts(i, refs, runs, pins)
	}
}

// grow adds n newly computed cells to node i, which one sequence holds.
func (t *Tree) grow(i int32, n int) {
	t.nodes[i].end += n
	*t.class(&t.nodes[i]) += n
	t.cells.Free -= n
}

// newNode takes a node out of the arena and links it below parent, without references. Call reserve first.
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

func (t *Tree) freeNode(i int32) {
	t.unlink(i)
	t.nodes[i].refs = 0
	t.spare = append(t.spare, i)
}

// split divides node i at position at, start < at < end, and returns the new upper half. Node i becomes the lower half
// and keeps its tips and children.
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

// joinable reports whether node i can be joined with its only child: no sequence ends between them.
func (t *Tree) joinable(i int32) bool {
	n := &t.nodes[i]
	return i != root && n.refs > 0 && n.tips == 0 && n.first >= 0 && t.nodes[n.first].next < 0
}

// compact joins node i with its only child, unless i is more valuable: the value of a system prompt that many requests
// use must not pass to the one text behind it that is left.
func (t *Tree) compact(i int32) {
	if t.joinable(i) && t.nodes[i].value <= t.nodes[t.nodes[i].first].value {
		t.join(i)
	}
}

// compactPath compacts the path of s.
func (t *Tree) compactPath(s Seq) {
	for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
		for p := t.nodes[i].parent; t.joinable(p) && t.nodes[p].value <= t.nodes[i].value; p = t.nodes[i].parent {
			t.join(p)
		}
	}
}

// reserve ensures that there is a spare node. When the arena is full, it joins every joinable node, regardless of
// value. Then each node has a tip or at least two children, so there are fewer nodes than twice the sequences.
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
	child.used, child.value = max(child.used, n.used), max(child.value, n.value)
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

// counts returns what a sequence adds to the refs, runs and pins of its nodes.
func (q *sequence) counts() (refs, runs, pins int) {
	refs = 1
	if q.state == running {
		runs = 1
	} else if q.pinned {
		pins = 1
	}
	return refs, runs, pins
}

// attach makes s, which holds no cells, hold the path to node i.
func (t *Tree) attach(s Seq, i int32) {
	q := &t.seqs[s]
	q.tip = i
	t.nodes[i].tips++
	refs, runs, pins := q.counts()
	t.addToPath(i, root, refs, runs, pins)
}

// shorten makes s hold its first keep cells only and returns the number of cells that became free.
func (t *Tree) shorten(s Seq, keep int) (freed int) {
	before := t.cells.Free
	q := &t.seqs[s]
	refs, runs, pins := q.counts()
	stop := t.nodeEndingAt(s, keep)
	i := q.tip
	t.nodes[i].tips--
	q.tip = stop
	t.nodes[stop].tips++
	for i != stop {
		n := &t.nodes[i]
		parent := n.parent
		t.addCounts(i, -refs, -runs, -pins)
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
	for i := t.seqs[s].tip; i != root && t.nodes[i].refs == 1; i = t.nodes[i].parent {
		n += t.nodes[i].end - t.nodes[i].start
	}
	return n
}
