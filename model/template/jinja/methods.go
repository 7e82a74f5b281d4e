package jinja

import (
	"html"
	"math/big"
	"slices"
	"strings"
	"unicode"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

// method implements v.name(…).
type method func(s *state, v any, a *callArgs) any

// mutators are Python's methods that change their object; the sandbox chat templates run in hides them.
var (
	listMutators = []string{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}
	dictMutators = []string{"clear", "pop", "popitem", "setdefault", "update"}
)

// leftOut and leftOutOfNumbers are Python's attributes of strings and numbers that no chat template uses: an error
// when they are reached, not an undefined value.
var leftOut = strings.Fields(`casefold center encode expandtabs format_map isidentifier isprintable istitle ljust
	maketrans rjust striptags swapcase translate zfill`)

var leftOutOfNumbers = strings.Fields(`as_integer_ratio bit_count bit_length conjugate denominator imag is_integer
	numerator real`)

// dictNames are the attributes of dicts: m.items is the method even where m has a key "items".
var dictNames = map[string]bool{}

func dunder(name string) bool { return strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") }

var (
	dictMethods, listMethods, tupleMethods, rangeMethods map[string]method

	strMethods map[string]func(s *state, t string, a *callArgs) any
)

// methodOf is the method of that name, or nil.
func methodOf(v any, name string) method {
	switch v := v.(type) {
	case string:
		if m := strMethods[name]; m != nil {
			return func(s *state, _ any, a *callArgs) any { return m(s, v, a) }
		}
	case markup:
		return markupMethod(v, name)
	case *Dict:
		return dictMethods[name]
	case []any:
		return listMethods[name]
	case Tuple, *group:
		return tupleMethods[name]
	case *rangeValue:
		return rangeMethods[name]
	}
	return nil
}

// member is an attribute that is not an item: what Python's getattr finds. Those the sandbox hides are found too, as
// undefined values that say why.
func (s *state) member(of any, name string) (any, bool) {
	if m := methodOf(of, name); m != nil {
		s.charge(frameBytes)
		return &function{name, func(s *state, a *callArgs) any { return m(s, of, a) }}, true
	}
	hidden := func() (any, bool) {
		return Undefined{Name: name, reason: `"` + name + `" changes a ` + typeName(of) +
			", which chat templates may not"}, true
	}
	switch v := of.(type) {
	case *loop:
		if x, ok := v.attr(name); ok {
			return x, true
		}
	case *macro:
		if x, ok := v.attr(name); ok {
			return x, true
		}
	case *namespace:
		if x, ok := v.vars.Get(name); ok {
			return x, true
		}
	case *group:
		switch name {
		case "grouper":
			return v.grouper, true
		case "list":
			return v.list, true
		}
	case *rangeValue:
		switch name {
		case "start":
			return v.start, true
		case "stop":
			return v.stop, true
		case "step":
			return v.step, true
		}
	case self:
		if b := s.tree.Blocks[name]; b != nil && !b.Scoped {
			return &function{name, func(s *state, _ *callArgs) any {
				s.enter()
				text := s.capture(func() { s.exec(s.frame(b.Scope, s.root), b.Body) })
				s.leave()
				return s.marked(text)
			}}, true
		}
	case string, markup:
		if slices.Contains(leftOut, name) {
			s.fail("%s of strings is not supported", name)
		}
	case bool, int64, *big.Int, float64:
		if slices.Contains(leftOutOfNumbers, name) {
			s.fail("%s of numbers is not supported", name)
		}
	case *Dict:
		if slices.Contains(dictMutators, name) {
			return hidden()
		}
	case []any:
		if slices.Contains(listMutators, name) {
			return hidden()
		}
	}
	if dunder(name) {
		return Undefined{Name: name, reason: `"` + name + `" is not open to templates`}, true
	}
	return nil, false
}

// self is the variable of that name, whose attributes are the template's blocks.
type self struct{}

// escapedResult are the methods of strings that return markup when their object is markup.
var escapedResult = map[string]bool{}

func init() {
	for _, name := range strings.Fields(
		`capitalize title lower upper replace lstrip rstrip strip
		removeprefix removesuffix partition rpartition split rsplit splitlines join`) {
		escapedResult[name] = true
	}
}

// markupMethod is a method of markup: its arguments are escaped, and the result is markup.
func markupMethod(v markup, name string) method {
	switch name {
	case "unescape":
		return func(s *state, _ any, _ *callArgs) any {
			s.charge(2 * len(v))
			s.scan(8 * len(v))
			return html.UnescapeString(string(v))
		}
	case "format":
		return func(s *state, _ any, a *callArgs) any { return markup(formatMethod(s, string(v), a, true)) }
	}
	m := strMethods[name]
	if m == nil || !escapedResult[name] {
		if m == nil {
			return nil
		}
		return func(s *state, _ any, a *callArgs) any { return m(s, string(v), a) }
	}
	return func(s *state, _ any, a *callArgs) any {
		if name == "replace" && len(a.list) > 1 {
			a = &callArgs{slices.Clone(a.list), a.names, a.values}
			a.list[1] = string(escape(s, a.list[1]))
		}
		if name == "join" && len(a.list) == 1 {
			list := items(s, a.list[0])
			s.charge(len(list) * itemBytes)
			all := make([]any, len(list))
			for i, x := range list {
				all[i] = string(escape(s, x))
			}
			a = &callArgs{list: []any{all}}
		}
		return marking(s, m(s, string(v), a))
	}
}

// marking makes markup of a string, or of the strings in a list or tuple.
func marking(s *state, v any) any {
	switch v := v.(type) {
	case string:
		return markup(v)
	case []any, Tuple:
		list, _ := sequence(v)
		s.charge(len(list) * itemBytes)
		for i := range list { // the method has just made it
			list[i] = marking(s, list[i])
		}
	}
	return v
}

// wants is the string among a function's arguments.
func wants(s *state, fn string, v any) string {
	t, ok := text(v)
	if !ok {
		s.fail("%s takes a string, not a %s", fn, typeName(v))
	}
	return t
}

func init() { // filled here because format refers back to str and attr
	rightmost := func(t, sub string) int { return strings.LastIndex(t, sub) }
	partition := func(name string, cut func(t, sep string) int, whole func(t string) any) func(s *state, t string,
		a *callArgs) any {
		return func(s *state, t string, a *callArgs) any {
			v := a.positional(s, name, 1, 1)
			sep := wants(s, name, v[0])
			if sep == "" {
				s.fail("%s: empty separator", name)
			}
			s.scan(len(t))
			s.charge(3 * itemBytes)
			if i := cut(t, sep); i >= 0 {
				return Tuple{t[:i], sep, t[i+len(sep):]}
			}
			return whole(t)
		}
	}
	strMethods = map[string]func(s *state, t string, a *callArgs) any{
		"strip": strip("strip", true, true), "lstrip": strip("lstrip", true, false),
		"rstrip":     strip("rstrip", false, true),
		"startswith": affix("startswith", strings.HasPrefix), "endswith": affix("endswith", strings.HasSuffix),
		"upper":      recasing("upper", letters.Upper),
		"lower":      recasing("lower", letters.Lower),
		"title":      recasing("title", letters.Title),
		"capitalize": recasing("capitalize", letters.Capitalize),
		"isdigit":    predicate("isdigit", every(letters.IsDigit)),
		"isnumeric":  predicate("isnumeric", every(letters.IsNumeric)),
		"isdecimal":  predicate("isdecimal", every(unicode.IsDigit)),
		"isalpha":    predicate("isalpha", every(unicode.IsLetter)),
		"isalnum": predicate("isalnum", every(func(r rune) bool {
			return unicode.IsLetter(r) || letters.IsNumeric(r)
		})),
		"isspace": predicate("isspace", every(letters.IsSpace)),
		"isascii": predicate("isascii", letters.IsASCII),
		"isupper": predicate("isupper", func(t string) bool {
			return letters.OneCase(t, letters.IsUpper, letters.IsLower)
		}),
		"islower": predicate("islower", func(t string) bool {
			return letters.OneCase(t, letters.IsLower, letters.IsUpper)
		}),
		"split": split("split", false), "rsplit": split("rsplit", true),
		"splitlines": func(s *state, t string, a *callArgs) any {
			v := a.bind(s, "splitlines", 0, "keepends")
			lines := splitLines(s, t, v[0] != unset && truth(v[0]))
			list := make([]any, len(lines))
			for i, x := range lines {
				list[i] = x
			}
			return list
		},
		"replace": func(s *state, t string, a *callArgs) any {
			v := a.bind(s, "replace", 2, "old", "new", "count")
			most := int64(-1)
			if v[2] != unset {
				most = count(s, "replace", v[2])
			}
			return replaced(s, t, wants(s, "replace", v[0]), wants(s, "replace", v[1]), most)
		},
		"format": func(s *state, t string, a *callArgs) any { return formatMethod(s, t, a, false) },
		"find":   finding("find", strings.Index, false), "rfind": finding("rfind", rightmost, false),
		"index": finding("index", strings.Index, true), "rindex": finding("rindex", rightmost, true),
		"count": func(s *state, t string, a *callArgs) any {
			v := a.positional(s, "count", 1, 3)
			sub := wants(s, "count", v[0])
			part, _, ok := span(s, "count", t, v[1], v[2])
			if !ok {
				return int64(0)
			}
			s.scan(len(part))
			return int64(strings.Count(part, sub))
		},
		"removeprefix": func(s *state, t string, a *callArgs) any {
			return strings.TrimPrefix(t, wants(s, "removeprefix", a.positional(s, "removeprefix", 1, 1)[0]))
		},
		"removesuffix": func(s *state, t string, a *callArgs) any {
			return strings.TrimSuffix(t, wants(s, "removesuffix", a.positional(s, "removesuffix", 1, 1)[0]))
		},
		"partition":  partition("partition", strings.Index, func(t string) any { return Tuple{t, "", ""} }),
		"rpartition": partition("rpartition", strings.LastIndex, func(t string) any { return Tuple{"", "", t} }),
		"join": func(s *state, t string, a *callArgs) any {
			return joined(s, t, a.positional(s, "join", 1, 1)[0], false)
		},
	}
	counting := func(s *state, v any, a *callArgs) any {
		want := a.positional(s, "count", 1, 1)[0]
		n := int64(0)
		each(s, v, func(x any) { n += toInt(equal(s, x, want)) })
		return n
	}
	indexing := func(s *state, v any, a *callArgs) any {
		p := a.positional(s, "index", 1, 3)
		list := items(s, v)
		bound := func(v any) *int64 {
			if v == unset {
				return nil
			}
			n := count(s, "index", v)
			return &n
		}
		from, _, n := indices(int64(len(list)), bound(p[1]), bound(p[2]), nil)
		for i := from; i < from+n; i++ {
			if equal(s, list[i], p[0]) {
				return i
			}
		}
		s.fail("index: the value is not in the %s", typeName(v))
		return nil
	}
	itself := func(name string) method {
		return func(s *state, v any, a *callArgs) any {
			a.positional(s, name, 0, 0)
			return v
		}
	}
	listMethods = map[string]method{"copy": itself("copy"), "count": counting, "index": indexing}
	tupleMethods = map[string]method{"count": counting, "index": indexing}
	rangeMethods = tupleMethods
	view := func(kind string) method {
		return func(s *state, v any, a *callArgs) any {
			a.positional(s, kind, 0, 0)
			return dictView{v.(*Dict), kind}
		}
	}
	dictMethods = map[string]method{
		"items": view("items"), "keys": view("keys"), "values": view("values"), "copy": itself("copy"),
		"get": func(s *state, v any, a *callArgs) any {
			p := a.positional(s, "get", 1, 2)
			h, ok := hashOf(s, p[0])
			if !ok {
				s.fail("a %s cannot be a dict's key", typeName(p[0]))
			}
			d := v.(*Dict)
			if i := d.find(h); i >= 0 {
				return d.vals[i]
			}
			if p[1] == unset {
				return nil
			}
			return p[1]
		},
		"fromkeys": func(s *state, _ any, a *callArgs) any {
			p := a.positional(s, "fromkeys", 1, 2)
			if p[1] == unset {
				p[1] = nil
			}
			d := NewDict()
			each(s, p[0], func(x any) {
				s.charge(entryBytes)
				s.put(d, x, p[1])
			})
			return d
		},
	}
	for name := range dictMethods {
		dictNames[name] = true
	}
	for _, name := range dictMutators {
		dictNames[name] = true
	}
}
