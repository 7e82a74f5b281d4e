package ipc

import "sync"

// session is a connection that counts against Config.MaxSessions: a *Conn or an *httpConn.
type session interface {
	number() uint64 // increases with the time of acceptance
	idle() bool     // no request is in flight
}

// shares divides sessions among users (see holder). While sessions are free a user may have any number. When none is
// free, a new client displaces a session of a user that has at least two more than the client's user. A user below its
// fair share (the limit divided by the users, the new client's included) is therefore always admitted, and users at
// their share do not displace each other in turns.
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

// add adds x as a session of a holder. If none is free it removes another user's session and returns it for the caller
// to close. ok is false if x cannot have a session.
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

// victim returns the session to displace for a new client of a holder: the newest idle session of the user with the
// most sessions that has an idle one, else the newest session of the user with the most.
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

// heavier reports whether x of u is the better victim: u has more sessions or, with as many, x is newer.
func (s *shares) heavier(u holder, x session, than holder, other session) bool {
	if other == nil {
		return true
	}
	if a, b := len(s.users[u]), len(s.users[than]); a != b {
		return a > b
	}
	return x.number() > other.number()
}

// remove removes x. It returns false if x is not a session.
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

// replace replaces old by x. It returns false if old is not a session.
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

// move moves x to another holder. It returns false if x is not a session.
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

// held returns the number of a holder's sessions.
func (s *shares) held(of holder) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.users[of])
}

// check panics if the invariant is broken. Called in tests.
func (s *shares) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, set := range s.users {
		if len(set) == 0 {
			panic("ipc: a user without sessions is listed")
		}
		n += len(set)
	}
	if n != s.total || n > s.limit {
		panic("ipc: sessions are miscounted")
	}
}
