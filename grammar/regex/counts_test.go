package regex

import (
	"errors"
	"strings"
	"testing"
)

// TestCountRunes holds an intersection of counted characters to what the two repetitions match.
func TestCountRunes(t *testing.T) {
	s := NewSet(Limits{})
	class := s.Runes(RuneRange{'a', 'c'}, RuneRange{'é', 'é'})
	for _, c := range []struct{ min, max, least, most int }{{0, Unbounded, 0, 3}, {1, Unbounded, 2, 3},
		{1, 4, 2, Unbounded}, {3, 5, 0, 2}, {0, 2, 2, 9}, {0, 0, 0, 5}} {
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
	words := s.Repeat(s.Concat(s.Repeat(s.Bytes(ByteOf("ab")), 1, Unbounded), s.Star(s.Byte('c'))), 2, 40)
	for _, e := range []Expr{
		s.Repeat(a, 0, 100), s.Repeat(a, 50, 100), s.Repeat(a, 50, Unbounded), s.Repeat(a, 2, 3), s.Repeat(a, 3, 100),
		s.Concat(s.Repeat(a, 10, 20), s.Byte('b'), s.Repeat(s.AnyRune(), 0, 1000)),
		s.JSONString(s.Repeat(s.AnyRune(), 7, 5000)), s.Or(s.Byte('c'), s.Repeat(a, 0, 1000)),
		s.And(words, s.Repeat(s.AnyRune(), 0, 90)), s.And(words, s.Repeat(s.AnyRune(), 0, 6)),
		s.And(words, s.Repeat(s.AnyRune(), 0, 3)), s.JSONString(s.And(words, s.Repeat(s.AnyRune(), 0, 7))),
		s.And(s.Concat(s.Repeat(a, 9, 50), s.Byte('b')), s.Repeat(s.AnyRune(), 0, 12)),
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

// TestCountsJoin: a repetition that can be read in many ways has one count at each place, not one for each way.
func TestCountsJoin(t *testing.T) {
	s := NewSet(Limits{})
	a, b := s.Byte('a'), s.Byte('b')
	for _, c := range []struct{ a, b, want Expr }{
		{s.Repeat(a, 2, 5), s.Repeat(a, 3, 8), s.Repeat(a, 2, 8)},
		{s.Repeat(a, 2, 3), s.Repeat(a, 4, 8), s.Repeat(a, 2, 8)},
		{s.Repeat(a, 9, Unbounded), s.Repeat(a, 3, 8), s.Repeat(a, 3, Unbounded)},
		{s.Repeat(a, 2, Unbounded), s.Repeat(a, 3, 8), s.Repeat(a, 2, Unbounded)},
		{s.Concat(s.Repeat(a, 2, 5), b), s.Concat(s.Repeat(a, 0, 3), b), s.Concat(s.Repeat(a, 0, 5), b)},
	} {
		if got := s.Or(c.a, c.b); got != c.want {
			t.Errorf("%d | %d is %d, want %d", c.a, c.b, got, c.want)
		}
	}
	for _, apart := range [][2]Expr{{s.Repeat(a, 2, 3), s.Repeat(a, 5, 8)},
		{s.Concat(s.Repeat(a, 2, 5), b), s.Repeat(a, 2, 5)}} {
		if e := s.Or(apart[:]...); s.nodes[e].kind != kOr && s.nodes[e].kind != kConcat {
			t.Errorf("%d | %d became %d", apart[0], apart[1], e)
		}
	}
	e, err := s.Parse(`(\S+\s*){3,60}`, Whole)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Len()
	for _, b := range []byte(strings.Repeat("some words, ", 15)) {
		if e = s.Derive(e, b); e == 0 {
			t.Fatal("the text ended")
		}
	}
	if n := s.Len() - before; n > 4000 {
		t.Errorf("%d expressions for 180 bytes", n)
	}
}

// TestSpans: every beginning of a text can be completed with as many bytes as span says.
func TestSpans(t *testing.T) {
	for _, pattern := range []string{`abc`, `a{3,7}b`, `(ab|cde)*f`, `(\w+ ){2,5}x`, `a?b?(cd){0,3}`,
		`x|yz{4}|(ab){2,}`, `é+`, ``} {
		s := NewSet(Limits{})
		e, err := s.Parse(pattern, Whole)
		if err != nil {
			t.Fatal(err)
		}
		sp := s.span(e)
		if sp.ends < 0 {
			t.Errorf("%s: no span", pattern)
		}
		shortest := map[Expr]int{}
		var reach func(list []Expr, n int) int
		reach = func(list []Expr, n int) int { // the length of the shortest text of one of list
			for _, x := range list {
				if s.Nullable(x) {
					return n
				}
			}
			var next []Expr
			for _, x := range list {
				_, to := s.Row(x)
				for _, y := range to {
					if _, seen := shortest[y]; y != 0 && !seen {
						shortest[y] = n + 1
						next = append(next, y)
					}
				}
			}
			return reach(next, n+1)
		}
		seen, todo := map[Expr]bool{e: true}, []Expr{e}
		for len(todo) > 0 && len(seen) < 500 {
			x := todo[0]
			todo = todo[1:]
			clear(shortest)
			if n := reach([]Expr{x}, 0); n > sp.ends || x == e && n > sp.least {
				t.Errorf("%s: a beginning that needs %d bytes more, span %+v", pattern, n, sp)
				break
			}
			_, to := s.Row(x)
			for _, y := range to {
				if y != 0 && !seen[y] {
					seen[y] = true
					todo = append(todo, y)
				}
			}
		}
	}
}

// TestWorkUntil: a question about emptiness that takes too many steps fails, and Forget makes the Set usable again.
func TestWorkUntil(t *testing.T) {
	s := NewSet(Limits{})
	x, err := s.Parse(`[ab]*a[ab]{18}`, Whole)
	if err != nil {
		t.Fatal(err)
	}
	y, err := s.Parse(`[ab]*b[ab]{18}`, Whole)
	if err != nil {
		t.Fatal(err)
	}
	m := s.Mark()
	s.WorkUntil(s.Work() + 5_000)
	if _, err := s.IsEmpty(s.And(x, y)); !errors.Is(err, ErrWork) || s.Work() > 500_000 {
		t.Errorf("%v after %d steps", err, s.Work())
	}
	s.Forget(m)
	s.WorkUntil(0)
	if empty, err := s.IsEmpty(s.And(x, s.Literal("a"+strings.Repeat("b", 18)))); empty || err != nil {
		t.Errorf("after Forget: %v, %v", empty, err)
	}
}
