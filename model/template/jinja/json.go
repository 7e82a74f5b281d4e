package jinja

import (
	"math/big"
	"strings"
)

// toJSON is the tojson filter as Hugging Face defines it for chat templates: json.dumps without HTML escaping,
// ", " and ": " between items unless indent or separators say otherwise, non-ASCII characters as they are, keys in
// their order.
func toJSON(s *state, v any, a *callArgs) any {
	p := a.bind(s, "tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	w := jsonWriter{buffer: buffer{s: s}, ascii: given(p[0]), sortKeys: given(p[3]), item: ", ", colon: ": "}
	if !isNone(p[1]) {
		w.newline, w.item = "\n", ","
		var ok bool
		if w.indent, ok = text(p[1]); !ok {
			w.indent = s.repeat(" ", int(min(count(s, "tojson", p[1]), 1<<40)))
		}
	}
	if !isNone(p[2]) {
		separators := items(s, p[2])
		if len(separators) != 2 {
			s.fail("tojson: separators are two strings")
		}
		w.item, w.colon = wants(s, "tojson", separators[0]), wants(s, "tojson", separators[1])
	}
	w.value(v, "")
	return w.String()
}

type jsonWriter struct {
	buffer
	ascii, sortKeys              bool
	item, colon, newline, indent string
}

func (w *jsonWriter) value(v any, pad string) {
	w.s.step()
	switch v := v.(type) {
	case nil:
		w.put("null")
	case bool:
		w.put(strings.ToLower(str(w.s, v)))
	case int64, *big.Int:
		w.put(w.s.formatInt(v))
	case float64:
		w.put(strings.NewReplacer("nan", "NaN", "inf", "Infinity").Replace(formatFloat(v)))
	case string:
		w.text(v)
	case markup:
		w.text(string(v))
	case []any, Tuple, *group:
		list, _ := sequence(v)
		w.list("[", "]", len(list), pad, func(i int, inner string) { w.value(list[i], inner) })
	case *Dict:
		w.dict(v, pad)
	case Undefined:
		w.s.fail("%s has no JSON form", v.message())
	default:
		w.s.fail("a %s has no JSON form", typeName(v))
	}
}

func (w *jsonWriter) dict(d *Dict, pad string) {
	pairs := items(w.s, dictView{d, "items"})
	if w.sortKeys {
		pairs = sorted(w.s, pairs, false, func(x any) any { return x.(Tuple)[0] })
	}
	w.list("{", "}", len(pairs), pad, func(i int, inner string) {
		pair := pairs[i].(Tuple)
		switch k := pair[0].(type) {
		case string, markup:
			w.value(k, inner)
		case nil, bool, int64, *big.Int, float64: // other keys are written as the text of their JSON
			w.put(`"`)
			w.value(k, inner)
			w.put(`"`)
		default:
			w.s.fail("a %s cannot be a key in JSON", typeName(k))
		}
		w.put(w.colon)
		w.value(pair[1], inner)
	})
}

func (w *jsonWriter) list(open, end string, n int, pad string, item func(i int, pad string)) {
	w.s.enter()
	w.put(open)
	if n > 0 {
		inner := pad
		if w.newline != "" {
			w.s.charge(len(pad) + len(w.indent))
			inner += w.indent
		}
		for i := range n {
			if i > 0 {
				w.put(w.item)
			}
			w.put(w.newline)
			if w.newline != "" {
				w.put(inner)
			}
			item(i, inner)
		}
		w.put(w.newline)
		if w.newline != "" {
			w.put(pad)
		}
	}
	w.put(end)
	w.s.leave()
}

func (w *jsonWriter) text(t string) {
	w.put(`"`)
	w.escaping(t, func(r rune) string {
		switch {
		case r == '"' || r == '\\':
			return `\` + string(r)
		case r == '\n':
			return `\n`
		case r == '\r':
			return `\r`
		case r == '\t':
			return `\t`
		case r == '\b':
			return `\b`
		case r == '\f':
			return `\f`
		case r < 0x20 || w.ascii && r > 0x7e && r < 0x10000:
			return hex(`\u`, r, 4)
		case w.ascii && r >= 0x10000:
			r -= 0x10000
			return hex(`\u`, 0xd800+r>>10, 4) + hex(`\u`, 0xdc00+r&0x3ff, 4)
		}
		return ""
	})
	w.put(`"`)
}
