package jinja

import (
	"errors"
	"fmt"
	"strings"
)

// toJSON is the tojson filter as Hugging Face defines it for chat templates: json.dumps without HTML escaping,
// ", " and ": " between items unless indent or separators say otherwise, non-ASCII characters as they are, keys in
// their order.
func toJSON(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	w := jsonWriter{s: s, ascii: given(p[0]), sortKeys: given(p[3]), item: ", ", colon: ": ", newline: ""}
	if n, ok := integer(p[1]); ok {
		indent, err := s.repeat(" ", min(n, 1000))
		if err != nil {
			return nil, err
		}
		w.indent, w.newline, w.item = indent.(string), "\n", ","
	} else if t, ok := p[1].(string); ok {
		w.indent, w.newline, w.item = t, "\n", ","
	}
	if sep, ok := sequence(p[2]); ok {
		if len(sep) != 2 {
			return nil, errors.New("separators are two strings")
		}
		w.item, w.colon = str(s, sep[0]), str(s, sep[1])
	}
	if err := w.value(v, ""); err != nil {
		return nil, err
	}
	return w.b.String(), nil
}

type jsonWriter struct {
	s                            *state
	b                            strings.Builder
	ascii, sortKeys              bool
	item, colon, newline, indent string
}

func (w *jsonWriter) put(parts ...string) {
	for _, t := range parts {
		w.s.charge(len(t))
		w.b.WriteString(t)
	}
}

func (w *jsonWriter) value(v any, pad string) error {
	w.s.step()
	switch v := v.(type) {
	case nil:
		w.put("null")
	case bool:
		if v {
			w.put("true")
		} else {
			w.put("false")
		}
	case int64:
		w.put(str(w.s, v))
	case float64:
		w.put(strings.NewReplacer("nan", "NaN", "inf", "Infinity").Replace(formatFloat(v)))
	case string:
		w.text(v)
	case []any, Tuple:
		items, _ := sequence(v)
		return w.list("[", "]", len(items), pad, func(i int, inner string) error { return w.value(items[i], inner) })
	case *Dict:
		keys := v.keys
		if w.sortKeys {
			var err error
			if keys, err = sorted(w.s, keys, false, func(k any) any { return k }); err != nil {
				return err
			}
		}
		return w.list("{", "}", len(keys), pad, func(i int, inner string) error {
			if k, ok := keys[i].(string); ok {
				w.text(k)
			} else { // json.dumps writes other keys as the text of their JSON
				w.put(`"`)
				if err := w.value(keys[i], inner); err != nil {
					return err
				}
				w.put(`"`)
			}
			w.put(w.colon)
			return w.value(v.m[keys[i]], inner)
		})
	case Undefined:
		return fmt.Errorf("%s is undefined", v.Name)
	default:
		return fmt.Errorf("a %s has no JSON form", typeName(v))
	}
	return nil
}

func (w *jsonWriter) list(open, end string, n int, pad string, item func(i int, pad string) error) error {
	defer w.s.deeper()()
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
			if err := item(i, inner); err != nil {
				return err
			}
		}
		w.put(w.newline)
		if w.newline != "" {
			w.put(pad)
		}
	}
	w.put(end)
	return nil
}

func (w *jsonWriter) text(t string) {
	w.s.charge(len(t))
	b := &w.b
	b.WriteByte('"')
	for _, r := range t {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r < 0x20 || w.ascii && r > 0x7e && r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		case w.ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
