package ollama

import (
	"strings"
	"testing"
	"time"
)

func TestKeepAlive(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0.0": 0, `"0"`: 0, "300": 5 * time.Minute,
		`"5m"`: 5 * time.Minute, `"1h30m"`: 90 * time.Minute, "-1": -1, `"-1"`: -1, `"-5m"`: -1, "-1e300": -1,
		"1e300": maxKeep * time.Second, "0.5": time.Second / 2, " 60 ": time.Minute} {
		if d, ok, err := KeepAlive([]byte(text)); err != nil || !ok || d != want {
			t.Errorf("%s: %v, %v, %v; want %v", text, d, ok, err, want)
		}
	}
	for _, text := range []string{"", "null", " null "} {
		if d, ok, err := KeepAlive([]byte(text)); ok || err != nil {
			t.Errorf("%q: %v, %v, %v", text, d, ok, err)
		}
	}
	for _, text := range []string{"true", `""`, `"soon"`, "[1]", `{"a":1}`, `"5"m`, `"NaN"`} {
		if d, ok, err := KeepAlive([]byte(text)); ok || err == nil || !strings.Contains(err.Error(), "keep_alive") {
			t.Errorf("%q: %v, %v, %v", text, d, ok, err)
		}
	}
}
