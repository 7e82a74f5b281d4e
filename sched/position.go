package sched

// Position is how many waiting requests go before this one, plus one; 0 when it does not wait. It is what its rank
// says now: fairness between owners may let others go first, so it can rise as well as fall. O(live requests).
func (s *Scheduler) Position(id ReqID) int {
	r := s.requests[id]
	if r == nil || r.state != Queued {
		return 0
	}
	n := 1
	for _, o := range s.requests {
		if o != r && o.state == Queued && before(o, r) {
			n++
		}
	}
	return n
}
