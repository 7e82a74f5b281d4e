package tiers

import (
	"log/slog"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

// TestNoViewIsStoredAfterClose: closing waits for the views that are being copied, at most until its deadline, and then
// none is.
func TestNoViewIsStoredAfterClose(t *testing.T) {
	for _, c := range []struct {
		copied   int
		deadline time.Duration
	}{{0, time.Hour}, {1, time.Hour}, {1, -time.Hour}} {
		v := &viewStore{slots: make(chan struct{}, viewCopies), log: slog.New(slog.DiscardHandler)}
		s := &Stores{views: v}
		for range c.copied {
			v.slots <- struct{}{}
		}
		if c.copied > 0 && c.deadline > 0 {
			go func() { <-v.slots }() // the copy ends
		}
		s.Close(time.Now().Add(c.deadline))
		if c.deadline > 0 && len(v.slots) != viewCopies {
			t.Errorf("%+v: %d of %d slots are taken", c, len(v.slots), viewCopies)
		}
		if c.deadline > 0 {
			done := false
			v.Store([32]byte{}, 0, &runtime.View{}, func() { done = true }) // it has no cache
			if !done {
				t.Errorf("%+v: a view that is left out counts as being stored", c)
			}
		}
	}
}
