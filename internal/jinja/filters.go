package jinja

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type filter func(s *state, v any, a callArgs) (any, error)
type test func(s *state, v any, a callArgs) (bool, error)

var filters map[string]filter

func init() { // map, select and reject look filters and tests up by name
	filters = map[string]filter{
		"abs": func(_ *state, v any, _ callArgs) (any, error) {
			if i, ok := integer(v); ok {
				return max(i, -i), nil
			}
			if f, ok := v.(float64); ok {
				return math.Abs(f), nil
			}
			return nil, fmt.Errorf("wants a number, not a %s", typeName(v))
		},
		"attr": func(s *state, v any, a callArgs) (any, error) {
			n, err := a.bind("attr", 1, "name")
			if err != nil {
				return nil, err
			}
			return s.attr(s.line, v, str(s, n[0])), nil
		},
		"batch": batch, "capitalize": viaText(capitalize), "count": lengthFilter, "length": lengthFilter,
		"d": defaultFilter, "default": defaultFilter, "dictsort": dictSort,
		"e": escape, "escape": escape, "first": firstItem, "float": toFloat, "format": func(s *state, v any, a callArgs) (any, error) {
			return percent(s, str(s, v), Tuple(a.list))
		},
		"groupby": groupBy, "indent": indent, "int": toInteger, "items": func(s *state, v any, a callArgs) (any, error) {
			switch d := v.(type) {
			case *Dict:
				return dictMethods["items"](s, d, a)
			case Undefined:
				return []any(nil), nil
			}
			return nil, fmt.Errorf("wants a dict, not a %s", typeName(v))
		},
		"join": joinFilter, "last": lastItem, "list": func(s *state, v any, _ callArgs) (any, error) {
			items, err := iterate(s, v)
			s.charge(len(items) * itemBytes)
			return slices.Clone(items), err
		},
		"lower": viaText(strings.ToLower), "upper": viaText(upper), "title": viaText(title),
		"map": mapFilter, "max": extreme(1), "min": extreme(-1),
		"select": selecting(true, false), "reject": selecting(false, false),
		"selectattr": selecting(true, true), "rejectattr": selecting(false, true),
		"replace": func(s *state, v any, a callArgs) (any, error) { return replace(s, str(s, v), a) },
		"reverse": reverse, "round": round,
		"safe":   func(_ *state, v any, _ callArgs) (any, error) { return v, nil },
		"sort":   sortFilter,
		"string": func(s *state, v any, _ callArgs) (any, error) { return str(s, v), nil },
		"sum":    sum, "tojson": toJSON, "trim": func(s *state, v any, a callArgs) (any, error) {
			return strMethods["strip"](s, str(s, v), a)
		},
		"truncate": truncate, "unique": unique,
		"wordcount": func(s *state, v any, _ callArgs) (any, error) {
			t := str(s, v)
			s.charge(len(t))
			return int64(len(strings.Fields(t))), nil
		},
	}
}

func viaText(f func(string) string) filter {
	return func(s *state, v any, _ callArgs) (any, error) {
		t := str(s, v)
		s.charge(2 * len(t))
		return f(t), nil
	}
}

func lengthFilter(s *state, v any, _ callArgs) (any, error) {
	n, err := length(s, v)
	return int64(n), err
}

func defaultFilter(_ *state, v any, a callArgs) (any, error) {
	p, err := a.bind("default", 0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, undefined := v.(Undefined)
	if undefined || p[1] != (missing{}) && truth(p[1]) && !truth(v) {
		if p[0] == (missing{}) {
			return "", nil
		}
		return p[0], nil
	}
	return v, nil
}

func escape(s *state, v any, _ callArgs) (any, error) {
	t := str(s, v)
	s.charge(6 * len(t))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(t), nil
}

func firstItem(s *state, v any, _ callArgs) (any, error) {
	if items, err := iterate(s, v); err != nil || len(items) > 0 {
		return append(items, nil)[0], err
	}
	return Undefined{"the first item of an empty sequence"}, nil
}

func lastItem(s *state, v any, _ callArgs) (any, error) {
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return Undefined{"the last item of an empty sequence"}, nil
	}
	return items[len(items)-1], nil
}

func toFloat(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("float", 0, "default")
	if err != nil {
		return nil, err
	}
	if f, _, ok := number(v); ok {
		return f, nil
	}
	if t, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(t), 64); err == nil {
			return f, nil
		}
	}
	if p[0] == (missing{}) {
		return 0.0, nil
	}
	return p[0], nil
}

func toInteger(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("int", 0, "default", "base")
	if err != nil {
		return nil, err
	}
	if i, ok := integer(v); ok {
		return i, nil
	}
	base := int64(10)
	if b, ok := p[1].(int64); ok && b >= 2 && b <= 36 {
		base = b
	}
	f, ok := v.(float64)
	if t, isText := v.(string); isText {
		t = strings.TrimSpace(t)
		if i, err := strconv.ParseInt(t, int(base), 64); err == nil {
			return i, nil
		}
		f, err = strconv.ParseFloat(t, 64)
		ok = err == nil
	}
	if ok && math.Abs(f) < 1<<62 {
		return int64(f), nil
	}
	if p[0] == (missing{}) {
		return int64(0), nil
	}
	return p[0], nil
}

func joinFilter(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("join", 0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	if p[1] != (missing{}) && p[1] != nil {
		by, err := attributes(s, items, p[1])
		if err != nil {
			return nil, err
		}
		items = by
	}
	sep := ""
	if p[0] != (missing{}) {
		sep = str(s, p[0])
	}
	return join(s, items, sep), nil
}

// attribute is v's attribute by a path such as "function.name" or an index.
func attribute(s *state, v, path any) any { return attributeOr(s, v, path, missing{}) }

// attributeOr takes otherwise wherever the path leads to something undefined.
func attributeOr(s *state, v, path, otherwise any) any {
	if i, ok := integer(path); ok {
		return s.item(s.line, v, i)
	}
	for _, part := range strings.Split(str(s, path), ".") {
		if i, err := strconv.ParseInt(part, 10, 64); err == nil {
			v = s.item(s.line, v, i)
		} else {
			v = s.item(s.line, v, part)
		}
		if _, undefined := v.(Undefined); undefined && otherwise != (missing{}) {
			v = otherwise
		}
	}
	return v
}

func attributes(s *state, items []any, path any) ([]any, error) {
	s.charge(len(items) * itemBytes)
	list := make([]any, len(items))
	for i, x := range items {
		list[i] = attribute(s, x, path)
	}
	return list, nil
}

func mapFilter(s *state, v any, a callArgs) (any, error) {
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	s.charge(len(items) * itemBytes)
	list := make([]any, 0, len(items))
	if len(a.list) == 0 {
		p, err := a.bind("map", 0, "attribute", "default")
		if err != nil {
			return nil, err
		}
		if p[0] == (missing{}) {
			return nil, errors.New("wants a filter's name or attribute=…")
		}
		for _, x := range items {
			list = append(list, attributeOr(s, x, p[0], p[1]))
		}
		return list, nil
	}
	name := str(s, a.list[0])
	f := filters[name]
	if f == nil {
		return nil, fmt.Errorf("unknown filter %q", name)
	}
	defer s.deeper()()
	rest := callArgs{a.list[1:], a.names, a.values}
	for _, x := range items {
		s.step()
		got, err := f(s, x, rest)
		if err != nil {
			return nil, err
		}
		list = append(list, got)
	}
	return list, nil
}

// selecting makes select, reject (of the items themselves) and selectattr, rejectattr.
func selecting(keep, byAttr bool) filter {
	return func(s *state, v any, a callArgs) (any, error) {
		items, err := iterate(s, v)
		if err != nil {
			return nil, err
		}
		args := a.list
		var path any
		if byAttr {
			if len(args) == 0 {
				return nil, errors.New("wants an attribute's name")
			}
			path, args = args[0], args[1:]
		}
		check := func(_ *state, v any, _ callArgs) (bool, error) { return truth(v), nil }
		var rest callArgs
		if len(args) > 0 {
			name := str(s, args[0])
			t := tests[name]
			if t == nil {
				return nil, fmt.Errorf("unknown test %q", name)
			}
			check, rest = t, callArgs{args[1:], a.names, a.values}
		}
		var list []any
		for _, x := range items {
			s.step()
			s.charge(itemBytes)
			probe := x
			if byAttr {
				probe = attribute(s, x, path)
			}
			ok, err := check(s, probe, rest)
			if err != nil {
				return nil, err
			}
			if ok == keep {
				list = append(list, x)
			}
		}
		return list, nil
	}
}

func reverse(s *state, v any, _ callArgs) (any, error) {
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	s.charge(len(items) * itemBytes)
	items = slices.Clone(items)
	slices.Reverse(items)
	if _, ok := v.(string); ok {
		return join(s, items, ""), nil
	}
	return items, nil
}

func round(_ *state, v any, a callArgs) (any, error) {
	p, err := a.bind("round", 0, "precision", "method")
	if err != nil {
		return nil, err
	}
	f, isInt, ok := number(v)
	if !ok {
		return nil, fmt.Errorf("wants a number, not a %s", typeName(v))
	}
	places, _ := integer(p[0])
	scale := math.Pow(10, float64(min(max(places, -15), 15)))
	switch p[1] {
	case "floor":
		return math.Floor(f*scale) / scale, nil
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	}
	if isInt && places >= 0 {
		return v, nil
	}
	if places > 0 { // correctly rounded from the decimal expansion, as Python does
		return strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(min(places, 15)), 64), 64)
	}
	return math.RoundToEven(f*scale) / scale, nil
}

// sortKey folds case unless asked not to.
func sortKey(v any, sensitive bool) any {
	if t, ok := v.(string); ok && !sensitive {
		return strings.ToLower(t)
	}
	return v
}

// sorted orders items by key; it is stable.
func sorted(s *state, items []any, descending bool, keyOf func(any) any) ([]any, error) {
	s.charge(len(items) * 2 * itemBytes)
	type pair struct{ key, value any }
	pairs := make([]pair, len(items))
	for i, x := range items {
		pairs[i] = pair{keyOf(x), x}
	}
	var failed error
	slices.SortStableFunc(pairs, func(a, b pair) int {
		c, err := compare(s, a.key, b.key)
		failed = cmp.Or(failed, err)
		if descending {
			return -c
		}
		return c
	})
	out := make([]any, len(pairs))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out, failed
}

func sortFilter(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	return sorted(s, items, given(p[0]), func(x any) any {
		if p[2] != (missing{}) && p[2] != nil {
			x = attribute(s, x, p[2])
		}
		return sortKey(x, given(p[1]))
	})
}

func given(v any) bool { return v != (missing{}) && truth(v) }

func dictSort(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("wants a dict, not a %s", typeName(v))
	}
	items, err := dictMethods["items"](s, d, callArgs{})
	if err != nil {
		return nil, err
	}
	which := 0
	if p[1] == "value" {
		which = 1
	}
	return sorted(s, items.([]any), given(p[2]), func(x any) any { return sortKey(x.(Tuple)[which], given(p[0])) })
}

func groupBy(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	keyOf := func(x any) any {
		return sortKey(attributeOr(s, x, p[0], p[1]), given(p[2]))
	}
	if items, err = sorted(s, items, false, keyOf); err != nil {
		return nil, err
	}
	var groups []any
	for i := 0; i < len(items); {
		j, k := i, keyOf(items[i])
		for j < len(items) && equal(s, keyOf(items[j]), k) {
			j++
		}
		groups = append(groups, Tuple{attribute(s, items[i], p[0]), items[i:j:j]})
		i = j
	}
	return groups, nil
}

func extreme(direction int) filter {
	return func(s *state, v any, a callArgs) (any, error) {
		p, err := a.bind("max or min", 0, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		items, err := iterate(s, v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return Undefined{"the extreme of an empty sequence"}, nil
		}
		keyOf := func(x any) any {
			if p[1] != (missing{}) {
				x = attribute(s, x, p[1])
			}
			return sortKey(x, given(p[0]))
		}
		best := items[0]
		for _, x := range items[1:] {
			c, err := compare(s, keyOf(x), keyOf(best))
			if err != nil {
				return nil, err
			}
			if c*direction > 0 {
				best = x
			}
		}
		return best, nil
	}
}

func sum(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("sum", 0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	total := any(int64(0))
	if p[1] != (missing{}) {
		total = p[1]
	}
	for _, x := range items {
		if p[0] != (missing{}) && p[0] != nil {
			x = attribute(s, x, p[0])
		}
		if total, err = s.binary("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func unique(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("unique", 0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(s, v)
	if err != nil {
		return nil, err
	}
	seen := NewDict()
	var list []any
	for _, x := range items {
		k := x
		if p[1] != (missing{}) && p[1] != nil {
			k = attribute(s, x, p[1])
		}
		k, err := key(sortKey(k, given(p[0])))
		if err != nil {
			return nil, err
		}
		if _, ok := seen.m[k]; !ok {
			s.charge(itemBytes)
			seen.set(k, true)
			list = append(list, x)
		}
	}
	return list, nil
}

func batch(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("batch", 1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	n, ok := integer(p[0])
	items, err := iterate(s, v)
	if err != nil || !ok || n < 1 {
		return nil, cmp.Or(err, errors.New("wants a count of at least 1"))
	}
	s.charge(len(items) * 2 * itemBytes)
	var list []any
	for chunk := range slices.Chunk(items, int(min(n, int64(len(items))+1))) {
		chunk = slices.Clone(chunk)
		if p[1] != (missing{}) && p[1] != nil {
			s.charge(int(min(n, 1<<31)) * itemBytes)
			for int64(len(chunk)) < n {
				chunk = append(chunk, p[1])
			}
		}
		list = append(list, chunk)
	}
	return list, nil
}

func indent(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("indent", 0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	pad := any("    ")
	switch w := p[0].(type) {
	case string:
		pad = w
	case int64:
		if pad, err = s.repeat(" ", w); err != nil {
			return nil, err
		}
	}
	t := str(s, v)
	s.charge(len(t) + min(strings.Count(t, "\n")+1, 1<<31)*min(len(pad.(string)), 1<<31))
	lines := strings.Split(t, "\n")
	for i, line := range lines {
		if i == 0 && !given(p[1]) || line == "" && !given(p[2]) && i > 0 {
			continue
		}
		lines[i] = pad.(string) + line
	}
	return strings.Join(lines, "\n"), nil
}

func truncate(s *state, v any, a callArgs) (any, error) {
	p, err := a.bind("truncate", 0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	most, leeway, end := int64(255), int64(5), "..."
	if n, ok := integer(p[0]); ok {
		most = n
	}
	if e, ok := p[2].(string); ok {
		end = e
	}
	if n, ok := integer(p[3]); ok {
		leeway = n
	}
	t := str(s, v)
	s.charge(5 * len(t))
	r := []rune(t)
	if int64(len(r)) <= most+leeway {
		return t, nil
	}
	cut := string(r[:max(0, min(most-int64(utf8.RuneCountInString(end)), int64(len(r))))])
	if !given(p[1]) {
		if i := strings.LastIndexByte(cut, ' '); i >= 0 {
			cut = cut[:i]
		}
	}
	return cut + end, nil
}
