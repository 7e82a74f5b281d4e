package index

// Elem is a part's place in one tier's Queue.
type Elem struct {
	node       *Node
	prev, next *Elem
	list       *list
	Bytes      int64 // what it takes in the tier; set by Push
	Hits       uint32
}

// In reports whether the part is in the tier.
func (e *Elem) In() bool { return e.list != nil }

// Kept reports whether the part has been used again since it came (or came back): see Queue.
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

// Queue decides what leaves a tier: least recently used first, in two segments (segmented LRU). A part comes in on
// trial; its first hit moves it to the kept segment, which holds at most four fifths of the cap and gives its least
// recently used back to the trial segment. So a flood of prompts that are asked once pushes out each other, not the
// conversations that come back, and with nothing coming back the whole cap serves the newest.
//
// Chains are used from their beginning, so Hit and Push are told about a whole chain and leave the beginning more
// recent than the end: what is evicted first is the end of a chain.
type Queue struct {
	Cap         int64 // bytes
	trial, kept list
	n           int
}

// NewQueue makes an empty queue of so many bytes.
func NewQueue(cap int64) *Queue {
	q := &Queue{Cap: cap}
	q.trial.init(false)
	q.kept.init(true)
	return q
}

// Bytes is the sum of the elements'.
func (q *Queue) Bytes() int64 { return q.trial.bytes + q.kept.bytes }

// Len is the number of parts.
func (q *Queue) Len() int { return q.n }

// Over is how many bytes must leave before need more fit; ≤ 0 when they fit now.
func (q *Queue) Over(need int64) int64 { return q.Bytes() + need - q.Cap }

// Push adds n at the recent end of the trial segment. which picks the tier's Elem of a node.
func (q *Queue) Push(n *Node, bytes int64, which func(*Node) *Elem) {
	e := which(n)
	*e = Elem{node: n, Bytes: bytes}
	q.trial.push(e)
	q.n++
	q.Refresh(n, which)
}

// PushOldest adds n at the other end: evicted before everything that is there.
func (q *Queue) PushOldest(n *Node, bytes int64, which func(*Node) *Elem) {
	e := which(n)
	*e = Elem{node: n, Bytes: bytes}
	l := &q.trial
	e.prev, e.next, e.list = l.root.prev, &l.root, l
	e.prev.next, e.next.prev = e, e
	l.bytes += bytes
	q.n++
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

// Nodes is every part, the next victim first.
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

// Remove takes e out.
func (q *Queue) Remove(e *Elem) {
	e.list.take(e)
	q.n--
}

// Victim is the part to evict next for which may answers true; nil when there is none.
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
