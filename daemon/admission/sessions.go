package admission

import (
	"slices"
	"sync"

	"github.com/uma-serve/uma-serve/ipc"
)

// Live is a request that has not ended.
type Live interface {
	comparable
	Conn() ipc.Client
	WireID() string
}

// Sessions lists the live requests of each connection. It changes when a request arrives or is finalised, never per
// token. The zero value has none.
type Sessions[R Live] struct {
	mu   sync.Mutex
	live map[ipc.Client][]R
}

// Add registers a request.
func (t *Sessions[R]) Add(r R) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[ipc.Client][]R{}
	}
	t.live[r.Conn()] = append(t.live[r.Conn()], r)
}

// Find returns the first request of a connection with an id.
func (t *Sessions[R]) Find(c ipc.Client, id string) (r R, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.live[c] {
		if r.WireID() == id {
			return r, true
		}
	}
	return r, false
}

// Count returns the number of a connection's requests.
func (t *Sessions[R]) Count(c ipc.Client) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.live[c])
}

// Of returns a connection's requests.
func (t *Sessions[R]) Of(c ipc.Client) []R {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.live[c])
}

// Each calls f with the requests of all connections. f must not use t.
func (t *Sessions[R]) Each(f func(R)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, live := range t.live {
		for _, r := range live {
			f(r)
		}
	}
}

// Remove deletes a finalised request; its id may be used again.
func (t *Sessions[R]) Remove(r R) {
	c := r.Conn()
	t.mu.Lock()
	rest := slices.DeleteFunc(t.live[c], func(o R) bool { return o == r })
	if len(rest) == 0 {
		delete(t.live, c)
	} else {
		t.live[c] = rest
	}
	t.mu.Unlock()
	c.Done(r.WireID())
}
