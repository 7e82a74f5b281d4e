package jinja

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

func centerFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "center", 0, "width")
	width := int64(80)
	if p[0] != unset {
		width = count(s, "center", p[0])
	}
	t, same := soft(s, v)
	return same(justified(s, t, width, " ", centered))
}

func escapeFilter(s *state, v any, a *callArgs) any {
	a.positional(s, "escape", 0, 0)
	return escape(s, v)
}

func forceEscape(s *state, v any, a *callArgs) any {
	a.bind(s, "forceescape", 0)
	return escape(s, str(s, v))
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

func formatFilter(s *state, v any, a *callArgs) any {
	t, same := soft(s, v)
	_, escaped := v.(markup)
	var values any = Tuple(a.list)
	if a.names != nil {
		if len(a.list) > 0 {
			s.fail("format takes positional or named arguments, not both")
		}
		d := NewDict()
		for i, name := range a.names {
			d.set(name, a.values[i])
		}
		values = d
	}
	return same(percent(s, t, values, escaped))
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

func truncateFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "truncate", 0, "length", "killwords", "end", "leeway")
	most, leeway, end := int64(255), int64(5), "..."
	if p[0] != unset {
		most = count(s, "truncate", p[0])
	}
	if p[2] != unset {
		end = wants(s, "truncate", p[2])
	}
	if !isNone(p[3]) {
		leeway = count(s, "truncate", p[3])
	}
	s.charge(len(end))
	room := most - int64(utf8.RuneCountInString(end))
	if room < 0 || leeway < 0 {
		s.fail("truncate: the length is less than that of %q, or the leeway is negative", end)
	}
	if int64(mustLength(s, v)) <= most+leeway {
		return v
	}
	t, same := soft(s, wants(s, "truncate", v))
	if _, ok := v.(markup); ok {
		_, same = soft(s, v)
	}
	s.scan(2 * len(t))
	cut := t[:offset(t, int(min(room, int64(len(t)))))]
	if !given(p[1]) {
		if i := strings.LastIndexByte(cut, ' '); i >= 0 {
			cut = cut[:i]
		}
	}
	s.charge(len(cut) + len(end))
	return same(cut + end)
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
			return (isSpace(r) ||
				strings.ContainsRune("-({[<", r)) != begins
		})
		if i < 0 {
			i = len(t)
		}
		if begins {
			b.WriteString(t[:i])
		} else {
			_, n := utf8.DecodeRuneInString(t)
			b.WriteString(upper(t[:n]) + lower(t[n:i]))
		}
		t, begins = t[i:], !begins
	}
	return b.String()
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || isNumeric(r) }

func wordCount(s *state, v any, a *callArgs) any {
	a.bind(s, "wordcount", 0)
	t := str(s, v)
	s.scan(64 * len(t))
	n, inWord := int64(0), false
	for _, r := range t {
		is := isWord(r)
		if is && !inWord {
			n++
		}
		inWord = is
	}
	return n
}

// striptags removes comments and tags, reduces runs of blanks to one, and resolves entities.
func striptags(s *state, t string) string {
	s.charge(4 * len(t))
	s.scan(16 * len(t))
	for _, mark := range [][2]string{{"<!--", "-->"}, {"<", ">"}} {
		var b strings.Builder
		for {
			start := strings.Index(t, mark[0])
			if start < 0 {
				break
			}
			end := strings.Index(t[start:], mark[1])
			if end < 0 {
				break
			}
			b.WriteString(t[:start])
			t = t[start+end+len(mark[1]):]
		}
		t = b.String() + t
	}
	return html.UnescapeString(strings.Join(splitBlanks(s, t, -1, false), " "))
}

func urlEncode(s *state, v any, a *callArgs) any {
	a.bind(s, "urlencode", 0)
	if _, ok := text(v); ok || !iterable(v) {
		return quoteURL(s, str(s, v), false)
	}
	if d, ok := v.(*Dict); ok {
		v = dictView{d, "items"}
	}
	b := buffer{s: s}
	each(s, v, func(x any) {
		pair := items(s, x)
		if len(pair) != 2 {
			s.fail("urlencode wants pairs")
		}
		if b.Len() > 0 {
			b.put("&")
		}
		b.put(quoteURL(s, str(s, pair[0]), true), "=", quoteURL(s, str(s, pair[1]), true))
	})
	return b.String()
}

// quoteURL is urllib's quote; in a query, slashes are quoted too and blanks are "+".
func quoteURL(s *state, t string, query bool) string {
	b := buffer{s: s}
	done := 0
	s.scan(8 * len(t))
	for i := range len(t) {
		c := t[i]
		switch {
		case decimal(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("_.-~", c) >= 0 || c == '/' && !query:
			continue
		case c == ' ' && query:
			b.put(t[done:i], "+")
		default:
			const hex = "0123456789ABCDEF"
			b.put(t[done:i], "%", hex[c>>4:c>>4+1], hex[c&15:c&15+1])
		}
		done = i + 1
	}
	b.put(t[done:])
	return b.String()
}

func xmlAttr(s *state, v any, a *callArgs) any {
	p := a.bind(s, "xmlattr", 0, "autospace")
	d, ok := v.(*Dict)
	if !ok {
		s.fail("xmlattr wants a dict, not a %s", typeName(v))
	}
	b := buffer{s: s}
	for i, k := range d.keys {
		if _, undefined := d.vals[i].(Undefined); undefined || d.vals[i] == nil {
			continue
		}
		name := wants(s, "xmlattr", k)
		if strings.ContainsAny(name, " \t\n\r\f\v/>=") {
			s.fail("xmlattr: %q is no attribute's name", name)
		}
		if b.Len() > 0 || p[0] == unset || truth(p[0]) {
			b.put(" ")
		}
		b.put(string(escape(s, name)), `="`, string(escape(s, d.vals[i])), `"`)
	}
	return s.marked(b.String())
}

// urlize is defined and fails: a prompt is not HTML.
func urlize(s *state, _ any, _ *callArgs) any {
	s.fail("urlize is not supported: a prompt is not HTML")
	return nil
}
