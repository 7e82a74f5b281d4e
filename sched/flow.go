package sched

import "github.com/uma-serve/uma-serve/sched/reason"

// Fairness between owners is start-time fair queueing (Goyal, Vin, Cheng 1996) over computed tokens: each pair of class
// and owner is a flow with a virtual time, the number of tokens computed for it; the flow with the least goes first. A
// flow that returns starts at the least virtual time of the present flows: absence earns no credit.

type flowKey struct {
	class Class
	owner uint32
}

// flow is one owner's requests of one class.
type flow struct {
	flowKey
	vt      int64 // tokens computed for it, in virtual time
	pending int64 // prompt tokens of its running requests that are not computed yet
	members int   // its requests, queued, paused or running; 0 = kept only to remember vt

	// The waiting requests: preempted ones by rank, then new ones by deadline and arrival (goesBefore).
	head, tail *request
	pos        int // in its class's heap; -1 while head is nil
}

// key orders flows for admission: tokens computed, and tokens that running requests will still have computed.
func (f *flow) key() int64 { return f.vt + f.pending }

// flowHeap is a binary heap of the flows with waiting requests: first those whose head was preempted, by rank, then by
// least key, then by the earlier head.
type flowHeap []*flow

func (h flowHeap) less(a, b *flow) bool {
	if a.head.started != b.head.started {
		return a.head.started
	}
	if ka, kb := a.key(), b.key(); ka != kb && !a.head.started {
		return ka < kb
	}
	return a.head.rank < b.head.rank
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

// openFlow returns the flow of a class and owner with one member more.
func (s *Scheduler) openFlow(k flowKey) *flow {
	f := s.flowOf[k]
	if f == nil {
		f = &flow{flowKey: k, pos: -1}
		s.flowOf[k] = f
	}
	if f.members == 0 {
		f.vt = max(f.vt, s.virtualNow(k.class))
	}
	f.members++
	s.byClass[k.class].members++
	return f
}

// closeFlow takes a member out of f.
func (s *Scheduler) closeFlow(f *flow) {
	c := &s.byClass[f.class]
	f.members--
	c.members--
	// When the class has no request left, all flows start equal next time. The number of remembered idle flows is
	// bounded, however many owners there are.
	if c.members > 0 && len(s.flowOf) <= 2*len(s.requests)+64 {
		return
	}
	for k, g := range s.flowOf {
		if k.class == f.class && g.members == 0 {
			delete(s.flowOf, k)
		}
	}
}

// virtualNow returns the least virtual time among the flows of a class that have members. It never goes back.
func (s *Scheduler) virtualNow(class Class) int64 {
	c := &s.byClass[class]
	least, any := int64(0), false
	for _, r := range s.running {
		if r.flow.class == class && (!any || r.flow.vt < least) {
			least, any = r.flow.vt, true
		}
	}
	// A flow without running requests has nothing pending, so its key is its vt, and the heap's first is the least,
	// unless preempted requests come first.
	for i, f := range s.flows[class] {
		if !any || f.vt < least {
			least, any = f.vt, true
		}
		if i == 0 && !f.head.started {
			break
		}
	}
	if any {
		c.vnow = max(c.vnow, least)
	}
	return c.vnow
}

// charge adds what was computed for r to its flow, except tokens that were computed before.
func (s *Scheduler) charge(r *request) {
	n := r.computed - r.charged
	if n <= 0 {
		return
	}
	was := r.owed()
	r.charged = r.computed
	r.flow.pending -= was - r.owed()
	r.flow.vt += int64(n)
	s.flows[r.flow.class].fix(r.flow)
}

// enqueue puts a new request into its flow's queue: at the end, or before those that are due later.
func (s *Scheduler) enqueue(r *request) {
	after := r.flow.tail
	for after != nil && goesBefore(r, after) {
		after = after.prev
	}
	s.insert(r, after)
}

// requeue puts back a request that was preempted, paused or deferred: requests that have started go before new ones,
// and each kind by rank. A request that is still paused or deferred is not put back.
func (s *Scheduler) requeue(r *request) {
	if r.paused || r.deferred != reason.None {
		return
	}
	var after *request
	for o := r.flow.head; o != nil && !goesBefore(r, o); o = o.next {
		after = o
	}
	s.insert(r, after)
}

// insert links r behind after, or first when after is nil.
func (s *Scheduler) insert(r, after *request) {
	f := r.flow
	r.queued, r.prev, r.queuedAt = true, after, s.now
	if after == nil {
		r.next, f.head = f.head, r
	} else {
		r.next, after.next = after.next, r
	}
	if r.next == nil {
		f.tail = r
	} else {
		r.next.prev = r
	}
	c := &s.byClass[f.class]
	// Config.BackgroundEvery counts the time since the class was served while it had something to serve.
	if c.queued == 0 {
		c.servedAt = s.now
	}
	c.queued++
	if f.pos < 0 {
		s.flows[f.class].push(f)
	} else {
		s.flows[f.class].fix(f)
	}
}

// unqueue takes r out of its flow's queue, if it is there.
func (s *Scheduler) unqueue(r *request) {
	if !r.queued {
		return
	}
	f := r.flow
	r.queued = false
	if r.prev == nil {
		f.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		f.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	c := &s.byClass[f.class]
	c.queued--
	if f.head == nil {
		s.flows[f.class].remove(f)
	} else {
		s.flows[f.class].fix(f)
	}
}
