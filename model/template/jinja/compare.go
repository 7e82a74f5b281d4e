package jinja

import "strings"

func truth(v any) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case []any:
		return len(v) > 0
	case Tuple:
		return len(v) > 0
	case *Dict:
		return len(v.keys) > 0
	case dictView:
		return len(v.of.keys) > 0
	case *rangeValue:
		return v.length > 0
	}
	return true
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// integer is v where it may be an index or a count.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return toInt(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// sequence returns a list's or tuple's items.
func sequence(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case Tuple:
		return v, true
	case *group:
		return []any{v.grouper, v.list}, true
	}
	return nil, false
}

func equal(s *state, a, b any) bool {
	s.step()
	if c, ok := compareNumbers(a, b); ok {
		return c == 0
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		if !ok || len(x) != len(y) {
			return false
		}
		s.scan(len(x))
		return x == y
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case []any:
		y, ok := b.([]any)
		return ok && equalItems(s, x, y)
	case Tuple, *group:
		switch b.(type) {
		case Tuple, *group:
			l, _ := sequence(a)
			r, _ := sequence(b)
			return equalItems(s, l, r)
		}
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		s.enter()
		defer s.leave()
		for i, k := range x.keys {
			h, _ := hashOf(s, k)
			if j := y.find(h); j < 0 || !equal(s, x.vals[i], y.vals[j]) {
				return false
			}
		}
		return true
	case *rangeValue:
		y, ok := b.(*rangeValue)
		return ok && x.length == y.length &&
			(x.length == 0 || x.start == y.start && (x.length == 1 || x.step == y.step))
	case dictView: // keys and items are sets
		y, ok := b.(dictView)
		if !ok || x.kind == "values" || y.kind == "values" || len(x.of.keys) != len(y.of.keys) {
			return false
		}
		for i := range x.of.keys {
			if !contains(s, y, x.at(i)) {
				return false
			}
		}
		return true
	case *namespace, *loop, *macro, *function, *generator:
		return a == b
	}
	return false
}

func equalItems(s *state, a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	s.enter()
	defer s.leave()
	for i := range a {
		if !equal(s, a[i], b[i]) {
			return false
		}
	}
	return true
}

// unordered is compare's result for NaN: every comparison is false.
const unordered = 2

// compare orders numbers, strings, lists and tuples: -1, 0, 1 or unordered.
func compare(s *state, a, b any) int {
	s.step()
	if c, ok := compareNumbers(a, b); ok {
		return c
	}
	for _, v := range [2]any{a, b} {
		if u, ok := v.(Undefined); ok {
			s.fail("%s", u.message())
		}
	}
	if x, ok := text(a); ok {
		if y, ok := text(b); ok {
			s.scan(min(len(x), len(y)))
			return strings.Compare(x, y)
		}
	}
	_, list1 := a.([]any)
	_, list2 := b.([]any)
	x, ok1 := sequence(a)
	y, ok2 := sequence(b)
	if !ok1 || !ok2 || list1 != list2 {
		s.fail("a %s and a %s have no order", typeName(a), typeName(b))
	}
	s.enter()
	defer s.leave()
	for i := range min(len(x), len(y)) {
		if !equal(s, x[i], y[i]) {
			return compare(s, x[i], y[i])
		}
	}
	return max(-1, min(1, len(x)-len(y)))
}

// contains is Python's "a in b".
func contains(s *state, b, a any) bool {
	if whole, ok := text(b); ok {
		part, ok := text(a)
		if !ok {
			s.fail("only a string can be in a string, not a %s", typeName(a))
		}
		s.scan(2 * len(whole))
		return strings.Contains(whole, part)
	}
	switch b := b.(type) {
	case *Dict:
		h, ok := hashOf(s, a)
		if !ok {
			s.fail("a %s cannot be a dict's key", typeName(a))
		}
		return b.find(h) >= 0
	case dictView:
		if b.kind == "keys" {
			return contains(s, b.of, a)
		}
	case *rangeValue:
		if i, ok := a.(int64); ok {
			return b.length > 0 && (i-b.start)%b.step == 0 && (i-b.start)/b.step >= 0 && (i-b.start)/b.step < b.length
		}
	}
	next := iterate(s, b)
	for x, ok := next(); ok; x, ok = next() {
		if equal(s, x, a) {
			return true
		}
	}
	return false
}
