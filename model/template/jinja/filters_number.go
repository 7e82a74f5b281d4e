package jinja

import "math"

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
	scale := s.power(10, places)
	scaled := s.arithmetic("*", v, scale)
	if f, ok := scaled.(float64); ok {
		scaled = truncate(s, to(f))
	}
	return s.arithmetic("/", scaled, scale)
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
