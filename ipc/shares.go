package ipc

import "sync"

// session is a connection that counts against Config.MaxSessions: a *Conn or an *httpConn.
type session interface {
	number() uint64 // grows with the time of acceptance
	idle() bool     // no request of it is in flight
}

// shares counts sessions by user, so that one user cannot hold all of them. While sessions are free a user may hold
// any number. When none is free, a newcomer whose user holds at least two fewer than another user takes one of that
// user's. A user below its fair share (the limit divided by the users, the newcomer's included) therefore always gets
// in, and users at their share never take sessions from each other in turns.
//
// Invariant: total is the sum of the lengths of users' sets, none of which is empty; total ≤ limit.
type shares struct {
	mu    sync.Mutex
	limit int
	total int
	users map[uint32]map[session]struct{}
}

func newShares(limit int) *shares {
	return &shares{limit: limit, users: map[uint32]map[session]struct{}{}}
}

// add enters x as a session of uid. When none is free it makes room by removing another user's session, which it
// returns for the caller to close. ok is false when x cannot have a session.
func (s *shares) add(uid uint32, x session) (displaced session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.limit {
		owner, victim := s.victim(uid)
		if victim == nil {
			return nil, false
		}
		s.drop(owner, victim)
		displaced = victim
	}
	set := s.users[uid]
	if set == nil {
		set = map[session]struct{}{}
		s.users[uid] = set
	}
	set[x] = struct{}{}
	s.total++
	return displaced, true
}

// victim is the session that makes way for a newcomer of uid: the newest idle one of the heaviest user that has one;
// without any idle one, the newest of the heaviest user.
func (s *shares) victim(uid uint32) (owner uint32, x session) {
	mine := len(s.users[uid])
	var idleOwner, busyOwner uint32
	var idle, busy session
	for u, set := range s.users {
		if u == uid || len(set) < mine+2 {
			continue
		}
		var newestIdle, newest session
		for x := range set {
			if newest == nil || x.number() > newest.number() {
				newest = x
			}
			if (newestIdle == nil || x.number() > newestIdle.number()) && x.idle() {
				newestIdle = x
			}
		}
		if newestIdle != nil && s.heavier(u, newestIdle, idleOwner, idle) {
			idleOwner, idle = u, newestIdle
		}
		if s.heavier(u, newest, busyOwner, busy) {
			busyOwner, busy = u, newest
		}
	}
	if idle != nil {
		return idleOwner, idle
	}
	return busyOwner, busy
}

// heavier orders candidates by their users' sessions, then by age, the newest first.
func (s *shares) heavier(u uint32, x session, than uint32, other session) bool {
	if other == nil {
		return true
	}
	if a, b := len(s.users[u]), len(s.users[than]); a != b {
		return a > b
	}
	return x.number() > other.number()
}

// remove takes x out; false: it is not, or no longer, a session.
func (s *shares) remove(uid uint32, x session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(uid, x)
}

func (s *shares) drop(uid uint32, x session) bool {
	set := s.users[uid]
	if _, ok := set[x]; !ok {
		return false
	}
	delete(set, x)
	if len(set) == 0 {
		delete(s.users, uid)
	}
	s.total--
	return true
}

// replace puts x in old's place; false: old is no longer a session.
func (s *shares) replace(uid uint32, old, x session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.users[uid]
	if _, ok := set[old]; !ok {
		return false
	}
	delete(set, old)
	set[x] = struct{}{}
	return true
}

// held is how many sessions uid has.
func (s *shares) held(uid uint32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.users[uid])
}

// check panics when the invariant does not hold. Called in tests.
func (s *shares) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, set := range s.users {
		if len(set) == 0 {
			panic("ipc: a user without sessions is remembered")
		}
		n += len(set)
	}
	if n != s.total || n > s.limit {
		panic("ipc: sessions are miscounted")
	}
}
