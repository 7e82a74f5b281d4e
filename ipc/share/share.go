// Package share divides sessions, the connections of a server, among its users. Whose a session is, its caller says.
package share

import "sync"

// Holder is whose a session is: a user, or an address.
type Holder uint64

// Session is a connection that counts.
type Session interface {
	ID() uint64 // increases with the time of acceptance
	Idle() bool // no request is in flight
}

// Table has the sessions of all users. While sessions are free a user may have any number. When none is free, a new
// client displaces a session of a user that has at least two more than the client's user. A user below its fair share
// (the limit divided by the users, the new client's included) is therefore always admitted, and users at their share do
// not displace each other in turns. Safe for concurrent use.
//
// Invariant: Len is the sum of the lengths of users' sets, none of which is empty; Len ≤ limit.
type Table struct {
	mu    sync.Mutex
	limit int
	total int
	users map[Holder]map[Session]struct{}
}

// New returns a Table of so many sessions in all.
func New(limit int) *Table {
	return &Table{limit: limit, users: map[Holder]map[Session]struct{}{}}
}

// Add adds x as a session of a holder. If none is free it removes another user's session and returns it for the caller
// to close. ok is false if x cannot have a session.
func (s *Table) Add(of Holder, x Session) (displaced Session, ok bool) {
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
		set = map[Session]struct{}{}
		s.users[of] = set
	}
	set[x] = struct{}{}
	s.total++
	return displaced, true
}

// victim returns the session to displace for a new client of a holder: the newest idle session of the user with the
// most sessions that has an idle one, else the newest session of the user with the most.
func (s *Table) victim(of Holder) (owner Holder, x Session) {
	mine := len(s.users[of])
	var idleOwner, busyOwner Holder
	var idle, busy Session
	for u, set := range s.users {
		if u == of || len(set) < mine+2 {
			continue
		}
		var newestIdle, newest Session
		for x := range set {
			if newest == nil || x.ID() > newest.ID() {
				newest = x
			}
			if (newestIdle == nil || x.ID() > newestIdle.ID()) && x.Idle() {
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
func (s *Table) heavier(u Holder, x Session, than Holder, other Session) bool {
	if other == nil {
		return true
	}
	if a, b := len(s.users[u]), len(s.users[than]); a != b {
		return a > b
	}
	return x.ID() > other.ID()
}

// Remove removes x. It returns false if x is not a session.
func (s *Table) Remove(of Holder, x Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(of, x)
}

func (s *Table) drop(of Holder, x Session) bool {
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

// Replace replaces old by x. It returns false if old is not a session.
func (s *Table) Replace(of Holder, old, x Session) bool {
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

// Move moves x to another holder. It returns false if x is not a session.
func (s *Table) Move(from, to Holder, x Session) bool {
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
		set = map[Session]struct{}{}
		s.users[to] = set
	}
	set[x] = struct{}{}
	s.total++
	return true
}

// Held returns the number of a holder's sessions.
func (s *Table) Held(of Holder) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.users[of])
}

// Len returns the number of sessions.
func (s *Table) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Check panics if the invariant is broken. Called in tests.
func (s *Table) Check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, set := range s.users {
		if len(set) == 0 {
			panic("share: a user without sessions is listed")
		}
		n += len(set)
	}
	if n != s.total || n > s.limit {
		panic("share: sessions are miscounted")
	}
}
