package lmstudio

import (
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/models/download"
)

// TestEstimate: the end of a download is ahead, however slowly it comes.
func TestEstimate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		total int64
		speed float64
		want  string
	}{
		{1000, 100, "2026-01-02T03:04:15.000Z"},
		{0, 0, "2028-12-04T15:32:45.368Z"},       // unknown
		{1 << 40, 1, "2028-12-04T15:32:45.368Z"}, // 35,000 years
		{1 << 62, 1.5, "2028-12-04T15:32:45.368Z"},
	} {
		st := &download.State{Status: download.Downloading, Speed: c.speed,
			Choice: &download.Choice{Bytes: c.total}, Started: now}
		if got := jobOf(st, now).Estimated; got != c.want {
			t.Errorf("%d bytes at %v: %s, want %s", c.total, c.speed, got, c.want)
		}
	}
}
