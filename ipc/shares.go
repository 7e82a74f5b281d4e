package ipc

import "sync"

// session is a connection that counts against Config.MaxSessions: a *Conn or an *httpConn.
type session interface {
	number() uint64 // grows with the time of acceptance
	idle() bool     // no request of it is in flight
}

// shares counts sessions by user (see holder), so that one user cannot hold all of them. While sessions are free a user may hold
// any number. When none is free, a newcomer whose user holds at least two fewer than another user takes one of that
// user's. A user below its fair share (the limit divided by the users, the newcomer's included) therefore always gets
// in, and users at their share never take sessions from each other in turns.
//
// Invariant: total is the sum of the lengths of users' sets, none of which is empty; total ≤ limit.
type shares struct {
	mu    sync.Mutex
	limit int
	total int
	users map[holder]map[session]struct{}
}

func newShares(limit int) *shares {
	return &shares{limit: limit, users: map[holder]map[session]struct{}{}}
}

// add enters x as a session of a holder. When none is free it makes room by removing another user's session, which it
// returns for the caller to close. ok is false when x cannot have a session.
func (s *shares) add(of holder, x session) (displaced session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.limit {
		owner, victim := s.victim(of)
		if victim == nil {
			return nil, false
		}
		s.drop(owner, victim)
		displaced = victim
	}
	set := s.users[of]
	if set == nil {
		set = map[session]struct{}{}
		s.users[of] = set
	}
	set[x] = struct{}{}
	s.total++
	return displaced, true
}

// victim is the session that makes way for a newcomer of a holder: the newest idle one of the heaviest user that has one;
// without any idle one, the newest of the heaviest user.
func (s *shares) victim(of holder) (owner holder, x session) {
	mine := len(s.users[of])
	var idleOwner, busyOwner holder
	var idle, busy session
	for u, set := range s.users {
		if u == of || len(set) < mine+2 {
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
func (s *shares) heavier(u holder, x session, than holder, other session) bool {
	if other == nil {
		return true
	}
	if a, b := len(s.users[u]), len(s.users[than]); a != b {
		return a > b
	}
	return x.number() > other.number()
}

// remove takes x out; false: it is not, or no longer, a session.
func (s *shares) remove(of holder, x session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(of, x)
}

func (s *shares) drop(of holder, x session) bool {
	set := s.users[of]
	if _, ok := set[x]; !ok {
		return false
	}
	delete(set, x)
	if len(set) == 0 {
		delete(s.users, of)
	}
	s.total--
	return true
}

// replace puts x in old's place; false: old is no longer a session.
func (s *shares) replace(of holder, old, x session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.users[of]
	if _, ok := set[old]; !ok {
		return false
	}
	delete(set, old)
	set[x] = struct{}{}
	return true
}

// move counts x with another holder from now on; false: x is no longer a session.
func (s *shares) move(from, to holder, x session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from == to {
		return true
	}
	if !s.drop(from, x) {
		return false
	}
	set := s.users[to]
	if set == nil {
		set = map[session]struct{}{}
		s.users[to] = set
	}
	set[x] = struct{}{}
	s.total++
	return true
}

// held is how many sessions a holder has.
func (s *shares) held(of holder) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.users[of])
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
