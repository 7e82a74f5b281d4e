package cost

import (
	"testing"
	"time"
)

// TestPaceSettles: from either side the budget comes to a size whose steps take about the goal.
func TestPaceSettles(t *testing.T) {
	took := func(n int) time.Duration { return 5*time.Millisecond + time.Duration(n)*500*time.Microsecond }
	for _, start := range []int{4, 30, 50, 2000} {
		p := NewPace(30*time.Millisecond, start, 4, 4096)
		for range 60 {
			n := p.Size()
			p.Observe(n, true, took(n))
		}
		if got := took(p.Size()); got < 25*time.Millisecond || got > 34*time.Millisecond {
			t.Errorf("from %d it settles at %d tokens, %v", start, p.Size(), got)
		}
	}
	p := NewPace(30*time.Millisecond, 20, 4, 4096)
	for range 60 {
		p.Observe(20, false, time.Millisecond)
	}
	if p.Size() != 20 {
		t.Errorf("the budget grew to %d although it was not the limit", p.Size())
	}
}

// TestWholeTiles: a chunk ends with a whole tile where that leaves enough of it, and is never cut to nothing.
func TestWholeTiles(t *testing.T) {
	for _, c := range []struct{ rows, least, n, want int }{
		{0, 1, 512, 512}, {0, 1, 100, 96}, {3, 1, 100, 93}, {0, 1, 15, 12}, {0, 1, 4, 4}, {0, 1, 3, 3},
		{4, 1, 1, 1}, {3, 1, 3, 1}, {30, 1, 2, 2}, {30, 1, 1, 1}, {0, 14, 15, 15}, {0, 16, 17, 16},
	} {
		if got := WholeTiles(c.rows, c.least, c.n); got != c.want {
			t.Errorf("%d rows, %d … %d tokens: %d, want %d", c.rows, c.least, c.n, got, c.want)
		}
	}
}
