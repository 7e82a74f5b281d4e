package slo

import (
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	const server, own, answer = 100 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond
	for name, c := range map[string]struct {
		of                   Targets
		interactive, closing bool
		want                 time.Duration
	}{
		"background without a target":        {Targets{}, false, false, 0},
		"background with a target":           {Targets{TargetITL: own}, false, false, own},
		"interactive":                        {Targets{}, true, false, server},
		"tighter than the server's":          {Targets{TargetITL: own}, true, false, own},
		"wider than the server's":            {Targets{TargetITL: 2 * server}, true, false, 2 * server},
		"the thought goes on":                {Targets{TargetTTOT: answer}, true, false, server},
		"the thought has closed":             {Targets{TargetTTOT: answer}, true, true, answer},
		"… in the background":                {Targets{TargetTTOT: answer}, false, true, answer},
		"… with a wider target behind it":    {Targets{TargetTTOT: 2 * server}, true, true, server},
		"the first token's target is no ITL": {Targets{TargetTTFT: answer}, false, true, 0},
	} {
		if got := c.of.Next(server, c.interactive, c.closing); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
