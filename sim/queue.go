package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// waitQueue holds the requests that wait, in the order in which they will be tried.
//
// The policies of the original recompute every priority and sort the whole queue before each step. None of them needs
// it: constant, slo-based and inverted-slo priority are functions of a request's age alone, all ages grow equally, so
// each pair of (scheduler, priority policy) is one fixed order of the requests, and a request is put in its place when
// it joins. TestOrderIsTheOriginals checks that against the literal rule.
type waitQueue struct {
	buf   []*request // ring
	head  int
	n     int
	order func(a, b *request) int // nil = first come, first served: join at the tail, preempted at the head
}

// Schedulers and PriorityPolicies are the names a configuration may use, the default first.
var (
	Schedulers       = []string{"fcfs", "priority-fcfs", "sjf", "reverse-priority"}
	PriorityPolicies = []string{"constant", "slo-based", "inverted-slo"}
)

// oneOf is the error for a name that is none of the valid ones.
func oneOf(field, got string, valid []string) error {
	if slices.Contains(valid, got) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown; valid are %s", field, got, strings.Join(valid, ", "))
}

func queueOrder(scheduler, priority string) func(a, b *request) int {
	oldest := func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.spec.Arrival, b.spec.Arrival), compareIDs(a, b))
	}
	youngest := func(a, b *request) int {
		return cmp.Or(cmp.Compare(b.spec.Arrival, a.spec.Arrival), compareIDs(a, b))
	}
	switch scheduler {
	case "sjf":
		return func(a, b *request) int {
			return cmp.Or(cmp.Compare(a.spec.Input, b.spec.Input), oldest(a, b))
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
	if a.spec.Name != "" || b.spec.Name != "" {
		return cmp.Compare(a.spec.ID(), b.spec.ID())
	}
	// Default names differ only in their number, compared digit by digit from the left.
	x, y := a.spec.Index, b.spec.Index
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

func (q *waitQueue) at(i int) **request { return &q.buf[(q.head+i)&(len(q.buf)-1)] }

func (q *waitQueue) grow() {
	if q.n < len(q.buf) {
		return
	}
	buf := make([]*request, max(16, 2*len(q.buf)))
	for i := range q.n {
		buf[i] = *q.at(i)
	}
	q.buf, q.head = buf, 0
}

// join adds a request that was just queued.
func (q *waitQueue) join(r *request) {
	if q.order != nil {
		q.insert(r)
		return
	}
	q.grow()
	q.n++
	*q.at(q.n - 1) = r
}

// rejoin adds a preempted request: at the head, unless the scheduler has an order of its own.
func (q *waitQueue) rejoin(r *request) {
	if q.order != nil {
		q.insert(r)
		return
	}
	q.grow()
	q.n++
	q.head = (q.head - 1) & (len(q.buf) - 1)
	*q.at(0) = r
}

// insert puts r behind all that come before or with it.
func (q *waitQueue) insert(r *request) {
	q.grow()
	lo, hi := 0, q.n
	for lo < hi {
		mid := (lo + hi) / 2
		if q.order(*q.at(mid), r) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	q.n++
	for i := q.n - 1; i > lo; i-- {
		*q.at(i) = *q.at(i - 1)
	}
	*q.at(lo) = r
}

func (q *waitQueue) first() *request { return *q.at(0) }

func (q *waitQueue) popFirst() {
	*q.at(0) = nil
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
}

// remove takes out a request wherever it stands.
func (q *waitQueue) remove(r *request) {
	for i := range q.n {
		if *q.at(i) != r {
			continue
		}
		for ; i < q.n-1; i++ {
			*q.at(i) = *q.at(i + 1)
		}
		*q.at(q.n - 1) = nil
		q.n--
		return
	}
}
