package sched

// Position returns how many waiting requests go before this one, plus one; 0 when it does not wait. It follows from the
// present ranks. Fairness between owners may let others go first, so it can rise as well as fall. O(live requests).
func (s *Scheduler) Position(id ReqID) int {
	r := s.requests[id]
	if r == nil || r.state != Queued {
		return 0
	}
	n := 1
	for _, o := range s.requests {
		if o != r && o.state == Queued && queuedBefore(o, r) {
			n++
		}
	}
	return n
}

func queuedBefore(a, b *request) bool {
	switch {
	case a.paused != b.paused:
		return b.paused
	case a.entry.Class != b.entry.Class:
		return a.entry.Class < b.entry.Class
	}
	return a.entry.Before(&b.entry)
}
