package price

import (
	"testing"
	"time"
)

// TestPrices: without restores to go by cells are restored; then a tier is left alone while it is clearly slower than
// computing, tried again now and then, and used again once it has become fast.
func TestPrices(t *testing.T) {
	const store, tokens, compute = 2, 100, 100 * time.Millisecond
	var p Prices
	want := func(when string, way Way, restore time.Duration) {
		t.Helper()
		weighed := way
		if way == WayTrial {
			weighed = WayCompute
		}
		before := p
		if d := p.Weigh(store, tokens, compute); d.Way != weighed || d.Restore != restore || p != before {
			t.Errorf("%s: weighed %+v, want %v, %v, and no count", when, d, weighed, restore)
		}
		if d := p.Restore(store, tokens, compute); d.Way != way || d.Restore != restore || d.Compute != compute {
			t.Errorf("%s: %v, predicted %v; want %v, %v", when, d.Way, d.Restore, way, restore)
		}
	}
	want("nothing seen", WayRestore, 0)
	learn := func(first, token time.Duration) { p.Learn(store, 50, first, first+50*token) }
	learn(50*time.Millisecond, 3*time.Millisecond)
	learn(50*time.Millisecond, 3*time.Millisecond)
	want("two restores seen", WayRestore, 0)
	learn(50*time.Millisecond, 3*time.Millisecond)
	for round := range 2 {
		for range trialEvery - 1 {
			want("slow", WayCompute, 350*time.Millisecond)
		}
		want("slow for long", WayTrial, 350*time.Millisecond)
		if round == 1 {
			break
		}
	}
	if d := p.Restore(store, tokens, 200*time.Millisecond); d.Way != WayRestore {
		t.Errorf("less than twice as slow as computing: %v", d.Way)
	}
	if d := p.Restore(store, tokens, 0); d.Way != WayRestore {
		t.Errorf("computing was not measured: %v", d.Way)
	}
	if d := p.Restore(0, tokens, compute); d.Way != WayRestore || d.Restore != 0 {
		t.Errorf("another store: %v, predicted %v", d.Way, d.Restore)
	}
	for range 12 {
		learn(time.Millisecond, 100*time.Microsecond)
	}
	if d := p.Restore(store, tokens, compute); d.Way != WayRestore || d.Restore > 50*time.Millisecond {
		t.Errorf("fast again: %v, predicted %v", d.Way, d.Restore)
	}
	for _, bad := range []struct {
		n           int
		first, took time.Duration
	}{{0, 0, 1}, {-1, 0, 1}, {1, -1, 1}, {1, 2, 1}} {
		before := p
		if p.Learn(store, bad.n, bad.first, bad.took); p != before {
			t.Errorf("learned from %+v", bad)
		}
	}
}

// TestPriceOfACopy: cells that are cheaper to compute than to restore are not copied out, but for one in a while.
func TestPriceOfACopy(t *testing.T) {
	var p Prices
	for range samples {
		p.Learn(0, 100, 0, 10*time.Millisecond)
	}
	for _, c := range []struct {
		copying, compute time.Duration
		want             Way
	}{
		{0, 5 * time.Millisecond, WayCopy},
		{5 * time.Millisecond, 5 * time.Millisecond, WayDiscard},
		{0, time.Millisecond, WayDiscard},
		{time.Hour, 0, WayCopy},
	} {
		if d := p.Copy(0, 100, c.copying, c.compute); d.Way != c.want {
			t.Errorf("copying %v, computing %v: %v, want %v", c.copying, c.compute, d.Way, c.want)
		}
	}
	copied := 0
	for range 4 * trialEvery {
		if p.Copy(0, 100, 0, time.Millisecond).Way == WayCopy {
			copied++
		}
	}
	if copied != 4 {
		t.Errorf("%d of %d were copied, want 4", copied, 4*trialEvery)
	}
}
