package jinja

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// holds is a comparison's result.
func (s *state) holds(op string, a, b any) bool {
	switch op {
	case "==":
		return equal(s, a, b)
	case "!=":
		return !equal(s, a, b)
	case "in":
		return contains(s, b, a)
	case "not in":
		return !contains(s, b, a)
	}
	c := compare(s, a, b)
	switch op {
	case "<":
		return c == -1
	case "<=":
		return c == -1 || c == 0
	case ">":
		return c == 1
	}
	return c == 1 || c == 0
}

func (s *state) concat(f *frame, e *syntax.ConcatExpr) any {
	t := str(s, s.eval(f, e.Items[0]))
	for _, x := range e.Items[1:] {
		t = s.extend(t, str(s, s.eval(f, x)))
	}
	return t
}

// extend is t with more behind it. Templates that build their text in a variable, part by part, would take time with
// the square of its length: the text that grew last grows in place, where its beginning is not written again.
func (s *state) extend(t, more string) string {
	const long = 256
	if len(t) < long {
		s.charge(len(t) + len(more))
		return t + more
	}
	if s.tail.Len() != len(t) || s.tail.String() != t { // one and the same text is found equal without being read
		s.scan(len(t))
		s.charge(2 * len(t))
		s.tail = strings.Builder{}
		s.tail.WriteString(t)
	}
	s.grow(&s.tail, len(more))
	s.tail.WriteString(more)
	return s.tail.String()
}

func (s *state) binary(op string, a, b any) any {
	if _, ok := text(a); ok && op == "%" {
		s.fail("the formats of %% are not supported: join the parts with ~, or use .format()")
	}
	for _, v := range [2]any{a, b} {
		if u, ok := v.(Undefined); ok {
			if u.reason != "" {
				s.fail("%s", u.reason)
			}
			s.fail("%s is undefined: cannot use it with %s", u.Name, op)
		}
	}
	if _, ok := number(a); ok {
		if _, ok := number(b); ok {
			return s.arithmetic(op, a, b)
		}
	}
	switch op {
	case "+":
		if v, ok := s.add(a, b); ok {
			return v
		}
	case "*":
		if n, ok := integer(a); ok {
			if v, ok := s.times(b, n); ok {
				return v
			}
		} else if n, ok := integer(b); ok {
			if v, ok := s.times(a, n); ok {
				return v
			}
		}
	}
	s.fail("%s does not work between a %s and a %s", op, typeName(a), typeName(b))
	return nil
}

// add joins two strings, lists or tuples. A plain string is escaped when it is joined to markup.
func (s *state) add(a, b any) (any, bool) {
	x, ok1 := text(a)
	y, ok2 := text(b)
	if ok1 && ok2 {
		_, m1 := a.(markup)
		_, m2 := b.(markup)
		if m1 || m2 {
			x, y = string(escape(s, a)), string(escape(s, b))
		}
		t := s.extend(x, y)
		if m1 || m2 {
			return markup(t), true
		}
		return t, true
	}
	l, ok1 := sequence(a)
	r, ok2 := sequence(b)
	_, list1 := a.([]any)
	_, list2 := b.([]any)
	if !ok1 || !ok2 || list1 != list2 {
		return nil, false
	}
	s.charge((len(l) + len(r)) * itemBytes)
	all := append(append(make([]any, 0, len(l)+len(r)), l...), r...)
	if list1 {
		return all, true
	}
	return Tuple(all), true
}

// times repeats a string, list or tuple.
func (s *state) times(v any, n int64) (any, bool) {
	count := int(min(max(n, 0), 1<<40))
	switch v := v.(type) {
	case string:
		return s.repeat(v, count), true
	case markup:
		return markup(s.repeat(string(v), count)), true
	}
	list, ok := sequence(v)
	if !ok {
		return nil, false
	}
	s.chargeProduct(count, len(list)*itemBytes)
	if len(list) > 0 {
		list = slices.Repeat(list, count)
	}
	if _, ok := v.([]any); ok {
		return list, true
	}
	return Tuple(list), true
}

func (s *state) repeat(t string, count int) string {
	if t == "" || count <= 0 {
		return ""
	}
	s.chargeProduct(count, len(t))
	return strings.Repeat(t, count)
}
