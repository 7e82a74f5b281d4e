package viewing

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestViewTurns: users get turns in turn, each user's in the order of arrival, and what does not wait any more gets
// none.
func TestViewTurns(t *testing.T) {
	var v viewTurns
	if !v.take(1, nil) {
		t.Fatal("no turn")
	}
	order := make(chan string)
	wait := func(name string, owner uint32, stop chan struct{}) (ended chan struct{}) {
		ended = make(chan struct{})
		v.mu.Lock()
		n := len(v.waiting)
		v.mu.Unlock()
		go func() {
			defer close(ended)
			if v.take(owner, stop) {
				order <- name
			}
		}()
		waitfor.True(t, name+" waits", func() bool {
			v.mu.Lock()
			defer v.mu.Unlock()
			return len(v.waiting) == n+1
		})
		return ended
	}
	wait("a1", 1, nil)
	wait("a2", 1, nil)
	wait("a3", 1, nil)
	stop := make(chan struct{})
	gone := wait("b1", 2, stop)
	wait("b2", 2, nil)
	wait("c1", 3, nil)
	close(stop)
	<-gone
	var got []string
	for range 5 {
		v.give()
		got = append(got, <-order)
	}
	if want := []string{"a1", "c1", "a2", "b2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if v.give(); v.taken || len(v.last) != 0 {
		t.Errorf("a turn is left: %+v", &v)
	}
	if !v.take(9, nil) {
		t.Error("no turn after the others")
	}
}
