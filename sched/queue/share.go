package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// Shares between users. A user is an owner of requests (the peer uid). Users with live requests have equal shares of
// the places in the queue (Config.MaxQueue), and with Config.ByOwner of sequences (Config.MaxRunning) and cells:
//
//   - When the queue is too long, the newest waiting request of the user with the most waiting requests is rejected. So
//     a user with at most MaxQueue divided by the users waiting is never rejected because of another user.
//   - Requests start in the order of tokens computed for their users (flow.go), preempted ones first. A request that
//     has waited for Config.ShareGrace while its user runs fewer than its share precedes them, and running requests are
//     preempted for it (package sched, share.go).
//
// Shares bind only while other users wait: alone, a user has everything.

// User is one owner's live requests.
type User struct {
	Running int // with a sequence
	Leaving int // of Running: those that the caller has chosen to preempt, but has not yet

	owner   uint32
	members int                      // live
	fresh   int                      // never started: Σ waiting[class].n
	waiting [slo.NumClasses]waitList // the fresh ones, in order of arrival
}

// waitList links the entries that count against Config.MaxQueue.
type waitList struct {
	tail *Entry
	n    int
}

// openUser returns an owner's record with one member more.
func (q *Queue) openUser(owner uint32) *User {
	u := q.users[owner]
	if u == nil {
		if n := len(q.freeUsers); n > 0 {
			u = q.freeUsers[n-1]
			q.freeUsers = q.freeUsers[:n-1]
		} else {
			u = new(User)
		}
		u.owner = owner
		q.users[owner] = u
	}
	u.members++
	return u
}

// closeUser takes a member out of u.
func (q *Queue) closeUser(u *User) {
	if u.members--; u.members > 0 {
		return
	}
	delete(q.users, u.owner)
	*u = User{}
	q.freeUsers = append(q.freeUsers, u)
}

// Await lists e as waiting for its first sequence, the newest of its user and class.
func (q *Queue) Await(e *Entry) {
	w := &e.User.waiting[e.Class]
	q.waitNo++
	e.Started, e.waits, e.waitNo, e.earlier, e.later = false, true, q.waitNo, w.tail, nil
	if w.tail != nil {
		w.tail.later = e
	}
	w.tail = e
	w.n++
	e.User.fresh++
	q.counts[e.Class].Fresh++
}

// unwait takes e off its list, if it is on one.
func (q *Queue) unwait(e *Entry) {
	if !e.waits {
		return
	}
	w := &e.User.waiting[e.Class]
	if e.earlier != nil {
		e.earlier.later = e.later
	}
	if e.later != nil {
		e.later.earlier = e.earlier
	} else {
		w.tail = e.earlier
	}
	w.n--
	e.waits, e.earlier, e.later = false, nil, nil
	e.User.fresh--
	q.counts[e.Class].Fresh--
}

// Excess returns the entries for which the queue has no room, in the order in which they came, valid until the next
// call. The caller rejects and removes each of them.
func (q *Queue) Excess() []Excess {
	clear(q.excess)
	q.excess = q.excess[:0]
	for class := range slo.NumClasses {
		if limit := q.cfg.MaxClass[class]; limit > 0 {
			for q.counts[class].Fresh > limit {
				q.pickExcess(reason.ClassQueueFull, func(u *User) (int, *Entry) {
					return u.waiting[class].n, u.waiting[class].tail
				})
			}
		}
	}
	for q.counts[slo.Interactive].Fresh+q.counts[slo.Background].Fresh > q.cfg.MaxQueue {
		q.pickExcess(reason.QueueFull, func(u *User) (int, *Entry) {
			for class := slo.NumClasses; class > 0; class-- {
				if e := u.waiting[class-1].tail; e != nil {
					return u.fresh, e // the newest of its lowest class
				}
			}
			return 0, nil
		})
	}
	// The earlier one retries first, so it gets the shorter hint.
	slices.SortFunc(q.excess, func(a, b Excess) int { return cmp.Compare(a.waitNo, b.waitNo) })
	for i := range q.excess {
		q.rejected++
		q.excess[i].RetryAfter = q.retryAfter()
	}
	return q.excess
}

// pickExcess chooses the newest entry of the user with the most waiting entries; of several such users, that whose
// newest entry came last.
func (q *Queue) pickExcess(why reason.Reason, waiting func(*User) (int, *Entry)) {
	var v *Entry
	most := 0
	for _, u := range q.users {
		if n, e := waiting(u); e != nil && (v == nil || n > most || n == most && e.waitNo > v.waitNo) {
			v, most = e, n
		}
	}
	// It was accepted in an earlier Step, so it is told that another user's request took its place.
	if v.bornAt != q.step {
		why = reason.Displaced
	}
	q.unwait(v)
	q.excess = append(q.excess, Excess{Entry: v, Why: why})
}

// Users returns the number of users with live entries.
func (q *Queue) Users() int { return len(q.users) }

// Divided reports whether sequences and cells are shared now: there are several users, and the policy distinguishes
// them.
func (q *Queue) Divided() bool { return q.cfg.ByOwner && len(q.users) != 1 }

// Share returns the number of sequences that each user with live entries may hold while others wait, at least 1.
func (q *Queue) Share() int { return max(1, q.cfg.MaxRunning/max(1, len(q.users))) }

// First returns the entry of a class that is tried next, of which at least one must be queued: the one that fairFirst
// chooses, unless a promised one is due before it.
func (q *Queue) First(class slo.Class) *Entry {
	best := q.fairFirst(class)
	if q.dated == 0 || !q.cfg.ByDeadline || best.Started {
		return best
	}
	due := q.StillDue(best)
	for _, f := range q.heaps[class] {
		if f.head.Started {
			continue
		}
		for e := f.head; e != nil; e = e.next {
			if e.Promise != slo.Never && (e.Due < due || e.Due == due && e.Rank < best.Rank) {
				best, due = e, e.Due
			}
		}
	}
	return best
}

// StillDue returns the deadline of e as promises count it. An entry that has missed its target without a promise counts
// as one without a target.
func (q *Queue) StillDue(e *Entry) slo.Instant {
	if e.Due < q.now && e.Promise == slo.Never {
		return max(e.Due, e.Arrived.Add(UndatedTarget))
	}
	return e.Due
}

// UndatedTarget is the TTFT target that orders requests without one.
const UndatedTarget = 10 * time.Second

// FairSlack is the lead in computed tokens from which on an owner's prompts go behind those of the others.
const FairSlack = 2048

// fairFirst returns the entry that fairness between owners puts first: the head of the first flow. Preempted ones come
// first in the heap, so that they end, unless their user runs its share already and other users wait. Entries that have
// waited for Config.ShareGrace precede all others.
func (q *Queue) fairFirst(class slo.Class) *Entry {
	h := q.heaps[class]
	best := h[0]
	if !q.Divided() {
		return best.head
	}
	if q.dated > 0 {
		best = firstDue(h)
	}
	share := q.Share()
	// tier: 0 is owed its share, 1 was preempted, 2 is new or its user runs its share.
	tier := func(e *Entry) int {
		switch {
		case e.User.Running >= share:
			return 2
		case q.OwedShare(e):
			return 0
		case e.Started:
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
		case f == best || ft == 2 && best == chosen && q.dated > 0:
			continue // chosen by firstDue
		case ft == 2 && f.key() != best.key():
			if f.key() > best.key() {
				continue
			}
		case ft < 2 && f.head.User.Running != best.head.User.Running:
			if f.head.User.Running > best.head.User.Running {
				continue
			}
		case f.head.Rank > best.head.Rank:
			continue
		}
		best, bt = f, ft
	}
	return best.head
}

// firstDue returns the flow that is tried first where owners have equal shares: that of least key, or of the flows that
// are at most FairSlack tokens ahead of it that whose head is due first, if its head has a target.
func firstDue(h flowHeap) *flow {
	best := h[0]
	if best.head.Started {
		return best
	}
	for _, f := range h[1:] {
		if f.key() < best.key() {
			best = f
		}
	}
	least := best.key()
	for _, f := range h {
		if e := f.head; !e.Started && e.Deadline != slo.Never && f.key()-least <= FairSlack && e.Due < best.head.Due {
			best = f
		}
	}
	return best
}

// OwedShare reports whether a waiting entry has waited for Config.ShareGrace while its user runs fewer than its share.
// A user with many more computed tokens than others waits longer: it must not be locked out by requests of clients that
// do not read, but it has had its share of the machine.
func (q *Queue) OwedShare(e *Entry) bool {
	if !q.Divided() || e.User.Running >= q.Share() {
		return false
	}
	waited := q.now.Sub(e.QueuedAt)
	return waited >= q.cfg.ShareGrace &&
		(waited >= aheadGraces*q.cfg.ShareGrace || e.flow.vt-q.virtualNow(e.Class) <= FairSlack)
}

// aheadGraces × Config.ShareGrace is the wait of an entry for its share when its user is ahead of the others by more
// than FairSlack tokens.
const aheadGraces = 5

// Precedes reports whether a is owed a sequence and its user runs fewer than b's; then b's class does not precede a's.
func (q *Queue) Precedes(a, b *Entry) bool {
	return q.OwedShare(a) && a.User.Running < b.User.Running
}

// ShareDue returns when a waiting entry's Config.ShareGrace ends, or slo.Never.
func (q *Queue) ShareDue() slo.Instant {
	at := slo.Never
	if !q.cfg.ByOwner || len(q.users) < 2 {
		return at
	}
	for class := range slo.NumClasses {
		if len(q.heaps[class]) > 0 {
			if end := q.First(class).QueuedAt.Add(q.cfg.ShareGrace); end > q.now {
				at = min(at, end)
			}
		}
	}
	return at
}
