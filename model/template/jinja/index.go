package jinja

import (
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// attr is a.name: a method or attribute first, then a dict's item.
func (s *state) attr(of any, name string) any {
	if d, ok := of.(*Dict); ok && !dictNames[name] && !dunder(name) {
		if i := d.find(name); i >= 0 {
			return d.vals[i]
		}
		return Undefined{Name: name}
	}
	if u, ok := of.(Undefined); ok {
		if u.reason != "" {
			s.fail("%s", u.reason)
		}
		s.fail("%s is undefined, it has no %q", u.Name, name)
	}
	if v, ok := s.member(of, name); ok {
		return v
	}
	return Undefined{Name: name}
}

// item is a[key]: an item first, then, where the key is a string, an attribute.
func (s *state) item(of, key any) any {
	switch v := of.(type) {
	case Undefined:
		if v.reason != "" {
			s.fail("%s", v.reason)
		}
		s.fail("%s is undefined, it has no items", v.Name)
	case *Dict:
		if h, ok := hashOf(s, key); ok {
			if i := v.find(h); i >= 0 {
				return v.vals[i]
			}
		}
	case string:
		if i, ok := integer(key); ok {
			if c, ok := s.character(v, i); ok {
				return c
			}
		}
	case markup:
		if i, ok := integer(key); ok {
			if c, ok := s.character(string(v), i); ok {
				return markup(c)
			}
		}
	case *rangeValue:
		if i, ok := integer(key); ok {
			if i < 0 {
				i += v.length
			}
			if i >= 0 && i < v.length {
				return v.at(i)
			}
		}
	default:
		list, ok := sequence(of)
		if i, isInt := integer(key); ok && isInt {
			if i < 0 {
				i += int64(len(list))
			}
			if i >= 0 && i < int64(len(list)) {
				return list[i]
			}
		}
	}
	name, ok := text(key)
	if !ok {
		return Undefined{Name: "an item of a " + typeName(of)}
	}
	if v, ok := s.member(of, name); ok {
		return v
	}
	return Undefined{Name: name}
}

// character is the i-th character of a string, from the end when i is negative.
func (s *state) character(t string, i int64) (string, bool) {
	s.scan(len(t))
	n := int64(utf8.RuneCountInString(t))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return "", false
	}
	at := offset(t, int(i))
	_, size := utf8.DecodeRuneInString(t[at:])
	return t[at : at+size], true
}

// offset returns the byte at which the i-th character of t begins; len(t) beyond the last.
func offset(t string, i int) int {
	at := 0
	for ; i > 0 && at < len(t); i-- {
		if t[at] < utf8.RuneSelf {
			at++
			continue
		}
		_, n := utf8.DecodeRuneInString(t[at:])
		at += n
	}
	return at
}

func (s *state) slice(f *frame, e *syntax.SliceExpr) any {
	of := s.eval(f, e.Of)
	bound := func(x syntax.Expr) *int64 {
		if x == nil {
			return nil
		}
		v := s.eval(f, x)
		s.line = e.Line
		if v == nil {
			return nil
		}
		i, ok := integer(v)
		if !ok {
			s.fail("a slice's bounds are ints, not a %s", typeName(v))
		}
		return &i
	}
	start, stop, step := bound(e.Start), bound(e.Stop), bound(e.Step)
	s.line = e.Line
	if step != nil && *step == 0 {
		s.fail("a slice's step cannot be 0")
	}
	switch v := of.(type) {
	case string:
		return s.substring(v, start, stop, step)
	case markup:
		return markup(s.substring(string(v), start, stop, step))
	case *rangeValue:
		from, by, n := indices(v.length, start, stop, step)
		return &rangeValue{v.start + from*v.step, v.start + (from+n*by)*v.step, v.step * by, n}
	case Undefined:
		s.fail("%s and cannot be sliced", v.message())
	}
	list, ok := sequence(of)
	if !ok {
		s.fail("a %s cannot be sliced", typeName(of))
	}
	from, by, n := indices(int64(len(list)), start, stop, step)
	if by == 1 { // lists are never modified, so that a slice can share its items
		list = list[from : from+n : from+n]
	} else {
		s.charge(int(n) * itemBytes)
		picked := make([]any, n)
		for i := range picked {
			picked[i] = list[from+int64(i)*by]
		}
		list = picked
	}
	if _, ok := of.([]any); ok {
		return list
	}
	return Tuple(list)
}

// substring is a slice of a string, by characters.
func (s *state) substring(t string, start, stop, step *int64) string {
	s.scan(2 * len(t))
	from, by, n := indices(int64(utf8.RuneCountInString(t)), start, stop, step)
	if by == 1 {
		at := offset(t, int(from))
		return t[at : at+offset(t[at:], int(n))]
	}
	s.charge(6 * len(t)) // four bytes for each character while it is taken apart
	s.scan(8 * len(t))
	runes := []rune(t)
	var b strings.Builder
	for i := range n {
		b.WriteRune(runes[from+i*by])
	}
	return b.String()
}

// indices returns the first of the positions a Python slice selects from size items, the distance to the next, and
// their number (the rules of slice.indices).
func indices(size int64, start, stop, step *int64) (from, by, n int64) {
	by = 1
	if step != nil {
		by = max(min(*step, size+1), -size-1)
	}
	clamp := func(p *int64, absent, low, high int64) int64 {
		if p == nil {
			return absent
		}
		i := *p
		if i < 0 {
			i = max(i, -size-1) + size
		}
		return max(min(i, high), low)
	}
	if by > 0 {
		from = clamp(start, 0, 0, size)
		return from, by, max(0, (clamp(stop, size, 0, size)-from+by-1)/by)
	}
	from = clamp(start, size-1, -1, size-1)
	return from, by, max(0, (from-clamp(stop, -1, -1, size-1)-by-1)/-by)
}
