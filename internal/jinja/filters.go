package jinja

import (
	"html"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filter is what follows "|": v is what stands before it.
type filter func(s *state, v any, a *callArgs) any

var filters map[string]filter

func init() { // map, select and reject look filters and tests up by name
	filters = map[string]filter{
		"abs": abs, "attr": attrFilter, "batch": batch, "slice": sliceFilter, "count": lengthFilter, "length": lengthFilter,
		"capitalize": onText(capitalize), "lower": onText(lower), "upper": onText(upper), "title": func(s *state, v any, a *callArgs) any { return str(s, onText(titleFilter)(s, v, a)) },
		"center": centerFilter, "d": defaultFilter, "default": defaultFilter, "dictsort": dictSort,
		"e": escapeFilter, "escape": escapeFilter, "forceescape": forceEscape, "filesizeformat": fileSize,
		"first": firstItem, "last": lastItem, "random": randomItem, "float": toFloat, "int": toInteger, "format": formatFilter,
		"groupby": groupBy, "indent": indent, "items": itemsFilter, "join": joinFilter, "list": listFilter,
		"map": mapFilter, "max": extreme("max", 1), "min": extreme("min", -1),
		"select": selecting(true, false), "reject": selecting(false, false),
		"selectattr": selecting(true, true), "rejectattr": selecting(false, true),
		"pprint":  func(s *state, v any, a *callArgs) any { a.bind(s, "pprint", 0); return pprint(s, v) },
		"replace": replaceFilter, "reverse": reverse, "round": round, "safe": safe, "sort": sortFilter, "string": stringFilter,
		"striptags": func(s *state, v any, a *callArgs) any { a.bind(s, "striptags", 0); return striptags(s, str(s, v)) },
		"sum":       sum, "tojson": toJSON, "trim": trimFilter, "truncate": truncateFilter, "unique": unique,
		"urlencode": urlEncode, "urlize": urlize, "wordcount": wordCount, "wordwrap": wordWrap, "xmlattr": xmlAttr,
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

func abs(s *state, v any, a *callArgs) any {
	a.bind(s, "abs", 0)
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	if !isInt(v) {
		s.fail("abs wants a number, not a %s", typeName(v))
	}
	return s.sign(bigOf(v).Sign() < 0, v)
}

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

func centerFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "center", 0, "width")
	width := int64(80)
	if p[0] != unset {
		width = count(s, "center", p[0])
	}
	t, same := soft(s, v)
	return same(justified(s, t, width, " ", centered))
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

func firstItem(s *state, v any, a *callArgs) any {
	a.bind(s, "first", 0)
	if x, ok := iterate(s, v)(); ok {
		return x
	}
	return Undefined{Name: "the first item of an empty sequence"}
}

func lastItem(s *state, v any, a *callArgs) any {
	a.bind(s, "last", 0)
	if x, ok := s.backward(v, "last")(); ok {
		return x
	}
	return Undefined{Name: "the last item of an empty sequence"}
}

// backward iterates over what Python's reversed takes: no generators.
func (s *state) backward(v any, fn string) iterator {
	switch v := v.(type) {
	case *generator:
		s.fail("%s does not work on a generator: use |list first", fn)
	case *loop:
		s.fail("%s does not work on a loop", fn)
	case string, markup:
		t, same := soft(s, v)
		return func() (any, bool) {
			if t == "" {
				return nil, false
			}
			_, n := utf8.DecodeLastRuneInString(t)
			c := t[len(t)-n:]
			t = t[:len(t)-n]
			return same(c), true
		}
	case *rangeValue:
		return over(int(v.length), func(i int) any { return v.at(v.length - 1 - int64(i)) })
	case *Dict:
		return s.backward(v.keys, fn)
	case dictView:
		return over(len(v.of.keys), func(i int) any { return v.at(len(v.of.keys) - 1 - i) })
	}
	list := items(s, v)
	return over(len(list), func(i int) any { return list[len(list)-1-i] })
}

func reverse(s *state, v any, a *callArgs) any {
	a.bind(s, "reverse", 0)
	switch v := v.(type) {
	case string, markup:
		t, same := soft(s, v)
		minus := int64(-1)
		return same(s.substring(t, nil, nil, &minus))
	case *generator, *loop:
		list := slices.Clone(items(s, v))
		slices.Reverse(list)
		return list
	}
	if !iterable(v) {
		s.fail("reverse: a %s cannot be looped over", typeName(v))
	}
	return &generator{s.backward(v, "reverse")}
}

// randomItem picks by the time the template is rendered at, so that a rendering depends on nothing else.
func randomItem(s *state, v any, a *callArgs) any {
	a.bind(s, "random", 0)
	n := mustLength(s, v)
	if n == 0 {
		return Undefined{Name: "a random item of an empty sequence"}
	}
	seed := uint64(s.now.UnixNano())
	return s.item(v, int64(rand.New(rand.NewPCG(seed, uint64(s.steps))).IntN(n)))
}

func toFloat(s *state, v any, a *callArgs) any {
	p := a.bind(s, "float", 0, "default")
	if u, ok := v.(Undefined); ok {
		s.fail("%s", u.message())
	}
	if _, ok := number(v); ok {
		return float(s, v)
	}
	if t, ok := text(v); ok {
		if f, ok := s.parseFloat(t); ok {
			return f
		}
	}
	if p[0] == unset {
		return 0.0
	}
	return p[0]
}

func toInteger(s *state, v any, a *callArgs) any {
	p := a.bind(s, "int", 0, "default", "base")
	if u, ok := v.(Undefined); ok {
		s.fail("%s", u.message())
	}
	fallback := p[0]
	if fallback == unset {
		fallback = int64(0)
	}
	base := int64(10)
	if p[1] != unset {
		base = count(s, "int", p[1])
	}
	t, isText := text(v)
	switch {
	case isInt(v):
		return s.sign(false, v)
	case isText:
		if base == 0 || base >= 2 && base <= 36 {
			if n, ok := s.parseInt(t, int(base)); ok {
				return n
			}
		}
		f, ok := s.parseFloat(t)
		if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
			return fallback
		}
		return truncate(s, f)
	}
	f, ok := v.(float64)
	switch {
	case !ok || math.IsNaN(f):
		return fallback
	case math.IsInf(f, 0):
		s.fail("int: infinity is no integer")
	}
	return truncate(s, f)
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

// path is an attribute as filters take it: a name such as "function.name" or "0.role", or a number.
func (s *state) path(v any) (parts []any) {
	t, ok := text(v)
	if !ok {
		return []any{v}
	}
	s.charge((strings.Count(t, ".") + 1) * itemBytes)
	for _, part := range strings.Split(t, ".") {
		if n, ok := s.parseInt(part, 10); ok && every(isDigit)(part) {
			parts = append(parts, n)
		} else {
			parts = append(parts, part)
		}
	}
	return parts
}

// getter reads an attribute of each item: the item itself when path is unset or None. otherwise takes the place of
// what is undefined.
func (s *state) getter(path, otherwise any) func(x any) any {
	if isNone(path) {
		return func(x any) any { return x }
	}
	parts := s.path(path)
	s.charge(frameBytes)
	return func(x any) any {
		for _, part := range parts {
			s.step()
			x = s.item(x, part)
			if _, undefined := x.(Undefined); undefined && !isNone(otherwise) {
				x = otherwise
			}
		}
		return x
	}
}

// keyed is a getter whose strings ignore case unless sensitive.
func (s *state) keyed(path, otherwise, sensitive any) func(x any) any {
	get := s.getter(path, otherwise)
	if given(sensitive) {
		return get
	}
	return func(x any) any { return s.ignoreCase(get(x)) }
}

func (s *state) ignoreCase(v any) any {
	t, ok := text(v)
	if !ok {
		return v
	}
	return s.recased(t, lower)
}

func joinFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "join", 0, "d", "attribute")
	get := s.getter(p[1], nil)
	var sep any = ""
	if p[0] != unset {
		sep = p[0]
	}
	list := &generator{s.mapped(v, get)}
	if !s.autoescape {
		return joined(s, str(s, sep), list, true)
	}
	all := items(s, list)
	_, escaped := sep.(markup)
	for _, x := range all {
		_, is := x.(markup)
		escaped = escaped || is
	}
	if !escaped {
		return joined(s, str(s, sep), all, true)
	}
	parts := make([]any, len(all))
	for i, x := range all {
		parts[i] = string(escape(s, x))
	}
	return markup(joined(s, string(escape(s, sep)), parts, false))
}

// mapped yields f of each item of v.
func (s *state) mapped(v any, f func(x any) any) iterator {
	next := iterate(s, v)
	return func() (any, bool) {
		x, ok := next()
		if !ok {
			return nil, false
		}
		s.step()
		return f(x), true
	}
}

func itemsFilter(s *state, v any, a *callArgs) any {
	a.bind(s, "items", 0)
	return s.lazily(func() iterator {
		switch d := v.(type) {
		case *Dict:
			return iterate(s, dictView{d, "items"})
		case Undefined:
			return over(0, nil)
		}
		s.fail("items wants a dict, not a %s", typeName(v))
		return nil
	})
}

// lazily is a generator of which nothing is looked at before its first item is asked for.
func (s *state) lazily(begin func() iterator) *generator {
	s.charge(frameBytes)
	var next iterator
	return &generator{func() (any, bool) {
		if next == nil {
			next = begin()
		}
		// Generators read one another: a long chain of them is nesting.
		s.enter()
		x, ok := next()
		s.leave()
		return x, ok
	}}
}

func listFilter(s *state, v any, a *callArgs) any {
	a.bind(s, "list", 0)
	return slices.Clip(items(s, v))
}

func mapFilter(s *state, v any, a *callArgs) any {
	return s.lazily(func() iterator {
		if !truth(v) {
			return over(0, nil)
		}
		if len(a.list) == 0 && slices.Contains(a.names, "attribute") {
			p := a.bind(s, "map", 0, "attribute", "default")
			return s.mapped(v, s.getter(p[0], p[1]))
		}
		if len(a.list) == 0 {
			s.fail("map wants a filter's name or attribute=…")
		}
		name, _ := text(a.list[0])
		f := filters[name]
		if f == nil {
			s.fail("unknown filter %q", name)
		}
		rest := &callArgs{a.list[1:], a.names, a.values}
		return s.mapped(v, func(x any) any { return f(s, x, rest) })
	})
}

// selecting makes select, reject (of the items themselves) and selectattr, rejectattr.
func selecting(keep, byAttr bool) filter {
	return func(s *state, v any, a *callArgs) any {
		return s.lazily(func() iterator {
			if !truth(v) {
				return over(0, nil)
			}
			args := a.list
			get := s.getter(nil, nil)
			if byAttr {
				if len(args) == 0 {
					s.fail("wants an attribute's name")
				}
				get, args = s.getter(args[0], nil), args[1:]
			}
			check := func(_ *state, v any, _ *callArgs) bool { return truth(v) }
			var rest *callArgs
			if len(args) > 0 {
				name, _ := text(args[0])
				if check = tests[name]; check == nil {
					s.fail("unknown test %q", name)
				}
				rest = &callArgs{args[1:], a.names, a.values}
			}
			next := iterate(s, v)
			return func() (any, bool) {
				for {
					x, ok := next()
					if !ok {
						return nil, false
					}
					s.step()
					if check(s, get(x), rest) == keep {
						return x, true
					}
				}
			}
		})
	}
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

func round(s *state, v any, a *callArgs) any {
	p := a.bind(s, "round", 0, "precision", "method")
	places := int64(0)
	if p[0] != unset {
		places = count(s, "round", p[0])
	}
	method := "common"
	if p[1] != unset {
		method, _ = text(p[1])
	}
	if u, ok := v.(Undefined); ok {
		s.fail("%s", u.message())
	}
	if _, ok := number(v); !ok {
		s.fail("round wants a number, not a %s", typeName(v))
	}
	var to func(float64) float64
	switch method {
	case "common":
		return s.roundTo(v, places)
	case "floor":
		to = math.Floor
	case "ceil":
		to = math.Ceil
	default:
		s.fail("round: the method is common, ceil or floor")
	}
	scale := s.power(big.NewInt(10), big.NewInt(places))
	scaled := s.arithmetic("*", v, scale)
	if f, ok := scaled.(float64); ok {
		scaled = truncate(s, to(f))
	}
	return s.arithmetic("/", scaled, scale)
}

// sorted orders items by key; it is stable.
func sorted(s *state, list []any, descending bool, keyOf func(any) any) []any {
	s.charge(len(list) * 3 * itemBytes)
	type pair struct{ key, value any }
	pairs := make([]pair, len(list))
	for i, x := range list {
		pairs[i] = pair{keyOf(x), x}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		c := compare(s, a.key, b.key)
		if c == unordered {
			return 0
		}
		if descending {
			return -c
		}
		return c
	})
	out := make([]any, len(pairs))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out
}

func sortFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "sort", 0, "reverse", "case_sensitive", "attribute")
	paths := []any{p[2]} // several attributes, by the first one first
	if t, ok := text(p[2]); ok {
		paths = nil
		for _, path := range strings.Split(t, ",") {
			paths = append(paths, path)
		}
	}
	var getters []func(any) any
	for _, path := range paths {
		getters = append(getters, s.keyed(path, nil, p[1]))
	}
	keyOf := func(x any) any {
		s.charge(len(getters) * itemBytes)
		key := make([]any, len(getters))
		for i, get := range getters {
			key[i] = get(x)
		}
		return key
	}
	return sorted(s, items(s, v), given(p[0]), keyOf)
}

func dictSort(s *state, v any, a *callArgs) any {
	p := a.bind(s, "dictsort", 0, "case_sensitive", "by", "reverse")
	d, ok := v.(*Dict)
	if !ok {
		if u, ok := v.(Undefined); ok {
			s.fail("%s", u.message())
		}
		s.fail("dictsort wants a dict, not a %s", typeName(v))
	}
	which := 0
	switch by, _ := text(p[1]); {
	case by == "value":
		which = 1
	case p[1] != unset && by != "key":
		s.fail(`dictsort sorts by "key" or "value"`)
	}
	return sorted(s, items(s, dictView{d, "items"}), given(p[2]), func(x any) any {
		if k := x.(Tuple)[which]; given(p[0]) {
			return k
		} else {
			return s.ignoreCase(k)
		}
	})
}

func groupBy(s *state, v any, a *callArgs) any {
	p := a.bind(s, "groupby", 1, "attribute", "default", "case_sensitive")
	keyOf := s.keyed(p[0], p[1], p[2])
	get := s.getter(p[0], p[1])
	list := sorted(s, items(s, v), false, keyOf)
	groups := []any{}
	for i := 0; i < len(list); {
		j, k := i+1, keyOf(list[i])
		for j < len(list) && equal(s, keyOf(list[j]), k) {
			j++
		}
		s.charge(entryBytes)
		groups = append(groups, &group{get(list[i]), list[i:j:j]})
		i = j
	}
	return groups
}

func extreme(name string, direction int) filter {
	return func(s *state, v any, a *callArgs) any {
		p := a.bind(s, name, 0, "case_sensitive", "attribute")
		keyOf := s.keyed(p[1], nil, p[0])
		var best, bestKey any = unset, nil
		each(s, v, func(x any) {
			if k := keyOf(x); best == unset || compare(s, k, bestKey) == direction {
				best, bestKey = x, k
			}
		})
		if best == unset {
			return Undefined{Name: "the " + name + " of an empty sequence"}
		}
		return best
	}
}

func sum(s *state, v any, a *callArgs) any {
	p := a.bind(s, "sum", 0, "attribute", "start")
	get := s.getter(p[0], nil)
	total := any(int64(0))
	if p[1] != unset {
		total = p[1]
	}
	if _, ok := text(total); ok {
		s.fail("sum does not add strings: use join")
	}
	each(s, v, func(x any) { total = s.binary("+", total, get(x)) })
	return total
}

func unique(s *state, v any, a *callArgs) any {
	p := a.bind(s, "unique", 0, "case_sensitive", "attribute")
	return s.lazily(func() iterator {
		keyOf := s.keyed(p[1], nil, p[0])
		seen := map[any]bool{}
		next := iterate(s, v)
		return func() (any, bool) {
			for {
				x, ok := next()
				if !ok {
					return nil, false
				}
				s.step()
				k := keyOf(x)
				h, hashable := hashOf(s, k)
				if !hashable {
					s.fail("unique: a %s cannot be told apart from others", typeName(k))
				}
				if !seen[h] {
					s.charge(entryBytes)
					seen[h] = true
					return x, true
				}
			}
		}
	})
}

func batch(s *state, v any, a *callArgs) any {
	p := a.bind(s, "batch", 1, "linecount", "fill_with")
	n := int(min(max(count(s, "batch", p[0]), -1), 1<<40))
	return s.lazily(func() iterator {
		next := iterate(s, v)
		var chunk []any
		done := false
		return func() (any, bool) {
			for !done {
				x, ok := next()
				if !ok {
					done = true
					break
				}
				s.step()
				s.charge(itemBytes)
				if chunk != nil && len(chunk) == n {
					full := chunk
					chunk = []any{x}
					return full, true
				}
				if n == 0 && chunk == nil { // as in Jinja2, where the first line is empty
					chunk = []any{x}
					return []any{}, true
				}
				chunk = append(chunk, x)
			}
			if len(chunk) == 0 {
				return nil, false
			}
			if !isNone(p[1]) && len(chunk) < n {
				s.chargeProduct(n, itemBytes)
				for len(chunk) < n {
					chunk = append(chunk, p[1])
				}
			}
			last := chunk
			chunk = nil
			return last, true
		}
	})
}

func sliceFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "slice", 1, "slices", "fill_with")
	n := count(s, "slice", p[0])
	return s.lazily(func() iterator {
		list := items(s, v)
		if n == 0 {
			s.fail("%v", errZero)
		}
		size, extra := int64(len(list))/max(n, 1), int64(len(list))%max(n, 1)
		i, at := int64(0), int64(0)
		return func() (any, bool) {
			if i >= n {
				return nil, false
			}
			s.step()
			end := at + size
			if i < extra {
				end++
			}
			part := list[at:end:end]
			if !isNone(p[1]) && i >= extra {
				s.charge((len(part) + 1) * itemBytes)
				part = append(part, p[1])
			}
			i, at = i+1, end
			return part, true
		}
	})
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
		i := strings.IndexFunc(t, func(r rune) bool { return (isSpace(r) || strings.ContainsRune("-({[<", r)) != begins })
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

func fileSize(s *state, v any, a *callArgs) any {
	p := a.bind(s, "filesizeformat", 0, "binary")
	t, isText := text(v)
	f, ok := number(v)
	if isText {
		f, ok = s.parseFloat(t)
	}
	if !ok {
		s.fail("filesizeformat wants a number, not a %s", typeName(v))
	}
	base, suffix := 1000.0, "B"
	prefixes := strings.Fields("k M G T P E Z Y")
	if given(p[0]) {
		base, suffix, prefixes[0] = 1024, "iB", "K"
	}
	one := spec{fill: " ", precision: 1, kind: 'f'}
	switch {
	case f == 1:
		return "1 Byte"
	case f < base:
		return str(s, truncate(s, f)) + " Bytes"
	}
	unit := base
	for i, prefix := range prefixes {
		if unit *= base; f < unit || i == len(prefixes)-1 {
			return one.float(s, base*f/unit) + " " + prefix + suffix
		}
	}
	return nil
}

// striptags takes comments and tags out, makes single blanks of others, and resolves entities.
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

// urlize is known, as a name, and left out: a prompt is no page of HTML.
func urlize(s *state, _ any, _ *callArgs) any {
	s.fail("urlize is not supported: a prompt is not HTML")
	return nil
}
