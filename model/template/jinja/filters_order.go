package jinja

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

// path is an attribute as filters take it: a name such as "function.name" or "0.role", or a number.
func (s *state) path(v any) (parts []any) {
	t, ok := text(v)
	if !ok {
		return []any{v}
	}
	s.charge((strings.Count(t, ".") + 1) * itemBytes)
	for _, part := range strings.Split(t, ".") {
		if n, ok := s.parseInt(part, 10); ok && every(letters.IsDigit)(part) {
			parts = append(parts, n)
		} else {
			parts = append(parts, part)
		}
	}
	return parts
}

// getter reads an attribute of each item: the item itself when path is unset or None. otherwise replaces an
// undefined value.
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
	return s.recased(t, letters.Lower)
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
