package jinja

import (
	"math/big"
	"slices"
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

// hex is a character's number in so many digits, behind a prefix.
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
		if v.node.name == "" {
			b.put("<Macro anonymous>")
			return
		}
		b.put("<Macro '", v.node.name, "'>")
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

// ascii is Python's ascii(): repr with everything else escaped too.
func ascii(s *state, v any) string {
	b := buffer{s: s}
	b.escaping(repr(s, v), func(r rune) string {
		if r < utf8.RuneSelf {
			return ""
		}
		return numbered(r)
	})
	return b.String()
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

// pretty is Python's pprint.pformat: dicts sorted by key, and what is wider than 80 characters one item a line.
type pretty struct{ buffer }

const prettyWidth = 80

func pprint(s *state, v any) string {
	p := pretty{buffer{s: s}}
	p.format(v, 0, 0)
	return p.String()
}

// flat is repr with the keys of dicts sorted.
func (p *pretty) flat(v any) string {
	b := buffer{s: p.s}
	b.repr(p.sorted(v))
	return b.String()
}

func (p *pretty) sorted(v any) any {
	p.s.step()
	p.s.enter()
	defer p.s.leave()
	switch v := v.(type) {
	case *Dict:
		d := NewDict()
		p.s.charge(len(v.keys) * entryBytes)
		for _, i := range p.order(v) {
			p.s.put(d, v.keys[i], p.sorted(v.vals[i]))
		}
		return d
	case []any:
		return p.all(v)
	case Tuple:
		return Tuple(p.all(v))
	}
	return v
}

func (p *pretty) all(list []any) []any {
	p.s.charge(len(list) * itemBytes)
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = p.sorted(x)
	}
	return out
}

// order is the positions of a dict's keys, sorted; keys of different kinds by the name of their type.
func (p *pretty) order(d *Dict) []int {
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	python := map[string]string{"None": "NoneType", "string": "str"}
	kind := func(v any) string {
		if t := typeName(v); python[t] != "" {
			return python[t]
		} else {
			return t
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := d.keys[i], d.keys[j]
		if c, ok := compareNumbers(a, b); ok {
			return c
		}
		if x, ok := text(a); ok {
			if y, ok := text(b); ok {
				p.s.scan(min(len(x), len(y)))
				return strings.Compare(x, y)
			}
		}
		return strings.Compare(kind(a), kind(b))
	})
	return order
}

// format writes v, which begins at column indent and is followed by allowance characters on its last line.
func (p *pretty) format(v any, indent, allowance int) {
	flat := p.flat(v)
	if len([]rune(flat)) <= prettyWidth-indent-allowance {
		p.put(flat)
		return
	}
	p.s.enter()
	defer p.s.leave()
	switch v := v.(type) {
	case *Dict:
		order := p.order(v)
		p.list("{", "}", len(order), indent, allowance, func(i, allowance int) {
			k := p.flat(v.keys[order[i]])
			p.put(k, ": ")
			p.format(v.vals[order[i]], indent+1+len([]rune(k))+2, allowance)
		})
	case []any:
		p.list("[", "]", len(v), indent, allowance, func(i, allowance int) { p.format(v[i], indent+1, allowance) })
	case Tuple:
		end := ")"
		if len(v) == 1 {
			end = ",)"
		}
		p.list("(", end, len(v), indent, allowance, func(i, allowance int) { p.format(v[i], indent+1, allowance) })
	case string:
		p.long(v, indent, allowance)
	default:
		p.put(flat)
	}
}

func (p *pretty) list(open, end string, n, indent, allowance int, item func(i, allowance int)) {
	p.put(open)
	for i := range n {
		if i > 0 {
			p.put(",\n", p.s.repeat(" ", indent+1))
		}
		if i == n-1 {
			item(i, allowance+len(end))
		} else {
			item(i, 1)
		}
	}
	p.put(end)
}

// long writes a string that does not fit as several, broken after blanks, in parentheses where nothing else holds them
// together.
func (p *pretty) long(t string, indent, allowance int) {
	level := indent > 0
	if !level {
		indent++
		allowance++
	}
	var chunks []string
	lines := splitLines(p.s, t, true)
	most := prettyWidth - indent
	for i, line := range lines {
		rep := []rune(repr(p.s, line))
		width := most
		if i == len(lines)-1 {
			width -= allowance
		}
		if len(rep) <= width {
			chunks = append(chunks, string(rep))
			continue
		}
		parts := words(line)
		current, width0 := "", most
		for j, part := range parts {
			candidate := current + part
			width := width0
			if j == len(parts)-1 && i == len(lines)-1 {
				width -= allowance
			}
			p.s.scan(64 * len(candidate))
			if len([]rune(repr(p.s, candidate))) > width {
				if current != "" {
					chunks = append(chunks, repr(p.s, current))
				}
				current = part
			} else {
				current = candidate
			}
		}
		if current != "" {
			chunks = append(chunks, repr(p.s, current))
		}
	}
	if len(chunks) == 1 {
		p.put(chunks[0])
		return
	}
	if !level {
		p.put("(")
	}
	for i, c := range chunks {
		if i > 0 {
			p.put("\n", p.s.repeat(" ", indent))
		}
		p.put(c)
	}
	if !level {
		p.put(")")
	}
}

// words are the runs of characters of t, each with the blanks after it.
func words(t string) (list []string) {
	start, blank := 0, false
	for i, r := range t {
		if !isSpace(r) && blank {
			list = append(list, t[start:i])
			start = i
		}
		blank = isSpace(r)
	}
	return append(list, t[start:])
}
