package jinja

import (
	"math"
	"math/big"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

// test implements a test; v is the value to the left of "is".
type test func(s *state, v any, a *callArgs) bool

var tests map[string]test

// kindTest makes a test of a value alone.
func kindTest(f func(v any) bool) test {
	return func(s *state, v any, a *callArgs) bool {
		a.bind(s, "the test", 0)
		return f(v)
	}
}

func init() {
	comparison := func(op string) test {
		return func(s *state, v any, a *callArgs) bool {
			return s.holds(op, v, a.positional(s, "a comparison", 1, 1)[0])
		}
	}
	remainder := func(s *state, v, by any) any { return s.binary("%", v, by) }
	divides := func(s *state, v, by any) bool { return equal(s, remainder(s, v, by), int64(0)) }
	undefined := func(v any) bool { _, ok := v.(Undefined); return ok }
	caseTest := func(has, hasNot func(rune) bool) test {
		return func(s *state, v any, a *callArgs) bool {
			a.bind(s, "the test", 0)
			t := str(s, v)
			s.scan(64 * len(t))
			return letters.OneCase(t, has, hasNot)
		}
	}
	tests = map[string]test{
		"defined":   kindTest(func(v any) bool { return !undefined(v) }),
		"undefined": kindTest(undefined),
		"none":      kindTest(func(v any) bool { return v == nil }),
		"boolean":   kindTest(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      kindTest(func(v any) bool { b, ok := v.(bool); return ok && b }),
		"false":     kindTest(func(v any) bool { b, ok := v.(bool); return ok && !b }),
		"integer":   kindTest(func(v any) bool { _, ok := v.(bool); return isInt(v) && !ok }),
		"float":     kindTest(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    kindTest(func(v any) bool { _, ok := number(v); return ok }),
		"string":    kindTest(func(v any) bool { _, ok := text(v); return ok }),
		"mapping":   kindTest(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"escaped":   kindTest(func(v any) bool { _, ok := v.(markup); return ok }),
		"iterable":  kindTest(iterable),
		"sequence": kindTest(func(v any) bool { // has a length and can be indexed
			switch v.(type) {
			case string, markup, []any, Tuple, *group, *Dict, *rangeValue, Undefined:
				return true
			}
			return false
		}),
		"callable": kindTest(func(v any) bool {
			switch v.(type) {
			case *function, *macro, *loop, Undefined:
				return true
			}
			return false
		}),
		"lower": caseTest(letters.IsLower, letters.IsUpper),
		"upper": caseTest(letters.IsUpper, letters.IsLower),
		"odd": func(s *state, v any, a *callArgs) bool {
			a.bind(s, "odd", 0)
			return equal(s, remainder(s, v, int64(2)), int64(1))
		},
		"even": func(s *state, v any, a *callArgs) bool {
			a.bind(s, "even", 0)
			return divides(s, v, int64(2))
		},
		"divisibleby": func(s *state, v any, a *callArgs) bool {
			return divides(s, v, a.bind(s, "divisibleby", 1, "num")[0])
		},
		"in":     func(s *state, v any, a *callArgs) bool { return contains(s, a.bind(s, "in", 1, "seq")[0], v) },
		"sameas": func(s *state, v any, a *callArgs) bool { return identical(v, a.bind(s, "sameas", 1, "other")[0]) },
		"filter": func(s *state, v any, a *callArgs) bool {
			a.bind(s, "filter", 0)
			if _, ok := hashOf(s, v); !ok {
				s.fail("filter wants a name, not a %s", typeName(v))
			}
			name, _ := text(v)
			return filters[name] != nil
		},
		"test": func(s *state, v any, a *callArgs) bool {
			a.bind(s, "test", 0)
			if _, ok := hashOf(s, v); !ok {
				s.fail("test wants a name, not a %s", typeName(v))
			}
			name, _ := text(v)
			return tests[name] != nil
		},
	}
	for _, names := range [][]string{
		{"==", "eq", "equalto"}, {"!=", "ne"}, {"<", "lt", "lessthan"}, {"<=", "le"}, {">", "gt", "greaterthan"},
		{">=", "ge"},
	} {
		for _, name := range names {
			tests[name] = comparison(names[0])
		}
	}
}

// identical is Python's "is", as far as it makes sense for values that are never modified.
func identical(a, b any) bool {
	switch a := a.(type) {
	case nil, bool, int64, string, *Dict, *namespace, *loop, *macro, *function, *generator, *big.Int:
		return a == b
	case float64:
		f, ok := b.(float64)
		return ok && (a == f || math.IsNaN(a) && math.IsNaN(f))
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
	}
	return false
}
