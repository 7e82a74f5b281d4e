package pull

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Pauses between attempts.
const (
	firstPause    = 500 * time.Millisecond
	longestPause  = 30 * time.Second
	maxRetryAfter = 10 * time.Minute // a server that asks for more ends the pull
)

// backoff returns the pause after the nth failure in a row, from 0: doubling, with up to a quarter more, so that the
// connections of many pulls do not come back together.
func backoff(n int) time.Duration {
	d := min(firstPause<<min(n, 20), longestPause)
	return d + rand.N(d/4)
}

// retryAfter returns the wait that the server asks for: Retry-After in seconds or as a date (RFC 9110), else the reset
// of an exhausted RateLimit, as the hub sends it (draft-ietf-httpapi-ratelimit-headers): "api";r=0;t=55.
func retryAfter(h http.Header, now time.Time) time.Duration {
	seconds := func(text string) time.Duration {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		if err != nil {
			return 0
		}
		return time.Duration(n) * time.Second
	}
	if text := h.Get("Retry-After"); text != "" {
		if at, err := http.ParseTime(text); err == nil {
			return max(0, at.Sub(now))
		}
		return seconds(text)
	}
	for item := range strings.SplitSeq(h.Get("RateLimit"), ",") {
		var reset time.Duration
		left := true
		for param := range strings.SplitSeq(item, ";") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(param), "="); name {
			case "r":
				left = strings.TrimSpace(value) != "0"
			case "t":
				reset = seconds(value)
			}
		}
		if !left {
			return reset
		}
	}
	return 0
}

// contentRange reads "bytes FROM-TO/SIZE"; size is -1 for "*". ok is false for any other text.
func contentRange(text string) (s span, size int64, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "bytes ")
	if !ok {
		return span{}, 0, false
	}
	part, total, ok := strings.Cut(rest, "/")
	from, to, ok2 := strings.Cut(part, "-")
	if !ok || !ok2 {
		return span{}, 0, false
	}
	number := func(text string) int64 {
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil {
			ok = false
		}
		return int64(n)
	}
	s = span{number(from), number(to) + 1}
	size = -1
	if total != "*" {
		size = number(total)
	}
	return s, size, ok && s.len() > 0 && (size < 0 || s[1] <= size)
}
