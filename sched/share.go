package sched

import (
	"slices"
	"time"
)

// Shares between users. A user is an owner (Event.Owner, the peer uid). The users that have live requests have equal
// shares: under every policy of the places in the queue (Config.MaxQueue), and under those that tell owners apart of the
// sequences (Config.MaxRunning) and cells:
//
//   - When the queue is too long, the newest waiting request of the user that has most waiting is rejected. So a user
//     that has no more waiting than MaxQueue divided by the users is never rejected because of another.
//   - Requests start in the order of tokens computed for their users (flow.go), preempted ones first. One that has waited
//     for Config.ShareGrace while its user runs fewer than its share goes before these, and a user that has more than its
//     share of sequences, or of cells with two requests or more, makes way for it. A single request with more cells than
//     that does so with Config.Prefix, which keeps what it computed, and when it has run for a while.
//   - When running requests need cells, those of a user with two or more that hold more than its share make way first.
//
// Shares bind only while others wait: alone, a user has everything. Where what is preempted is computed again, the only
// running request of a user never makes way for a share, so each user always goes on.

// user is one owner's live requests.
type user struct {
	owner   uint32
	members int                  // live
	running int                  // with a sequence
	fresh   int                  // never started: Σ waiting[class].n
	waiting [NumClasses]waitList // those, in order of arrival
	leaving int                  // scratch of makeRoom: of running, those chosen to make way
}

// waitList links the requests that count against Config.MaxQueue.
type waitList struct {
	tail *request
	n    int
}

// openUser returns an owner's record with one member more.
func (s *Scheduler) openUser(owner uint32) *user {
	u := s.users[owner]
	if u == nil {
		if n := len(s.freeUsers); n > 0 {
			u = s.freeUsers[n-1]
			s.freeUsers = s.freeUsers[:n-1]
		} else {
			u = new(user)
		}
		u.owner = owner
		s.users[owner] = u
	}
	u.members++
	return u
}

// closeUser takes a member out of u.
func (s *Scheduler) closeUser(u *user) {
	if u.members--; u.members > 0 {
		return
	}
	delete(s.users, u.owner)
	*u = user{}
	s.freeUsers = append(s.freeUsers, u)
}

// await lists r as waiting for its first sequence, the newest of its user and class.
func (s *Scheduler) await(r *request) {
	c := r.flow.class
	w := &r.user.waiting[c]
	s.waitNo++
	r.waits, r.waitNo, r.earlier, r.later = true, s.waitNo, w.tail, nil
	if w.tail != nil {
		w.tail.later = r
	}
	w.tail = r
	w.n++
	r.user.fresh++
	s.byClass[c].fresh++
}

// unwait takes r off its list, if it is on one.
func (s *Scheduler) unwait(r *request) {
	if !r.waits {
		return
	}
	c := r.flow.class
	w := &r.user.waiting[c]
	if r.earlier != nil {
		r.earlier.later = r.later
	}
	if r.later != nil {
		r.later.earlier = r.earlier
	} else {
		w.tail = r.earlier
	}
	w.n--
	r.waits, r.earlier, r.later = false, nil, nil
	r.user.fresh--
	s.byClass[c].fresh--
}

// refuse rejects what the queue has no room for.
func (s *Scheduler) refuse() {
	s.refused = s.refused[:0]
	for class := range NumClasses {
		if limit := s.cfg.Limits[class].MaxQueue; limit > 0 {
			for s.byClass[class].fresh > limit {
				s.pickRefused(ReasonClassQueueFull, func(u *user) (int, *request) { return u.waiting[class].n, u.waiting[class].tail })
			}
		}
	}
	for s.byClass[Interactive].fresh+s.byClass[Background].fresh > s.cfg.MaxQueue {
		s.pickRefused(ReasonQueueFull, func(u *user) (int, *request) {
			for class := NumClasses; class > 0; class-- {
				if r := u.waiting[class-1].tail; r != nil {
					return u.fresh, r // the newest of its lowest class
				}
			}
			return 0, nil
		})
	}
	// The earlier one comes back first, so it gets the shorter hint.
	slices.SortFunc(s.refused, func(a, b refusal) int { return cmp(a.r.waitNo, b.r.waitNo) })
	for i := range s.refused {
		r, why := s.refused[i].r, s.refused[i].why
		s.refused[i] = refusal{}
		s.rejected++
		s.reject(r.id, why, s.retryAfter())
		s.ended.note(r, s.now, why)
		s.unqueue(r)
		s.forget(r)
	}
}

// pickRefused chooses the newest request of the user that has most waiting; of several, the user whose newest came
// last.
func (s *Scheduler) pickRefused(why Reason, waiting func(*user) (int, *request)) {
	var v *request
	most := 0
	for _, u := range s.users {
		if n, r := waiting(u); r != nil && (v == nil || n > most || n == most && r.waitNo > v.waitNo) {
			v, most = r, n
		}
	}
	if v.bornAt != s.step {
		why = ReasonDisplaced
	}
	s.unwait(v)
	s.refused = append(s.refused, refusal{v, why})
}

// refusal is a request that is about to be rejected.
type refusal struct {
	r   *request
	why Reason
}

// share is how many sequences each user with live requests may have while others wait, at least 1.
func (s *Scheduler) share() int { return max(1, s.cfg.MaxRunning/max(1, len(s.users))) }

// first is the request of a class that is tried next: the head of the flow that comes first. In the heap preempted
// requests come before all others, so that they end. Those of a user that runs its share already do not when others
// wait, and what Config.ShareGrace has passed for goes before all.
func (s *Scheduler) first(class Class) *request {
	h := s.flows[class]
	best := h[0]
	if !s.byOwner || len(s.users) == 1 {
		return best.head
	}
	share := s.share()
	// tier: 0 is due by its share, 1 was preempted, 2 is new or its user runs its share.
	tier := func(r *request) int {
		switch {
		case r.user.running >= share:
			return 2
		case s.shareOwed(r):
			return 0
		case r.started:
			return 1
		}
		return 2
	}
	bt := tier(best.head)
	for _, f := range h[1:] {
		ft := tier(f.head)
		switch {
		case ft != bt:
			if ft > bt {
				continue
			}
		case ft == 2 && f.key() != best.key():
			if f.key() > best.key() {
				continue
			}
		case ft < 2 && f.head.user.running != best.head.user.running:
			if f.head.user.running > best.head.user.running {
				continue
			}
		case f.head.rank > best.head.rank:
			continue
		}
		best, bt = f, ft
	}
	return best.head
}

// shareOwed reports whether a waiting request has waited for Config.ShareGrace while its user runs fewer than its share.
// A user for whom many more tokens were computed than for others waits longer: requests that are held by clients that
// do not read must not lock it out, but it had its share of the machine.
func (s *Scheduler) shareOwed(r *request) bool {
	if !s.byOwner || len(s.users) == 1 || r.user.running >= s.share() {
		return false
	}
	waited := s.now.Sub(r.queuedAt)
	return waited >= s.cfg.ShareGrace && (waited >= aheadGraces*s.cfg.ShareGrace || r.flow.vt-s.virtualNow(r.flow.class) <= fairSlack)
}

// aheadGraces is how many times Config.ShareGrace a request waits for its share when its user is ahead of the others by
// more than fairSlack tokens.
const aheadGraces = 5

// dueBefore reports whether a is owed a sequence and its user runs fewer than b's: then b's class does not go before a's.
func (s *Scheduler) dueBefore(a, b *request) bool {
	return s.shareOwed(a) && a.user.running < b.user.running
}

// overShare reports whether o makes way for r because of its user's share. It has to have run for a step.
func (s *Scheduler) overShare(o, r *request) bool {
	if !s.shareOwed(r) || o.user == r.user || o.flow.class < r.flow.class || o.starting || o.lastStep == s.step {
		return false
	}
	u := o.user
	switch {
	case u.running-u.leaving > s.share(), s.overCells(u):
		return true
	case u.running-u.leaving == 1 && s.cfg.Prefix && o.own() > s.capacity()/len(s.users):
		// The only one of its user: it goes on from its cached prefix, after it had time to get on.
		return s.now.Sub(o.startedAt) >= aloneGraces*s.cfg.ShareGrace
	}
	return false
}

// aloneGraces is how many times Config.ShareGrace a user's only running request runs before it makes way for a share.
const aloneGraces = 8

// overCells reports whether u has two running requests or more, and more cells than its share.
func (s *Scheduler) overCells(u *user) bool {
	if u.running-u.leaving < 2 || len(s.users) == 1 {
		return false
	}
	n := 0
	for _, r := range s.running {
		if r.user == u && r.goes == ReasonNone {
			n += r.own()
		}
	}
	return n > s.capacity()/len(s.users)
}

// makesWay is the running request that gives up its cells next, and why, when it is not for want of cells alone.
func (s *Scheduler) makesWay() (v *request, share bool) {
	v = s.last(nil)
	if !s.byOwner || len(s.users) == 1 || v.paused || s.overCells(v.user) {
		return v, false
	}
	if o := s.last(func(o *request) bool { return o.user != v.user && !o.starting && s.overCells(o.user) }); o != nil {
		return o, true
	}
	return v, false
}

// shareDue is when a waiting request's Config.ShareGrace ends, or never.
func (s *Scheduler) shareDue() Instant {
	at := never
	if !s.byOwner || len(s.users) < 2 {
		return at
	}
	for class := range NumClasses {
		if len(s.flows[class]) > 0 {
			if end := s.first(class).queuedAt.Add(s.cfg.ShareGrace); end > s.now {
				at = min(at, end)
			}
		}
	}
	return at
}

// defaultShareGrace is long enough that short answers end by themselves.
const defaultShareGrace = time.Second
