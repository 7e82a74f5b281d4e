package blis

import (
	"cmp"
	"fmt"
	"slices"
)

// queue holds the requests that wait, in the order in which they will be tried.
//
// BLIS recomputes every priority and sorts the whole queue before each step. None of its policies needs it: constant,
// slo-based and inverted-slo priority are functions of a request's age alone, all ages grow equally, so each pair of
// (scheduler, priority policy) is one fixed order of the requests, and a request is put in its place when it joins.
// TestQueueOrder checks that against BLIS's rule.
type queue struct {
	buf   []*request // buf[head:head+n] wait; the other places are nil
	head  int
	n     int
	order func(a, b *request) int // nil = first come, first served: join at the tail, preempted at the head
}

// Schedulers and PriorityPolicies are the names a Config may use, the default first.
var (
	Schedulers       = []string{"fcfs", "priority-fcfs", "sjf", "reverse-priority"}
	PriorityPolicies = []string{"constant", "slo-based", "inverted-slo"}
)

func order(scheduler, priority string) func(a, b *request) int {
	oldest := func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.Spec.Arrival, b.Spec.Arrival), compareIDs(a, b))
	}
	youngest := func(a, b *request) int {
		return cmp.Or(cmp.Compare(b.Spec.Arrival, a.Spec.Arrival), compareIDs(a, b))
	}
	switch scheduler {
	case "sjf":
		return func(a, b *request) int {
			return cmp.Or(cmp.Compare(a.Spec.Input, b.Spec.Input), oldest(a, b))
		}
	case "priority-fcfs": // highest priority first
		if priority == "inverted-slo" {
			return youngest
		}
		return oldest
	case "reverse-priority": // lowest priority first
		if priority == "slo-based" {
			return youngest
		}
		return oldest
	}
	return nil
}

// compareIDs compares names as strings: request_10 comes before request_2.
func compareIDs(a, b *request) int {
	if a.Spec.Name != "" || b.Spec.Name != "" {
		return cmp.Compare(a.Spec.ID(), b.Spec.ID())
	}
	// Default names differ only in their number, compared digit by digit from the left.
	x, y := a.Spec.Index, b.Spec.Index
	px, py := power10(x), power10(y)
	c := 0
	switch {
	case px > py:
		x, c = x/(px/py), 1
	case py > px:
		y, c = y/(py/px), -1
	}
	return cmp.Or(cmp.Compare(x, y), c)
}

func power10(x int64) int64 {
	p := int64(1)
	for x/10 >= p {
		p *= 10
	}
	return p
}

// at returns the i-th of them.
func (q *queue) at(i int) *request { return q.buf[q.head+i] }

// room makes free places before the first and behind the last request.
func (q *queue) room() {
	if q.head > 0 && q.head+q.n < len(q.buf) {
		return
	}
	old := q.buf[q.head : q.head+q.n]
	to := q.buf
	if 2*(q.n+2) > len(q.buf) {
		to = make([]*request, 4*(q.n+4))
	}
	head := (len(to) - q.n) / 2
	copy(to[head:], old)
	clear(to[:head])
	clear(to[head+q.n:])
	q.buf, q.head = to, head
}

// join adds a request that has just been queued.
func (q *queue) join(r *request) {
	at := q.n
	if q.order != nil {
		at = q.place(r)
	}
	q.insert(at, r)
}

// rejoin adds a preempted request: at the head, unless the scheduler has an order.
func (q *queue) rejoin(r *request) {
	at := 0
	if q.order != nil {
		at = q.place(r)
	}
	q.insert(at, r)
}

// place is behind all that come before r or with it.
func (q *queue) place(r *request) int {
	lo, hi := 0, q.n
	for lo < hi {
		mid := (lo + hi) / 2
		if q.order(q.at(mid), r) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// insert moves the shorter side.
func (q *queue) insert(at int, r *request) {
	q.room()
	if at < q.n/2 || at == 0 {
		copy(q.buf[q.head-1:], q.buf[q.head:q.head+at])
		q.head--
	} else {
		copy(q.buf[q.head+at+1:q.head+q.n+1], q.buf[q.head+at:])
	}
	q.buf[q.head+at] = r
	q.n++
}

func (q *queue) popFirst() {
	q.buf[q.head] = nil
	q.head++
	q.n--
}

// remove takes out a request, wherever it stands.
func (q *queue) remove(r *request) {
	i := slices.Index(q.buf[q.head:q.head+q.n], r)
	if i < 0 {
		return
	}
	copy(q.buf[q.head+i:q.head+q.n], q.buf[q.head+i+1:q.head+q.n])
	q.n--
	q.buf[q.head+q.n] = nil
}

// check returns an error when two neighbours are in the wrong order.
func (q *queue) check() error {
	for i := 1; q.order != nil && i < q.n; i++ {
		if q.order(q.at(i-1), q.at(i)) > 0 {
			return fmt.Errorf("blis: the wait queue is out of order at %d", i)
		}
	}
	return nil
}
