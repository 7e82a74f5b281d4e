package jinja

import (
	"fmt"
	"math"
	"strings"
)

// tests are what may follow "is".
var tests map[string]test

// kindTest makes a test of a value alone.
func kindTest(f func(v any) bool) test {
	return func(_ *state, v any, _ callArgs) (bool, error) { return f(v), nil }
}

// orderTest makes a comparison with one argument.
func orderTest(ok func(c int) bool) test {
	return func(s *state, v any, a callArgs) (bool, error) {
		p, err := a.bind("a comparison", 1, "other")
		if err != nil {
			return false, err
		}
		c, err := compare(s, v, p[0])
		return err == nil && ok(c), err
	}
}

func equality(want bool) test {
	return func(s *state, v any, a callArgs) (bool, error) {
		p, err := a.bind("a comparison", 1, "other")
		return err == nil && equal(s, v, p[0]) == want, err
	}
}

func divides(v, by any) (bool, error) {
	i, ok1 := integer(v)
	j, ok2 := integer(by)
	if !ok1 || !ok2 || j == 0 {
		return false, fmt.Errorf("wants ints other than 0, not a %s and a %s", typeName(v), typeName(by))
	}
	return i%j == 0, nil
}

func init() {
	eq, ne := equality(true), equality(false)
	lt, le := orderTest(func(c int) bool { return c < 0 }), orderTest(func(c int) bool { return c <= 0 })
	gt, ge := orderTest(func(c int) bool { return c > 0 }), orderTest(func(c int) bool { return c >= 0 })
	isUndefined := func(v any) bool { _, ok := v.(Undefined); return ok }
	tests = map[string]test{
		"defined":   kindTest(func(v any) bool { return !isUndefined(v) }),
		"undefined": kindTest(isUndefined),
		"none":      kindTest(func(v any) bool { return v == nil }),
		"boolean":   kindTest(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      kindTest(func(v any) bool { return v == true }),
		"false":     kindTest(func(v any) bool { return v == false }),
		"integer":   kindTest(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":     kindTest(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    kindTest(func(v any) bool { _, _, ok := number(v); return ok }),
		"string":    kindTest(func(v any) bool { _, ok := v.(string); return ok }),
		"mapping":   kindTest(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"sequence": kindTest(func(v any) bool {
			switch v.(type) {
			case string, []any, Tuple, *Dict, Undefined:
				return true
			}
			return false
		}),
		"iterable": kindTest(func(v any) bool {
			switch v.(type) {
			case string, []any, Tuple, *Dict, Undefined:
				return true
			}
			return false
		}),
		"callable": kindTest(func(v any) bool { _, ok := v.(function); return ok }),
		"lower":    kindTest(func(v any) bool { t, ok := v.(string); return ok && t == strings.ToLower(t) && t != strings.ToUpper(t) }),
		"upper":    kindTest(func(v any) bool { t, ok := v.(string); return ok && t == strings.ToUpper(t) && t != strings.ToLower(t) }),
		"odd": func(_ *state, v any, _ callArgs) (bool, error) {
			even, err := divides(v, int64(2))
			return err == nil && !even, err
		},
		"even": func(_ *state, v any, _ callArgs) (bool, error) { return divides(v, int64(2)) },
		"divisibleby": func(_ *state, v any, a callArgs) (bool, error) {
			p, err := a.bind("divisibleby", 1, "num")
			if err != nil {
				return false, err
			}
			return divides(v, p[0])
		},
		"in": func(s *state, v any, a callArgs) (bool, error) {
			p, err := a.bind("in", 1, "seq")
			if err != nil {
				return false, err
			}
			return contains(s, p[0], v)
		},
		"sameas": func(_ *state, v any, a callArgs) (bool, error) {
			p, err := a.bind("sameas", 1, "other")
			if err != nil {
				return false, err
			}
			return identical(v, p[0]), nil
		},
		"filter": func(s *state, v any, _ callArgs) (bool, error) { return filters[str(s, v)] != nil, nil },
		"test":   func(s *state, v any, _ callArgs) (bool, error) { return tests[str(s, v)] != nil, nil },
		"eq":     eq, "equalto": eq, "==": eq, "ne": ne, "!=": ne,
		"lt": lt, "lessthan": lt, "<": lt, "le": le, "<=": le, "gt": gt, "greaterthan": gt, ">": gt, "ge": ge, ">=": ge,
	}
}

// identical is Python's "is", as far as it makes sense for values that are never modified.
func identical(a, b any) bool {
	switch a := a.(type) {
	case nil, bool, int64, string, *Dict, *namespace:
		return a == b
	case float64:
		f, ok := b.(float64)
		return ok && (a == f || math.IsNaN(a) && math.IsNaN(f))
	}
	return false
}
