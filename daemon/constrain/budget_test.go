package constrain

import (
	"testing"
	"time"
)

// TestBudget: cheap masks are free for ever; expensive ones of a user are refused after a burst, others' are not,
// and time forgives.
func TestBudget(t *testing.T) {
	now := time.Unix(0, 0)
	m := budget{now: func() time.Time { return now }}
	for range 10_000 {
		if err := m.charge(1, freeMaskSteps); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.users) != 0 {
		t.Errorf("%d users are remembered for cheap masks", len(m.users))
	}
	n := 0
	for ; n < 1000 && m.charge(1, 1_000_000) == nil; n++ {
	}
	if n < 20 || n > 23 {
		t.Errorf("%d masks of a million steps at once", n)
	}
	if err := m.charge(1, freeMaskSteps); err != nil {
		t.Errorf("a cheap mask after that: %v", err)
	}
	if m.check(1) == nil || m.check(2) != nil {
		t.Errorf("the next mask: %v; another user's: %v", m.check(1), m.check(2))
	}
	if err := m.charge(2, 1_000_000); err != nil {
		t.Errorf("another user's: %v", err)
	}
	now = now.Add(10 * time.Second)
	for n = 0; n < 1000 && m.charge(1, 1_000_000) == nil; n++ {
	}
	if n < 10 || n > 13 {
		t.Errorf("%d masks of a million steps after 10 s", n)
	}
	now = now.Add(time.Hour)
	if m.charge(3, 1_000_000); len(m.users) != 1 {
		t.Errorf("%d users are remembered after an hour", len(m.users))
	}
}
