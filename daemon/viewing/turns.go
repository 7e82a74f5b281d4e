package viewing

import (
	"cmp"
	"slices"
	"sync"
)

// viewTurns lets one goroutine at a time do something long, users in turn: of two users that wait, each has every
// second turn, however many requests it has.
type viewTurns struct {
	mu      sync.Mutex
	taken   bool
	round   uint64            // of the turn that is or was taken
	last    map[uint32]uint64 // round of each user's newest request, where it is above round
	waiting []*waitingTurn
}

type waitingTurn struct {
	round uint64
	begin chan struct{} // closed when it has the turn
}

// take waits for a turn of owner, at most until stop is closed. It reports whether there is one, which give ends.
func (t *viewTurns) take(owner uint32, stop <-chan struct{}) bool {
	t.mu.Lock()
	if t.last == nil {
		t.last = map[uint32]uint64{}
	}
	w := &waitingTurn{round: max(t.round, t.last[owner]) + 1, begin: make(chan struct{})}
	t.last[owner] = w.round
	t.waiting = append(t.waiting, w)
	if !t.taken {
		t.next()
	}
	t.mu.Unlock()
	select {
	case <-w.begin:
		return true
	case <-stop:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else {
		t.next() // it got the turn meanwhile
	}
	return false
}

func (t *viewTurns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

// next gives the turn to the request of the lowest round, of those to the one that came first. t.mu is held.
func (t *viewTurns) next() {
	if t.taken = len(t.waiting) > 0; !t.taken {
		clear(t.last)
		return
	}
	w := slices.MinFunc(t.waiting, func(a, b *waitingTurn) int { return cmp.Compare(a.round, b.round) })
	t.waiting = slices.DeleteFunc(t.waiting, func(o *waitingTurn) bool { return o == w })
	t.round = w.round
	for owner, round := range t.last {
		if round <= t.round {
			delete(t.last, owner)
		}
	}
	close(w.begin)
}
