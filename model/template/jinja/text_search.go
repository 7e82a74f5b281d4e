package jinja

import (
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

// count is the integer among a function's arguments.
func count(s *state, fn string, v any) int64 {
	n, ok := integer(v)
	if _, big := v.(*big.Int); !ok || big {
		s.fail("%s takes an int, not a %s", fn, typeName(v))
	}
	return n
}

// recased is f(t), where f changes the case of letters: at most three bytes for one. ASCII text costs little.
func (s *state) recased(t string, f func(string) string) string {
	if letters.IsASCII(t) {
		s.charge(len(t))
		s.scan(8 * len(t))
	} else {
		s.charge(3 * len(t))
		s.scan(128 * len(t))
	}
	return f(t)
}

// recasing is a string method that changes the case of letters.
func recasing(name string, f func(string) string) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		a.positional(s, name, 0, 0)
		return s.recased(t, f)
	}
}

// predicate is a string method that says what kind of text it is.
func predicate(name string, f func(string) bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		a.positional(s, name, 0, 0)
		s.scan(64 * len(t))
		return f(t)
	}
}

// asciiDigits puts 0 to 9 for other scripts' digits.
func asciiDigits(t string) string {
	if letters.IsASCII(t) {
		return t
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) && r >= utf8.RuneSelf { // decimal digits come in tens
			zero := r
			for r-zero < 9 && unicode.IsDigit(zero-1) {
				zero--
			}
			return '0' + r - zero
		}
		return r
	}, t)
}

// span is the part of t between two optional character positions, and the position it begins at.
func span(s *state, fn, t string, start, stop any) (part string, from int, ok bool) {
	position := func(v any) *int64 {
		if v == unset || v == nil {
			return nil
		}
		n := count(s, fn, v)
		return &n
	}
	s.scan(2 * len(t))
	a, b := position(start), position(stop)
	if a == nil && b == nil {
		return t, 0, true
	}
	size := int64(utf8.RuneCountInString(t))
	if a != nil && *a > size {
		return "", 0, false
	}
	first, _, n := indices(size, a, b, nil)
	if b != nil && n == 0 { // an empty part, if it does not end before it begins
		end := *b
		if end < 0 {
			end = max(0, end+size)
		}
		if end < first {
			return "", 0, false
		}
	}
	at := offset(t, int(first))
	return t[at : at+offset(t[at:], int(n))], int(first), true
}

// finding makes find, rfind, index and rindex.
func finding(name string, search func(t, sub string) int, must bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.positional(s, name, 1, 3)
		sub := wants(s, name, v[0])
		part, from, ok := span(s, name, t, v[1], v[2])
		s.scan(2*len(part) + len(sub))
		if ok {
			if i := search(part, sub); i >= 0 {
				return int64(from + utf8.RuneCountInString(part[:i]))
			}
		}
		if must {
			s.fail("%s: the text is not in the string", name)
		}
		return int64(-1)
	}
}

// affix makes startswith and endswith, which also take a tuple of strings.
func affix(name string, has func(s, affix string) bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.positional(s, name, 1, 3)
		list, ok := v[0].(Tuple)
		if !ok {
			list = Tuple{v[0]}
		}
		part, ok := t, true
		if v[1] != unset {
			part, _, ok = span(s, name, t, v[1], v[2])
		}
		for _, x := range list {
			s.step()
			if sub := wants(s, name, x); ok && has(part, sub) {
				s.scan(len(sub))
				return true
			}
		}
		return false
	}
}

// every reports whether t is not empty and f holds for all its characters.
func every(f func(rune) bool) func(string) bool {
	return func(t string) bool {
		return t != "" && !strings.ContainsFunc(t, func(r rune) bool { return !f(r) })
	}
}
