package jinja

import (
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

func escapeFilter(s *state, v any, a *callArgs) any {
	a.positional(s, "escape", 0, 0)
	return escape(s, v)
}

func safe(s *state, v any, a *callArgs) any {
	a.bind(s, "safe", 0)
	return markup(str(s, v))
}

func stringFilter(s *state, v any, a *callArgs) any {
	a.positional(s, "string", 0, 0)
	t, same := soft(s, v)
	return same(t)
}

func replaceFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "replace", 2, "old", "new", "count")
	most := int64(-1)
	if !isNone(p[2]) {
		most = count(s, "replace", p[2])
	}
	if !s.autoescape {
		return replaced(s, str(s, v), str(s, p[0]), str(s, p[1]), most)
	}
	_, m := v.(markup)
	_, m1 := p[0].(markup)
	if _, m2 := p[1].(markup); !m && (m1 || m2) {
		v, m = escape(s, v), true
	}
	if !m {
		return replaced(s, str(s, v), str(s, p[0]), str(s, p[1]), most)
	}
	return markup(replaced(s, str(s, v), str(s, p[0]), string(escape(s, p[1])), most))
}

func indent(s *state, v any, a *callArgs) any {
	p := a.bind(s, "indent", 0, "width", "first", "blank")
	pad, ok := text(p[0])
	switch {
	case p[0] == unset:
		pad = "    "
	case !ok:
		pad = s.repeat(" ", int(min(count(s, "indent", p[0]), 1<<40)))
	}
	t, ok := text(v)
	if !ok {
		s.fail("indent wants a string, not a %s", typeName(v))
	}
	_, same := soft(s, v)
	s.charge(len(t) + 1)
	b := buffer{s: s}
	for i, line := range splitLines(s, t+"\n", false) {
		if i > 0 {
			b.put("\n")
		}
		if i == 0 && given(p[1]) || i > 0 && (line != "" || given(p[2])) {
			b.put(pad)
		}
		b.put(line)
	}
	return same(b.String())
}

func trimFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "trim", 0, "chars")
	t, same := soft(s, v)
	return same(stripped(s, "trim", t, p[0], true, true))
}

// titleFilter begins words after blanks, hyphens and opening brackets only, unlike the method of that name.
func titleFilter(t string) string {
	var b strings.Builder
	begins := true
	for t != "" {
		// begins: t starts with separators, perhaps none, up to a word at i; otherwise with a word, up to separators.
		i := strings.IndexFunc(t, func(r rune) bool {
			return (letters.IsSpace(r) ||
				strings.ContainsRune("-({[<", r)) != begins
		})
		if i < 0 {
			i = len(t)
		}
		if begins {
			b.WriteString(t[:i])
		} else {
			_, n := utf8.DecodeRuneInString(t)
			b.WriteString(letters.Upper(t[:n]) + letters.Lower(t[n:i]))
		}
		t, begins = t[i:], !begins
	}
	return b.String()
}
