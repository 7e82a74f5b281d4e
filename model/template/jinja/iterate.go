package jinja

import "unicode/utf8"

// generator can be read once, and is always true.
type generator struct{ next iterator }

// iterator yields items until it says false.
type iterator func() (any, bool)

// length is Python's len(), strings in characters; -1 for what has none.
func length(s *state, v any) int {
	switch v := v.(type) {
	case string:
		s.scan(len(v))
		return utf8.RuneCountInString(v)
	case markup:
		return length(s, string(v))
	case []any:
		return len(v)
	case Tuple:
		return len(v)
	case *group:
		return 2
	case *Dict:
		return len(v.keys)
	case dictView:
		return len(v.of.keys)
	case *rangeValue:
		return int(v.length)
	case *loop:
		return v.size()
	case Undefined:
		return 0
	}
	return -1
}

func mustLength(s *state, v any) int {
	n := length(s, v)
	if n < 0 {
		s.fail("a %s has no length", typeName(v))
	}
	return n
}

// iterable reports whether a loop over v works.
func iterable(v any) bool {
	switch v.(type) {
	case string, markup, []any, Tuple, *group, *Dict, dictView, *rangeValue, *generator, *loop, Undefined:
		return true
	}
	return false
}

// over walks count items.
func over(count int, at func(i int) any) iterator {
	i := 0
	return func() (any, bool) {
		if i >= count {
			return nil, false
		}
		i++
		return at(i - 1), true
	}
}

// iterate returns an iterator over the items of v.
func iterate(s *state, v any) iterator {
	switch v := v.(type) {
	case *generator:
		return v.next
	case *rangeValue:
		return over(int(v.length), func(i int) any { return v.at(int64(i)) })
	case dictView:
		return over(len(v.of.keys), v.at)
	case *Dict:
		return over(len(v.keys), func(i int) any { return v.keys[i] })
	case *loop:
		return func() (any, bool) {
			x, ok := v.advance()
			return Tuple{x, v}, ok
		}
	case string:
		rest := v
		return func() (any, bool) {
			if rest == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(rest)
			c := rest[:n]
			rest = rest[n:]
			return c, true
		}
	case markup: // whose characters are plain text
		return iterate(s, string(v))
	case Undefined:
		return over(0, nil)
	}
	items, ok := sequence(v)
	if !ok {
		s.fail("a %s cannot be looped over", typeName(v))
	}
	return over(len(items), func(i int) any { return items[i] })
}

// each calls f with every item of v, and counts a step for it.
func each(s *state, v any, f func(x any)) {
	next := iterate(s, v)
	for x, ok := next(); ok; x, ok = next() {
		s.step()
		f(x)
	}
}

// items is Python's list(): all items of v, in a slice that must not be written to.
func items(s *state, v any) []any {
	if list, ok := sequence(v); ok {
		return list
	}
	var list []any
	each(s, v, func(x any) {
		s.charge(itemBytes)
		list = append(list, x)
	})
	return list
}
