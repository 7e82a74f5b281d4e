package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// Shares between users. A user is an owner (Spec.Owner, the peer uid). Users with live requests have equal shares of
// the places in the queue (Config.MaxQueue) under every policy, and of sequences (Config.MaxRunning) and cells under
// policies that distinguish owners:
//
//   - When the queue is too long, the newest waiting request of the user with the most waiting requests is rejected. So
//     a user with at most MaxQueue divided by the users waiting is never rejected because of another user.
//   - Requests start in the order of tokens computed for their users (flow.go), preempted ones first. A request that
//     has waited for Config.ShareGrace while its user runs fewer than its share precedes them. For it a request is
//     preempted whose user has more than its share of sequences, or two requests or more with more than its share of
//     cells. A user's only request with more cells than that is preempted too, with Config.Prefix, which keeps what it
//     computed, and after it has run for a while.
//   - When running requests need cells, users with two or more requests that hold more than their share give up cells
//     first.
//
// Shares bind only while other users wait: alone, a user has everything. Without Config.Prefix, where a preempted
// request computes everything again, the only running request of a user is never preempted for a share, so each user
// always progresses.

// user is one owner's live requests.
type user struct {
	owner   uint32
	members int                  // live
	running int                  // with a sequence
	fresh   int                  // never started: Σ waiting[class].n
	waiting [NumClasses]waitList // the fresh ones, in order of arrival
	leaving int                  // scratch of makeRoom: of running, those chosen to be preempted
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

// rejectExcess rejects the requests for which the queue has no room.
func (s *Scheduler) rejectExcess() {
	s.excess = s.excess[:0]
	for class := range NumClasses {
		if limit := s.cfg.Limits[class].MaxQueue; limit > 0 {
			for s.byClass[class].fresh > limit {
				s.pickExcess(reason.ClassQueueFull, func(u *user) (int, *request) {
					return u.waiting[class].n,
						u.waiting[class].tail
				})
			}
		}
	}
	for s.byClass[Interactive].fresh+s.byClass[Background].fresh > s.cfg.MaxQueue {
		s.pickExcess(reason.QueueFull, func(u *user) (int, *request) {
			for class := NumClasses; class > 0; class-- {
				if r := u.waiting[class-1].tail; r != nil {
					return u.fresh, r // the newest of its lowest class
				}
			}
			return 0, nil
		})
	}
	// The earlier one retries first, so it gets the shorter hint.
	slices.SortFunc(s.excess, func(a, b excess) int { return cmp.Compare(a.r.waitNo, b.r.waitNo) })
	for i := range s.excess {
		r, why := s.excess[i].r, s.excess[i].why
		s.excess[i] = excess{}
		s.rejected++
		s.reject(r.id, why, s.retryAfter())
		s.ended.note(r, s.now, why)
		s.unqueue(r)
		s.forget(r)
	}
}

// pickExcess chooses the newest request of the user with the most waiting requests; of several such users, that whose
// newest request came last.
func (s *Scheduler) pickExcess(why Reason, waiting func(*user) (int, *request)) {
	var v *request
	most := 0
	for _, u := range s.users {
		if n, r := waiting(u); r != nil && (v == nil || n > most || n == most && r.waitNo > v.waitNo) {
			v, most = r, n
		}
	}
	// It was accepted in an earlier Step, so it is told that another user's request took its place.
	if v.bornAt != s.step {
		why = reason.Displaced
	}
	s.unwait(v)
	s.excess = append(s.excess, excess{v, why})
}

// excess is a request that is about to be rejected.
type excess struct {
	r   *request
	why Reason
}

// share returns the number of sequences that each user with live requests may hold while others wait, at least 1.
func (s *Scheduler) share() int { return max(1, s.cfg.MaxRunning/max(1, len(s.users))) }

// first returns the request of a class that is tried next: the one that fairFirst chooses, unless a promised one is due
// before it.
func (s *Scheduler) first(class Class) *request {
	best := s.fairFirst(class)
	if s.dated == 0 || !s.byTarget || best.started {
		return best
	}
	due := s.stillDue(best)
	for _, r := range s.requests {
		if r.queued && r.flow.class == class && r.promised() != never && !r.flow.head.started &&
			(r.due < due || r.due == due && r.rank < best.rank) {
			best, due = r, r.due
		}
	}
	return best
}

// stillDue returns the deadline of r as promises count it. A request that has missed its target without a promise
// counts as one without a target.
func (s *Scheduler) stillDue(r *request) Instant {
	if r.due < s.now && r.promised() == never {
		return max(r.due, r.arrivedAt.Add(undatedTarget))
	}
	return r.due
}

// fairFirst returns the request that fairness between owners puts first: the head of the first flow. Preempted requests
// come first in the heap, so that they end, unless their user runs its share already and other users wait. Requests
// that have waited for Config.ShareGrace precede all others.
func (s *Scheduler) fairFirst(class Class) *request {
	h := s.flows[class]
	best := h[0]
	if !s.byOwner || len(s.users) == 1 {
		return best.head
	}
	if s.dated > 0 {
		best = s.firstDue(h)
	}
	share := s.share()
	// tier: 0 is owed its share, 1 was preempted, 2 is new or its user runs its share.
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
	chosen := best
	for _, f := range h {
		ft := tier(f.head)
		switch {
		case ft != bt:
			if ft > bt {
				continue
			}
		case f == best || ft == 2 && best == chosen && s.dated > 0:
			continue // chosen by firstDue
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

// firstDue returns the flow that is tried first where owners have equal shares: that of least key, or of the flows that
// are at most fairSlack tokens ahead of it that whose head is due first, if its head has a target.
func (s *Scheduler) firstDue(h flowHeap) *flow {
	best := h[0]
	if best.head.started {
		return best
	}
	for _, f := range h[1:] {
		if f.key() < best.key() {
			best = f
		}
	}
	least := best.key()
	for _, f := range h {
		if r := f.head; !r.started && r.deadline != never && f.key()-least <= fairSlack && r.due < best.head.due {
			best = f
		}
	}
	return best
}

// shareOwed reports whether a waiting request has waited for Config.ShareGrace while its user runs fewer than its
// share. A user with many more computed tokens than others waits longer: it must not be locked out by requests of
// clients that do not read, but it has had its share of the machine.
func (s *Scheduler) shareOwed(r *request) bool {
	if !s.byOwner || len(s.users) == 1 || r.user.running >= s.share() {
		return false
	}
	waited := s.now.Sub(r.queuedAt)
	return waited >= s.cfg.ShareGrace &&
		(waited >= aheadGraces*s.cfg.ShareGrace || r.flow.vt-s.virtualNow(r.flow.class) <= fairSlack)
}

// aheadGraces × Config.ShareGrace is the wait of a request for its share when its user is ahead of the others by more
// than fairSlack tokens.
const aheadGraces = 5

// dueBefore reports whether a is owed a sequence and its user runs fewer than b's; then b's class does not precede a's.
func (s *Scheduler) dueBefore(a, b *request) bool {
	return s.shareOwed(a) && a.user.running < b.user.running
}

// overShare reports whether o may be preempted for r because its user has more than its share. o has run for a step.
func (s *Scheduler) overShare(o, r *request) bool {
	if !s.shareOwed(r) || o.user == r.user || o.flow.class < r.flow.class || o.starting || o.lastStep == s.step ||
		o.promised() != never {
		return false
	}
	u := o.user
	switch {
	case u.running-u.leaving > s.share(), s.overCells(u):
		return true
	case u.running-u.leaving == 1 && s.cfg.Prefix && o.own() > s.capacity()/len(s.users):
		// The only request of its user. It continues from its cached prefix; without Config.Prefix it would compute
		// everything again and might never end.
		return s.now.Sub(o.startedAt) >= aloneGraces*s.cfg.ShareGrace
	}
	return false
}

// aloneGraces × Config.ShareGrace is the time that a user's only running request gets before it is preempted for a
// share.
const aloneGraces = 8

// overCells reports whether u has two running requests or more, and more cells than its share.
func (s *Scheduler) overCells(u *user) bool {
	if u.running-u.leaving < 2 || len(s.users) == 1 {
		return false
	}
	n := 0
	for _, r := range s.running {
		if r.user == u && r.preemptFor == reason.None {
			n += r.own()
		}
	}
	return n > s.capacity()/len(s.users)
}

// nextVictim returns the running request that is preempted next for want of cells. share says that it was chosen
// because its user has more than its share.
func (s *Scheduler) nextVictim() (v *request, share bool) {
	v = s.last(nil)
	if !s.byOwner || len(s.users) == 1 || v.paused || s.overCells(v.user) {
		return v, false
	}
	if o := s.last(func(o *request) bool { return o.user != v.user && !o.starting && s.overCells(o.user) }); o != nil {
		return o, true
	}
	return v, false
}

// shareDue returns when a waiting request's Config.ShareGrace ends, or never.
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
