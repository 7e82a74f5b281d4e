package index

// Elem is a part's place in one tier's Queue.
type Elem struct {
	node       *Node
	prev, next *Elem
	list       *list
	Bytes      int64 // size in the tier; set by Push
	Hits       uint32
}

// In reports whether the part is in the tier.
func (e *Elem) In() bool { return e.list != nil }

// Kept reports whether the part is in the protected segment, because it was used again: see Queue.
func (e *Elem) Kept() bool { return e.list != nil && e.list.kept }

type list struct {
	root  Elem // sentinel: next is the most recently used, prev the least
	bytes int64
	kept  bool
}

func (l *list) init(kept bool) {
	l.root.next, l.root.prev, l.kept = &l.root, &l.root, kept
}

func (l *list) push(e *Elem) {
	e.prev, e.next, e.list = &l.root, l.root.next, l
	e.prev.next, e.next.prev = e, e
	l.bytes += e.Bytes
}

func (l *list) take(e *Elem) {
	e.prev.next, e.next.prev = e.next, e.prev
	l.bytes -= e.Bytes
	e.prev, e.next, e.list = nil, nil, nil
}

// Queue is the eviction order of a tier: a segmented LRU. A new part enters the probationary segment. Its first hit
// moves it to the protected segment, which holds at most four fifths of the cap and returns its least recently used
// part to the probationary segment. So prompts that are sent once evict each other, not recurring conversations;
// without recurring ones the whole cap serves the newest prompts.
//
// Chains are used from their beginning. Therefore Hit and Push handle a whole chain and leave its beginning more recent
// than its end, so that the end of a chain is evicted first.
type Queue struct {
	Cap         int64 // bytes
	trial, kept list
	n           int
	tokens      int64
}

// NewQueue makes an empty queue with a cap in bytes.
func NewQueue(cap int64) *Queue {
	q := &Queue{Cap: cap}
	q.trial.init(false)
	q.kept.init(true)
	return q
}

// Bytes returns the sum of the parts' sizes.
func (q *Queue) Bytes() int64 { return q.trial.bytes + q.kept.bytes }

// Len returns the number of parts.
func (q *Queue) Len() int { return q.n }

// Tokens returns the number of tokens whose cells the parts have. Named parts have none.
func (q *Queue) Tokens() int64 { return q.tokens }

// count adds d parts like n.
func (q *Queue) count(n *Node, d int) {
	if q.n += d; !n.Named {
		q.tokens += int64(d * len(n.Tokens))
	}
}

// Over returns how many bytes must be evicted before need more fit; ≤ 0 when they fit.
func (q *Queue) Over(need int64) int64 { return q.Bytes() + need - q.Cap }

// Push adds n at the recent end of the probationary segment. which returns the tier's Elem of a node.
func (q *Queue) Push(n *Node, bytes int64, which func(*Node) *Elem) {
	e := which(n)
	*e = Elem{node: n, Bytes: bytes}
	q.trial.push(e)
	q.count(n, 1)
	q.Refresh(n, which)
}

// PushOldest adds n at the old end, where it is evicted first.
func (q *Queue) PushOldest(n *Node, bytes int64, which func(*Node) *Elem) {
	e := which(n)
	*e = Elem{node: n, Bytes: bytes}
	l := &q.trial
	e.prev, e.next, e.list = l.root.prev, &l.root, l
	e.prev.next, e.next.prev = e, e
	l.bytes += bytes
	q.count(n, 1)
}

// Refresh makes the chain that ends with n the most recent of its segments, without counting a hit.
func (q *Queue) Refresh(n *Node, which func(*Node) *Elem) {
	for p := n; p != nil; p = p.Parent {
		if e := which(p); e.list != nil {
			l := e.list
			l.take(e)
			l.push(e)
		}
	}
}

// Nodes returns all parts, the next victim first.
func (q *Queue) Nodes() []*Node {
	out := make([]*Node, 0, q.n)
	for _, l := range [...]*list{&q.trial, &q.kept} {
		for e := l.root.prev; e != &l.root; e = e.prev {
			out = append(out, e.node)
		}
	}
	return out
}

// Hit marks the chain that ends with n as used.
func (q *Queue) Hit(n *Node, which func(*Node) *Elem) {
	for p := n; p != nil; p = p.Parent {
		if e := which(p); e.list != nil {
			e.Hits++
			e.list.take(e)
			q.kept.push(e)
		}
	}
	for q.kept.bytes > q.Cap/5*4 {
		e := q.kept.root.prev
		q.kept.take(e)
		q.trial.push(e)
	}
}

// Remove removes e.
func (q *Queue) Remove(e *Elem) {
	e.list.take(e)
	q.count(e.node, -1)
}

// Victim returns the next part to evict for which may returns true; nil when there is none.
func (q *Queue) Victim(may func(*Node) bool) *Node {
	for _, l := range [...]*list{&q.trial, &q.kept} {
		for e := l.root.prev; e != &l.root; e = e.prev {
			if may(e.node) {
				return e.node
			}
		}
	}
	return nil
}
