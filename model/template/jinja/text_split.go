package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

// strip makes strip, lstrip and rstrip: without an argument blanks go, with one the characters in it.
func strip(name string, left, right bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.positional(s, name, 0, 1)
		return stripped(s, name, t, v[0], left, right)
	}
}

func stripped(s *state, name, t string, chars any, left, right bool) string {
	cut := letters.IsSpace
	if chars != unset && chars != nil {
		set := wants(s, name, chars)
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
		if len(set) > 16 { // keep the cost linear
			s.charge(entryBytes * len(set))
			m := map[rune]bool{}
			for _, r := range set {
				m[r] = true
			}
			cut = func(r rune) bool { return m[r] }
		}
	}
	before := len(t)
	if left {
		t = strings.TrimLeftFunc(t, cut)
	}
	if right {
		t = strings.TrimRightFunc(t, cut)
	}
	s.scan(16 * (before - len(t)))
	return t
}

func split(name string, fromRight bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.bind(s, name, 0, "sep", "maxsplit")
		most := -1
		if v[1] != unset {
			most = int(max(-1, min(count(s, name, v[1]), int64(len(t)))))
		}
		var parts []string
		if v[0] == unset || v[0] == nil {
			s.scan(16 * len(t))
			parts = splitBlanks(s, t, most, fromRight)
		} else {
			sep := wants(s, name, v[0])
			if sep == "" {
				s.fail("%s: empty separator", name)
			}
			s.scan(2 * len(t))
			parts = splitAt(s, t, sep, most, fromRight)
		}
		list := make([]any, len(parts))
		for i, p := range parts {
			list[i] = p
		}
		return list
	}
}

func splitAt(s *state, t, sep string, most int, fromRight bool) (parts []string) {
	n := strings.Count(t, sep)
	if most >= 0 {
		n = min(n, most)
	}
	s.charge((n + 1) * 2 * itemBytes)
	if !fromRight {
		return strings.SplitN(t, sep, n+1)
	}
	for ; n > 0; n-- {
		i := strings.LastIndex(t, sep)
		if i < 0 { // "aaa" has one "aa" when counted from the left
			break
		}
		parts = append(parts, t[i+len(sep):])
		t = t[:i]
	}
	parts = append(parts, t)
	slices.Reverse(parts)
	return parts
}

// splitBlanks splits at runs of blanks, at most most times when that is not negative.
func splitBlanks(s *state, t string, most int, fromRight bool) (parts []string) {
	add := func(p string) {
		s.charge(2 * itemBytes)
		parts = append(parts, p)
	}
	if fromRight {
		for t = strings.TrimRightFunc(t, letters.IsSpace); t != ""; most-- {
			i := strings.LastIndexFunc(t, letters.IsSpace)
			if i < 0 || most == 0 {
				add(t)
				break
			}
			_, n := utf8.DecodeRuneInString(t[i:])
			add(t[i+n:])
			t = strings.TrimRightFunc(t[:i], letters.IsSpace)
		}
		slices.Reverse(parts)
		return parts
	}
	for t = strings.TrimLeftFunc(t, letters.IsSpace); t != ""; most-- {
		i := strings.IndexFunc(t, letters.IsSpace)
		if i < 0 || most == 0 {
			add(t)
			break
		}
		add(t[:i])
		t = strings.TrimLeftFunc(t[i:], letters.IsSpace)
	}
	return parts
}

// lineEnd reports whether r ends a line for splitlines.
func lineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func splitLines(s *state, t string, keep bool) (lines []string) {
	s.scan(16 * len(t))
	for t != "" {
		i := strings.IndexFunc(t, lineEnd)
		end, next := len(t), len(t)
		if i >= 0 {
			_, n := utf8.DecodeRuneInString(t[i:])
			end, next = i, i+n
			if strings.HasPrefix(t[i:], "\r\n") {
				next = i + 2
			}
		}
		if keep {
			end = next
		}
		s.charge(2 * itemBytes)
		lines = append(lines, t[:end])
		t = t[next:]
	}
	return lines
}

// replaced is str.replace; most is -1 for all.
func replaced(s *state, t, old, with string, most int64) string {
	s.scan(2 * len(t))
	n := strings.Count(t, old)
	if most >= 0 {
		n = int(min(int64(n), most))
	}
	if n == 0 {
		return t
	}
	s.chargeProduct(n, len(with))
	s.charge(len(t))
	return strings.Replace(t, old, with, n)
}

// joined is str.join of what are strings already, or of anything when every item is to be printed.
func joined(s *state, sep string, v any, anything bool) string {
	b := buffer{s: s}
	first := true
	each(s, v, func(x any) {
		if !first {
			b.put(sep)
		}
		first = false
		t, ok := text(x)
		if !ok {
			if !anything {
				s.fail("join takes strings, not a %s", typeName(x))
			}
			t = str(s, x)
		}
		b.put(t)
	})
	return b.String()
}
