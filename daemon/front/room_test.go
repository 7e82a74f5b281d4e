package front

import (
	"strings"
	"testing"
)

// TestFit: a listed model fits when its least fits beside the pinned ones, and the sentence says which case it is.
func TestFit(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name             string
		state            state
		need, room, free int64
		fits             bool
		text             string
	}{
		{"room", unloaded, gib, 8 * gib, 4 * gib, true, "it needs at least 1.00 GiB of 8.00 GiB"},
		{"exactly", unloaded, 8 * gib, 8 * gib, 8 * gib, true, "of 8.00 GiB"},
		{"others leave", unloaded, 5 * gib, 8 * gib, 4 * gib, true, "other models are unloaded for it"},
		{"too large", unloaded, 9 * gib, 8 * gib, 8 * gib, false, "raise --memory, or use a smaller model"},
		{"pinned take all", unloaded, gib, -gib, -gib, false, "0 B are left"},
		{"loaded", ready, 9 * gib, 8 * gib, 0, true, "it is loaded"},
	} {
		got := (&listing{state: c.state}).fit(c.need, c.room, c.free)
		if got == nil || got.Fits != c.fits || !strings.Contains(got.Text, c.text) || got.Bytes != c.need || got.Room < 0 {
			t.Errorf("%s: %+v, want %v with %q", c.name, got, c.fits, c.text)
		}
	}
	if got := (&listing{}).fit(0, gib, gib); got != nil {
		t.Errorf("a need that is not known: %+v", got)
	}
}
