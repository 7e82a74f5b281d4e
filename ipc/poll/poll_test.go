package poll

import (
	"testing"
)

// TestWake: wake-ups before the wait are not lost, and many of them cost one.
func TestWake(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		for range 10 {
			p.Wake()
		}
		if !p.pending.Load() {
			t.Fatal("no wake-up pending")
		}
		if evs, err := p.Wait(-1, nil); err != nil || len(evs) != 0 {
			t.Fatal(evs, err)
		}
		if p.pending.Load() {
			t.Fatal("the wake-up was not taken")
		}
		if evs, err := p.Wait(0, nil); err != nil || len(evs) != 0 || p.pending.Load() {
			t.Fatal("a second wake-up was left", evs, err)
		}
	}
}
