package queue

import "github.com/uma-serve/uma-serve/sched/slo"

// Fairness between owners is start-time fair queueing (Goyal, Vin, Cheng 1996) over computed tokens: each lane is a
// flow with a virtual time, the number of tokens computed for it; the flow with the least goes first. A flow that
// returns starts at the least virtual time of the present flows: absence earns no credit.

// flow is the entries of one lane.
type flow struct {
	Lane
	vt      int64 // tokens computed for it, in virtual time
	pending int64 // prompt tokens of its running entries that are not computed yet
	members int   // its entries, queued, paused or running; 0 = kept only to remember vt
	running int
	busy    int // in Queue.busy of its class, while running > 0

	// The waiting entries: preempted ones by rank, then new ones by deadline and arrival (Entry.Before).
	head, tail *Entry
	pos        int // in its class's heap; -1 while head is nil
}

// key orders flows for admission: tokens computed, and tokens that running entries will still have computed.
func (f *flow) key() int64 { return f.vt + f.pending }

// Before reports whether a goes before b in the queue of a flow: entries that have started go first, by rank; new ones
// by deadline, then by rank.
func (a *Entry) Before(b *Entry) bool {
	switch {
	case a.Started != b.Started:
		return a.Started
	case !a.Started && a.Due != b.Due && (a.Deadline != slo.Never || b.Deadline != slo.Never):
		return a.Due < b.Due
	}
	return a.Rank < b.Rank
}

// flowHeap is a binary heap of the flows with waiting entries: first those whose head was preempted, by rank, then by
// least key, then by the earlier head.
type flowHeap []*flow

func (h flowHeap) less(a, b *flow) bool {
	if a.head.Started != b.head.Started {
		return a.head.Started
	}
	if ka, kb := a.key(), b.key(); ka != kb && !a.head.Started {
		return ka < kb
	}
	return a.head.Rank < b.head.Rank
}

func (h flowHeap) set(i int, f *flow) { h[i], f.pos = f, i }

func (h flowHeap) up(i int) {
	f := h[i]
	for i > 0 {
		p := (i - 1) / 2
		if !h.less(f, h[p]) {
			break
		}
		h.set(i, h[p])
		i = p
	}
	h.set(i, f)
}

func (h flowHeap) down(i int) {
	f := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h.less(h[c+1], h[c]) {
			c++
		}
		if !h.less(h[c], f) {
			break
		}
		h.set(i, h[c])
		i = c
	}
	h.set(i, f)
}

// fix restores the order after f's key or head changed.
func (h flowHeap) fix(f *flow) {
	if f.pos >= 0 {
		h.up(f.pos)
		h.down(f.pos)
	}
}

func (h *flowHeap) push(f *flow) {
	*h = append(*h, f)
	h.up(len(*h) - 1)
}

func (h *flowHeap) remove(f *flow) {
	i, last := f.pos, len(*h)-1
	f.pos = -1
	moved := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.set(i, moved)
		h.fix(moved)
	}
}

// openFlow returns the flow of a lane with one member more.
func (q *Queue) openFlow(l Lane) *flow {
	f := q.flowOf[l]
	if f == nil {
		f = &flow{Lane: l, pos: -1}
		q.flowOf[l] = f
	}
	if f.members == 0 {
		f.vt = max(f.vt, q.virtualNow(l.Class))
	}
	f.members++
	q.counts[l.Class].Members++
	return f
}

// closeFlow takes a member out of f.
func (q *Queue) closeFlow(f *flow) {
	f.members--
	q.counts[f.Class].Members--
	live := 0
	for i := range q.counts {
		live += q.counts[i].Members
	}
	// When the class has no entry left, all flows start equal next time. The number of remembered idle flows is
	// bounded, however many owners there are.
	if q.counts[f.Class].Members > 0 && len(q.flowOf) <= 2*live+64 {
		return
	}
	for l, g := range q.flowOf {
		if l.Class == f.Class && g.members == 0 {
			delete(q.flowOf, l)
		}
	}
}

// occupy and vacate count f's running entries.
func (q *Queue) occupy(f *flow) {
	if f.running++; f.running == 1 {
		busy := &q.busy[f.Class]
		f.busy = len(*busy)
		*busy = append(*busy, f)
	}
}

func (q *Queue) vacate(f *flow) {
	if f.running--; f.running > 0 {
		return
	}
	busy := &q.busy[f.Class]
	last := len(*busy) - 1
	moved := (*busy)[last]
	(*busy)[f.busy], moved.busy = moved, f.busy
	(*busy)[last] = nil
	*busy = (*busy)[:last]
}

// virtualNow returns the least virtual time among the flows of a class that have queued or running entries. It never
// goes back.
func (q *Queue) virtualNow(class slo.Class) int64 {
	c := &q.counts[class]
	least, any := int64(0), false
	for _, f := range q.busy[class] {
		if !any || f.vt < least {
			least, any = f.vt, true
		}
	}
	// A flow without running entries has nothing pending, so its key is its vt, and the heap's first is the least,
	// unless preempted entries come first.
	for i, f := range q.heaps[class] {
		if !any || f.vt < least {
			least, any = f.vt, true
		}
		if i == 0 && !f.head.Started {
			break
		}
	}
	if any {
		c.vnow = max(c.vnow, least)
	}
	return c.vnow
}

// Requeue puts back an entry that was preempted, paused or deferred: entries that have started go before new ones, and
// each kind by rank.
func (q *Queue) Requeue(e *Entry) {
	var after *Entry
	for o := e.flow.head; o != nil && !e.Before(o); o = o.next {
		after = o
	}
	q.insert(e, after)
}

// insert links e behind after, or first when after is nil.
func (q *Queue) insert(e, after *Entry) {
	f := e.flow
	e.Queued, e.prev, e.QueuedAt = true, after, q.now
	if after == nil {
		e.next, f.head = f.head, e
	} else {
		e.next, after.next = after.next, e
	}
	if e.next == nil {
		f.tail = e
	} else {
		e.next.prev = e
	}
	c := &q.counts[f.Class]
	// sched.Config.BackgroundEvery counts the time since the class was served while it had something to serve.
	if c.Queued == 0 {
		c.ServedAt = q.now
	}
	c.Queued++
	if f.pos < 0 {
		q.heaps[f.Class].push(f)
	} else {
		q.heaps[f.Class].fix(f)
	}
}

// Unqueue takes e out of its flow, if it is there.
func (q *Queue) Unqueue(e *Entry) {
	if !e.Queued {
		return
	}
	f := e.flow
	e.Queued = false
	if e.prev == nil {
		f.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		f.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	q.counts[f.Class].Queued--
	if f.head == nil {
		q.heaps[f.Class].remove(f)
	} else {
		q.heaps[f.Class].fix(f)
	}
}
