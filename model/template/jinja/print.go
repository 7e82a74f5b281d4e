package jinja

import (
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// buffer is text in the making, charged as it grows.
type buffer struct {
	s *state
	strings.Builder
}

func (b *buffer) put(parts ...string) {
	for _, t := range parts {
		b.s.grow(&b.Builder, len(t))
		b.WriteString(t)
	}
}

// escaping writes t with some characters replaced: escape says by what, or "" for those that stay.
func (b *buffer) escaping(t string, escape func(r rune) string) {
	done := 0
	b.s.scan(8 * len(t))
	for i := 0; i < len(t); {
		r, n := rune(t[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(t[i:])
		}
		if e := escape(r); e != "" {
			b.s.step()
			b.put(t[done:i])
			b.put(e)
			done = i + n
		}
		i += n
	}
	b.put(t[done:])
}

// hex returns a character's number in so many digits, behind a prefix.
func hex(prefix string, r rune, digits int) string {
	const all = "0123456789abcdef"
	text := make([]byte, len(prefix)+digits)
	copy(text, prefix)
	for i := range digits {
		text[len(text)-1-i] = all[r>>(4*i)&15]
	}
	return string(text)
}

// numbered is Python's escape for a character that it does not print.
func numbered(r rune) string {
	switch {
	case r < 0x100:
		return hex(`\x`, r, 2)
	case r < 0x10000:
		return hex(`\u`, r, 4)
	}
	return hex(`\U`, r, 8)
}

// str is Python's str(): what a value prints as.
func str(s *state, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case Undefined:
		return ""
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64, *big.Int:
		return s.formatInt(v)
	}
	return repr(s, v)
}

// repr is Python's repr().
func repr(s *state, v any) string {
	b := buffer{s: s}
	b.repr(v)
	return b.String()
}

func (b *buffer) repr(v any) {
	b.s.step()
	switch v := v.(type) {
	case nil:
		b.put("None")
	case bool, int64, *big.Int:
		b.put(str(b.s, v))
	case float64:
		b.put(formatFloat(v))
	case string:
		b.quote(v)
	case markup:
		b.put("Markup(")
		b.quote(string(v))
		b.put(")")
	case Undefined:
		b.put("Undefined")
	case []any:
		b.items("[", len(v), func(i int) { b.repr(v[i]) }, "]")
	case Tuple, *group:
		list, _ := sequence(v)
		end := ")"
		if len(list) == 1 {
			end = ",)"
		}
		b.items("(", len(list), func(i int) { b.repr(list[i]) }, end)
	case *Dict:
		b.items("{", len(v.keys), func(i int) {
			b.repr(v.keys[i])
			b.put(": ")
			b.repr(v.vals[i])
		}, "}")
	case dictView:
		b.items("dict_"+v.kind+"([", len(v.of.keys), func(i int) { b.repr(v.at(i)) }, "])")
	case *rangeValue:
		b.put("range(", str(b.s, v.start), ", ", str(b.s, v.stop))
		if v.step != 1 {
			b.put(", ", str(b.s, v.step))
		}
		b.put(")")
	case *namespace:
		b.s.enter()
		b.put("<Namespace ")
		b.repr(v.vars)
		b.put(">")
		b.s.leave()
	case *loop:
		b.put("<LoopContext ", str(b.s, int64(v.index0+1)), "/", str(b.s, int64(v.size())), ">")
	case *macro:
		if v.node.Name == "" {
			b.put("<Macro anonymous>")
			return
		}
		b.put("<Macro '", v.node.Name, "'>")
	case self:
		b.put("<TemplateReference None>")
	default:
		b.put("<", typeName(v), ">")
	}
}

func (b *buffer) items(open string, n int, item func(i int), end string) {
	b.s.enter()
	b.put(open)
	for i := range n {
		if i > 0 {
			b.put(", ")
		}
		item(i)
	}
	b.put(end)
	b.s.leave()
}

func (b *buffer) quote(t string) {
	q := "'"
	if strings.Contains(t, "'") && !strings.Contains(t, `"`) {
		q = `"`
	}
	b.put(q)
	b.escaping(t, func(r rune) string {
		switch {
		case r == rune(q[0]) || r == '\\':
			return `\` + string(r)
		case r == '\n':
			return `\n`
		case r == '\r':
			return `\r`
		case r == '\t':
			return `\t`
		case r >= ' ' && r < 0x7f || r >= 0x7f && unicode.IsPrint(r):
			return ""
		}
		return numbered(r)
	})
	b.put(q)
}

var htmlEscapes = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '\'': "&#39;", '"': "&#34;"}

// escape makes markup of a value. Markup stays as it is.
func escape(s *state, v any) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	b := buffer{s: s}
	b.escaping(str(s, v), func(r rune) string {
		if r > '>' {
			return ""
		}
		return htmlEscapes[r]
	})
	return markup(b.String())
}
