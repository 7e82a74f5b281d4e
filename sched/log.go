package sched

// logSize is the number of decisions in a request's log, endedSize the number of ended requests whose logs are kept.
const (
	logSize   = 16
	endedSize = 64
)

// decisions is a request's log: the newest logSize entries, in the order of their first decision.
type decisions struct {
	entry [logSize]Decision
	next  int // index of the next entry, modulo logSize
	n     int // Invariant: n ≤ logSize
}

// add records a decision. It is merged with one for the same reason among the newest three entries: otherwise a request
// that is served in every second step would push its start out of the log after eight steps.
func (d *decisions) add(now Instant, why Reason, tokens int) {
	for i := 1; i <= min(3, d.n); i++ {
		if e := &d.entry[(d.next-i+logSize)%logSize]; e.Reason == why {
			e.Last, e.Latest = now, tokens
			e.Times++
			e.Tokens += tokens
			return
		}
	}
	d.entry[d.next] = Decision{Reason: why, First: now, Last: now, Times: 1, Tokens: tokens, Latest: tokens}
	d.next = (d.next + 1) % logSize
	d.n = min(d.n+1, logSize)
}

func (d *decisions) appendTo(dst []Decision) []Decision {
	for i := d.n; i > 0; i-- {
		dst = append(dst, d.entry[(d.next-i+logSize)%logSize])
	}
	return dst
}

// ended is a ring of requests that have ended.
type ended struct {
	entry [endedSize]struct {
		Summary
		log decisions
	}
	next int
	n    int
}

// note records the end of r.
func (e *ended) note(r *request, now Instant, why Reason) {
	r.log.add(now, why, 0)
	x := &e.entry[e.next]
	x.Summary = Summary{
		Req: r.id, Class: r.spec.Class, Owner: r.spec.Owner, Arrived: r.entry.Arrived, Ended: now, Reason: why,
		Prompt: r.prompt, Generated: r.generated,
	}
	x.log = r.log
	e.next = (e.next + 1) % endedSize
	e.n = min(e.n+1, endedSize)
}

// Decisions appends to dst the newest decisions about a request, oldest first. ok is false when the request is neither
// live nor one of the last 64 that ended.
func (s *Scheduler) Decisions(dst []Decision, id ReqID) (log []Decision, ok bool) {
	if r := s.requests[id]; r != nil {
		return r.log.appendTo(dst), true
	}
	for i := 1; i <= s.totals.ended.n; i++ {
		if x := &s.totals.ended.entry[(s.totals.ended.next-i+endedSize)%endedSize]; x.Req == id {
			return x.log.appendTo(dst), true
		}
	}
	return dst, false
}

// Finished appends to dst the last 64 requests that ended or were rejected, newest first.
func (s *Scheduler) Finished(dst []Summary) []Summary {
	for i := 1; i <= s.totals.ended.n; i++ {
		dst = append(dst, s.totals.ended.entry[(s.totals.ended.next-i+endedSize)%endedSize].Summary)
	}
	return dst
}
