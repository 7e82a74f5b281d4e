package ollama

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// KeepAlive reads a keep_alive, for how long the model of a request stays loaded without another one: a number of
// seconds or a duration with a unit, also as a text; less than 0 means for ever and is -1. ok is false where there is
// none. The error is for the client.
func KeepAlive(raw []byte) (d time.Duration, ok bool, err error) {
	text := string(bytes.TrimSpace(raw))
	if text == "" || text == "null" {
		return 0, false, nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		text = s
	}
	d, err = time.ParseDuration(text)
	if seconds, nerr := strconv.ParseFloat(text, 64); nerr == nil && !math.IsNaN(seconds) { // Python writes 0.0
		d, err = time.Duration(max(min(seconds, maxKeep), -1)*float64(time.Second)), nil
	}
	if err != nil {
		return 0, false, api.Refusef(`field "keep_alive" is %.40s; it must be a number of seconds, or a duration `+
			`such as "5m"`, bytes.TrimSpace(raw))
	}
	return max(d, -1), true, nil
}

// KeepAliveOf reads the keep_alive of a request's body.
func KeepAliveOf(body []byte) (d time.Duration, ok bool, err error) {
	if !bytes.Contains(body, []byte(`"keep_alive"`)) {
		return 0, false, nil
	}
	var of struct {
		KeepAlive json.RawMessage `json:"keep_alive"`
	}
	if err := json.Unmarshal(body, &of); err != nil {
		return 0, false, err
	}
	return KeepAlive(of.KeepAlive)
}

// maxKeep is the longest time in seconds, some 30 years: more does not fit into a duration in nanoseconds.
const maxKeep = 1e9
