package jinja

import (
	"strings"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

// filter implements a filter; v is the value to the left of "|".
type filter func(s *state, v any, a *callArgs) any

var filters map[string]filter

func init() { // map, select and reject look filters and tests up by name
	filters = map[string]filter{
		"abs": abs, "attr": attrFilter, "batch": batch, "slice": sliceFilter, "count": lengthFilter,
		"length":     lengthFilter,
		"capitalize": onText(letters.Capitalize), "lower": onText(letters.Lower), "upper": onText(letters.Upper),
		"title": func(s *state, v any, a *callArgs) any { return str(s, onText(titleFilter)(s, v, a)) },
		"d":     defaultFilter, "default": defaultFilter, "dictsort": dictSort,
		"e": escapeFilter, "escape": escapeFilter,
		"first": firstItem, "last": lastItem, "random": randomItem, "float": toFloat, "int": toInteger,
		"groupby": groupBy, "indent": indent, "items": itemsFilter, "join": joinFilter, "list": listFilter,
		"map": mapFilter, "max": extreme("max", 1), "min": extreme("min", -1),
		"select": selecting(true, false), "reject": selecting(false, false),
		"selectattr": selecting(true, true), "rejectattr": selecting(false, true),
		"replace": replaceFilter, "reverse": reverse, "round": round, "safe": safe, "sort": sortFilter,
		"string": stringFilter,
		"sum":    sum, "tojson": toJSON, "trim": trimFilter, "unique": unique,
	}
	for _, name := range strings.Fields(`center filesizeformat forceescape format pprint striptags truncate urlencode
		urlize wordcount wordwrap xmlattr`) { // Jinja2 has them, and no chat template uses them
		filters[name] = func(s *state, _ any, _ *callArgs) any {
			s.fail("the filter %s is not supported", name)
			return nil
		}
	}
}

// soft is a value as text that stays markup where it is.
func soft(s *state, v any) (t string, same func(string) any) {
	if m, ok := v.(markup); ok {
		return string(m), func(t string) any { return markup(t) }
	}
	return str(s, v), func(t string) any { return t }
}

func onText(f func(string) string) filter {
	return func(s *state, v any, a *callArgs) any {
		a.bind(s, "the filter", 0)
		t, same := soft(s, v)
		return same(s.recased(t, f))
	}
}

// given is an argument's truth; false when there is none.
func given(v any) bool { return v != unset && truth(v) }

// isNone reports whether an argument was left out or is None.
func isNone(v any) bool { return v == unset || v == nil }

func attrFilter(s *state, v any, a *callArgs) any {
	name := wants(s, "attr", a.bind(s, "attr", 1, "name")[0])
	if u, ok := v.(Undefined); ok && !dunder(name) {
		s.fail("%s", u.message())
	}
	if x, ok := s.member(v, name); ok {
		return x
	}
	return Undefined{Name: name}
}

func lengthFilter(s *state, v any, a *callArgs) any {
	a.positional(s, "length", 0, 0)
	return int64(mustLength(s, v))
}

func defaultFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "default", 0, "default_value", "boolean")
	if _, undefined := v.(Undefined); undefined || given(p[1]) && !truth(v) {
		if p[0] == unset {
			return ""
		}
		return p[0]
	}
	return v
}
