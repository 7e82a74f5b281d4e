package sched

import (
	"github.com/uma-serve/uma-serve/sched/queue"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Requests that are preempted for the shares of users (package queue):
//
//   - For a request that is owed its share a request is preempted whose user has more than its share of sequences, or
//     two requests or more with more than its share of cells. A user's only request with more cells than that is
//     preempted too, with Config.Prefix, which keeps what it computed, and after it has run for a while.
//   - When running requests need cells, users with two or more requests that hold more than their share give up cells
//     first.
//
// Without Config.Prefix, where a preempted request computes everything again, the only running request of a user is
// never preempted for a share, so each user always progresses.

// rejectExcess ends a waiting request for which the queue has no room.
func (s *Scheduler) rejectExcess(x *queue.Excess) {
	r := s.records[x.Slot]
	s.reject(r.id, x.Why, x.RetryAfter)
	s.totals.ended.note(r, s.now, x.Why)
	s.forget(r)
}

// overShare reports whether o may be preempted for r because its user has more than its share. o has run for a step.
func (s *Scheduler) overShare(o, r *request) bool {
	if !s.queue.OwedShare(&r.entry) || o.entry.User == r.entry.User || o.entry.Class < r.entry.Class ||
		o.place.starting || o.turns.lastStep == s.step || o.entry.Promise != never {
		return false
	}
	u := o.entry.User
	switch {
	case u.Running-u.Leaving > s.queue.Share(), s.overCells(u):
		return true
	case u.Running-u.Leaving == 1 && s.cfg.Prefix && o.own() > s.capacity()/s.queue.Users():
		// The only request of its user. It continues from its cached prefix; without Config.Prefix it would compute
		// everything again and might never end.
		return s.now.Sub(o.place.startedAt) >= aloneGraces*s.cfg.ShareGrace
	}
	return false
}

// overCells reports whether u has two running requests or more, and more cells than its share.
func (s *Scheduler) overCells(u *queue.User) bool {
	if u.Running-u.Leaving < 2 || s.queue.Users() == 1 {
		return false
	}
	n := 0
	for _, r := range s.running {
		if r.entry.User == u && r.place.preemptFor == reason.None {
			n += r.own()
		}
	}
	return n > s.capacity()/s.queue.Users()
}

// nextVictim returns the running request that is preempted next for want of cells. share says that it was chosen
// because its user has more than its share.
func (s *Scheduler) nextVictim() (v *request, share bool) {
	v = s.last(nil)
	if !s.queue.Divided() || v.paused || s.overCells(v.entry.User) {
		return v, false
	}
	if o := s.last(func(o *request) bool {
		return o.entry.User != v.entry.User && !o.place.starting && s.overCells(o.entry.User)
	}); o != nil {
		return o, true
	}
	return v, false
}
