package daemon

import (
	"testing"
	"time"
)

func TestParseKeepAlive(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0.0": 0, `"0"`: 0, "300": 5 * time.Minute,
		`"5m"`: 5 * time.Minute, `"1h30m"`: 90 * time.Minute, "-1": -1, `"-1"`: -1, `"-5m"`: -1,
		"1e300": 1e9 * time.Second, "0.5": time.Second / 2, " 60 ": time.Minute} {
		if d, err := parseKeepAlive([]byte(text)); err != nil || d != want {
			t.Errorf("%s: %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", "null", "true", `""`, `"soon"`, "[1]", `{"a":1}`, `"5"m`} {
		if d, err := parseKeepAlive([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, d)
		}
	}
}
