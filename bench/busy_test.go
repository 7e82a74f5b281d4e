package bench

import (
	"testing"
	"time"
)

// TestBusyFigures: of 100 tokens/s, 40 beside a process, and 100 again 0.7 s behind its end.
func TestBusyFigures(t *testing.T) {
	const calm, busy, after = 2 * time.Second, 4 * time.Second, 6 * time.Second
	back := busy + 700*time.Millisecond
	var all []stamp
	for at := time.Duration(0); at < after; {
		gap := 25 * time.Millisecond
		if at < calm || at >= back {
			gap = 10 * time.Millisecond
		}
		at += gap
		all = append(all, stamp{at: at, gap: gap, later: len(all) > 0})
	}
	r := busyRound{calm: speedOf(all, 0, calm), busy: speedOf(all, calm, busy)}
	r.back = backAfter(all, busy, after, 0.9*r.calm.rate)
	// The first half second with 0.9 of the speed begins at most one window before the speed is back.
	if r.back < 500*time.Millisecond || r.back > time.Second {
		t.Errorf("back after %v, want about 0.7 s", r.back)
	}
	got := busyRow("x", 1, []busyRound{r, r})
	if got.Undisturbed < 98 || got.Undisturbed > 102 || got.Disturbed < 38 || got.Disturbed > 42 ||
		got.Ratio < 0.38 || got.Ratio > 0.43 || got.CalmITLp95Ms != 10 || got.ITLp95Ms != 25 ||
		got.BackSeconds != r.back.Seconds() {
		t.Errorf("%+v", got)
	}
	if d := backAfter(all, calm, busy, 90); d != busy-calm {
		t.Errorf("where the speed does not come back: %v, want the whole phase", d)
	}
	if empty := busyRow("x", 1, nil); empty != (Busy{Side: "x", Streams: 1}) {
		t.Errorf("without a round: %+v", empty)
	}
}

// TestIdleCost: rounds are compared with the round beside them, because the machine is faster in some.
func TestIdleCost(t *testing.T) {
	at := func(rates ...float64) (rs []busyRound) {
		for _, r := range rates {
			rs = append(rs, busyRound{calm: speed{rate: r}})
		}
		return rs
	}
	if got := idleCost(at(90, 200, 300), at(100, 200, 200)); got != 1 {
		t.Errorf("%v, want 1", got)
	}
	if got := idleCost(at(90), at(0)); got != 0 {
		t.Errorf("without a speed to compare with: %v, want 0", got)
	}
}

// TestEqualFigures: three streams, the last of which begins late.
func TestEqualFigures(t *testing.T) {
	const ms = int64(time.Millisecond)
	got := equalOf([][]int64{{10 * ms, 20 * ms, 30 * ms}, {12 * ms, 22 * ms, 32 * ms}, {40 * ms, 45 * ms, 145 * ms}})
	if got.DoneMs != 145 || got.LastFirstMs != 40 || got.ITLp95Ms != 100 {
		t.Errorf("%+v", got)
	}
	calls := 0
	rows, err := RunEqual(EqualConfig{Clients: 2, Tokens: 2, Rounds: 3, Names: [2]string{"a", "b"},
		Sockets: [2]string{"1", "2"}, Client: func(j ClientJob) ([][]int64, error) {
			calls++
			n := int64(len(j.Socket)) * ms
			if j.Socket == "2" {
				n *= 2
			}
			return [][]int64{{n, 3 * n}, {2 * n, 4 * n}}, nil
		}})
	if err != nil || calls != 8 || rows[1].DoneRatio != 2 || rows[1].LastFirstRat != 2 || rows[0].DoneMs != 4 {
		t.Errorf("%d calls, %v, %+v", calls, err, rows)
	}
}
