package regex

import (
	"strings"
	"testing"
)

// TestCountRunes holds an intersection of counted characters to what the two repetitions match.
func TestCountRunes(t *testing.T) {
	s := NewSet(Limits{})
	class := s.Runes(RuneRange{'a', 'c'}, RuneRange{'é', 'é'})
	for _, c := range []struct{ min, max, least, most int }{{0, Unbounded, 0, 3}, {1, Unbounded, 2, 3}, {1, 4, 2, Unbounded}, {3, 5, 0, 2}, {0, 2, 2, 9}, {0, 0, 0, 5}} {
		both := s.And(s.Repeat(class, c.min, c.max), s.Repeat(s.AnyRune(), c.least, c.most))
		for n := range 8 {
			text := strings.Repeat("é", n)
			want := n >= c.min && n >= c.least && (c.max < 0 || n <= c.max) && (c.most < 0 || n <= c.most)
			if s.Match(both, []byte(text)) != want {
				t.Errorf("%+v: %d characters: matched %v", c, n, !want)
			}
			if s.Match(both, []byte(text+"x")) {
				t.Errorf("%+v: another character was matched", c)
			}
		}
	}
	if e := s.And(s.Repeat(class, 3, 5), s.Repeat(s.AnyRune(), 0, 2)); e != s.Nothing() {
		t.Errorf("3 to 5 and 0 to 2: expression %d, want Nothing", e)
	}
}

// TestSaturate holds a saturated expression to the original on texts of the length that it is for.
func TestSaturate(t *testing.T) {
	s := NewSet(Limits{})
	a := s.Byte('a')
	for _, e := range []Expr{
		s.Repeat(a, 0, 100), s.Repeat(a, 50, 100), s.Repeat(a, 50, Unbounded), s.Repeat(a, 2, 3), s.Repeat(a, 3, 100),
		s.Concat(s.Repeat(a, 10, 20), s.Byte('b'), s.Repeat(s.AnyRune(), 0, 1000)), s.JSONString(s.Repeat(s.AnyRune(), 7, 5000)),
		s.Or(s.Byte('c'), s.Repeat(a, 0, 1000)),
	} {
		const n = 4
		sat := s.Saturate(e, n)
		if s.Nullable(sat) != s.Nullable(e) {
			t.Errorf("%d: nullable %v", e, s.Nullable(sat))
		}
		var check func(x, y Expr, left int)
		check = func(x, y Expr, left int) {
			if left == 0 {
				return
			}
			for _, b := range []byte("abc\\u0\"\xc3\xa9") {
				dx, dy := s.Derive(x, b), s.Derive(y, b)
				if (dx == 0) != (dy == 0) || s.Nullable(dx) != s.Nullable(dy) {
					t.Fatalf("%d: after %q with %d bytes left: %d and %d", e, b, left, dx, dy)
				}
				if dx != 0 {
					check(dx, dy, left-1)
				}
			}
		}
		check(e, sat, n)
	}
	deep := s.Repeat(a, 0, 100_000)
	first := s.Saturate(deep, 16)
	for range 1000 {
		deep = s.Derive(deep, 'a')
	}
	if s.Saturate(deep, 16) != first {
		t.Error("places deep in a long repetition are different places")
	}
}
