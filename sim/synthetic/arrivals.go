package synthetic

import (
	"cmp"
	"slices"

	"github.com/uma-serve/uma-serve/sim/workload"
)

// arrivals are the requests to come: those of a workload in their order, and those that follow the end of others.
type arrivals struct {
	src      workload.Source
	reactive workload.Reactive // src, when it is one
	next     workload.Request  // of src
	more     bool              // there is a next
	follow   []workload.Request
	one      workload.Request
}

func newArrivals(src workload.Source) *arrivals {
	a := &arrivals{src: src}
	a.reactive, _ = src.(workload.Reactive)
	a.more = src.Next(&a.next)
	return a
}

// at returns the time of the next arrival in microseconds; false when none comes before another request has ended.
func (a *arrivals) at() (us int64, ok bool) {
	if a.more {
		us, ok = a.next.Arrival, true
	}
	if len(a.follow) > 0 && (!ok || a.follow[0].Arrival < us) {
		us, ok = a.follow[0].Arrival, true
	}
	return us, ok
}

// take returns the next request. There must be one.
func (a *arrivals) take() *workload.Request {
	if len(a.follow) > 0 && (!a.more || a.follow[0].Arrival < a.next.Arrival) {
		a.one = a.follow[0]
		a.follow = slices.Delete(a.follow, 0, 1)
		return &a.one
	}
	a.one = a.next
	a.more = a.src.Next(&a.next)
	return &a.one
}

// ended may bring the request that follows r.
func (a *arrivals) ended(r *workload.Request, how workload.Outcome, us int64) {
	var next workload.Request
	if a.reactive == nil || !a.reactive.Ended(r, how, us, &next) {
		return
	}
	i, _ := slices.BinarySearchFunc(a.follow, next.Arrival+1,
		func(r workload.Request, at int64) int { return cmp.Compare(r.Arrival, at) })
	a.follow = slices.Insert(a.follow, i, next)
}
