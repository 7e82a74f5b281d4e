package sampler

import (
	"strings"
	"testing"
	"time"
)

// TestLines: an answer ends at a line that is indented too little, or at a newline after its time, wherever its text
// is divided into tokens.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		l          Lines
		each       time.Duration // time of a byte
		text, want string
		ended      bool
	}{
		{Lines{}, time.Hour, "a\nb\n", "a\nb\n", false},
		{Lines{Indent: 4}, 0, "a\n    b\n\t\t\t\tc\n  d\n", "a\n    b\n\t\t\t\tc\n  ", true},
		{Lines{Indent: 4}, 0, "a\n\n    b", "a\n", true}, // as in llama-server
		{Lines{Indent: 2}, 0, "none of it\n  ", "none of it\n  ", false},
		{Lines{MaxTime: 3 * time.Second}, time.Second, "a\nb c d\ne\n", "a\nb c d\n", true},
		{Lines{MaxTime: 3 * time.Second}, time.Second, "without newline", "without newline", false},
		{Lines{Indent: 1, MaxTime: 3 * time.Second}, time.Second, "a\nb\n", "a\n", true},
	} {
		for size := 1; size <= len(c.text); size++ {
			if size > 1 && c.each > 0 {
				break // the time of a newline is that of its token
			}
			l, got, at := c.l, "", time.Duration(0)
			for rest := c.text; rest != "" && !l.Ended(); {
				n := min(size, len(rest))
				kept, end := l.Push([]byte(rest[:n]), at)
				got, rest, at = got+rest[:kept], rest[n:], at+c.each
				if end != l.Ended() {
					t.Fatalf("end is %v, Ended %v", end, l.Ended())
				}
			}
			if got != c.want || l.Ended() != c.ended {
				t.Errorf("%+v, %d bytes a token: %q, ended %v; want %q, %v", c.l, size, got, l.Ended(), c.want, c.ended)
			}
			if n, end := l.Push([]byte("x"), 0); l.Ended() && (n != 0 || !end) {
				t.Errorf("%q goes on after its end", strings.TrimSpace(c.text))
			}
		}
	}
}
