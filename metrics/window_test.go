package metrics

import "testing"

// TestWindow: a rate is that since the newest one, a count without time waits, and a count from 0 begins again.
func TestWindow(t *testing.T) {
	var w Window
	for i, c := range []struct{ count, seconds, want float64 }{
		{0, 0, 0}, {10, 2, 5}, {10, 2, 0}, {16, 2, 0}, {20, 4, 5}, {20, 4, 0}, {3, 1, 3}, {5, 2, 2},
	} {
		if got := w.Rate(c.count, c.seconds); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
}
