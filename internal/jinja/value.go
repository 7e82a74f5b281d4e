package jinja

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tuple is Python's tuple: a list that prints in parentheses.
type Tuple []any

// Undefined is the value of a name nobody set. It prints as nothing, is false and is an error to look into.
type Undefined struct{ Name string }

// Dict is a mapping that keeps the order its keys came in, as Python's does. It is not modified once made.
type Dict struct {
	keys []any
	m    map[any]any
}

// NewDict makes a dict of alternating keys (strings) and values, in order.
func NewDict(pairs ...any) *Dict {
	d := &Dict{m: make(map[any]any, len(pairs)/2)}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.set(fromGo(pairs[i]), fromGo(pairs[i+1]))
	}
	return d
}

func (d *Dict) set(k, v any) {
	if _, ok := d.m[k]; !ok {
		d.keys = append(d.keys, k)
	}
	d.m[k] = v
}

// Get is the value of a string key.
func (d *Dict) Get(key string) (any, bool) { v, ok := d.m[key]; return v, ok }

// key is v as a dict's key: numbers that are equal are one key.
func key(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, int64:
		return v, nil
	case bool:
		return toInt(v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), nil
		}
		return v, nil
	}
	return nil, fmt.Errorf("a %s cannot be a dict's key", typeName(v))
}

// namespace is the one thing templates may write to, through {% set ns.x = … %}.
type namespace struct{ vars map[string]any }

// fromGo converts what a caller passes in: JSON-like Go values.
func fromGo(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case float32:
		return float64(v)
	case float64: // a decoded JSON number; Python would have read 1 as an integer
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
		return v
	case nil, bool, int64, string, *Dict, Tuple, Undefined, function:
		return v
	case []string:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = x
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = fromGo(x)
		}
		return list
	case map[string]any:
		d := NewDict()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			d.set(k, fromGo(v[k]))
		}
		return d
	}
	return fmt.Sprint(v)
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "string"
	case []any:
		return "list"
	case Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *namespace:
		return "namespace"
	case *loop:
		return "loop"
	case Undefined:
		return "undefined value"
	}
	return "function"
}

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
	case []any:
		return len(v) > 0
	case Tuple:
		return len(v) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// number is v as a float64, for values Python counts as numbers. isInt tells ints and bools.
func number(v any) (f float64, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		return float64(toInt(v)), true, true
	case int64:
		return float64(v), true, true
	case float64:
		return v, false, true
	}
	return 0, false, false
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return toInt(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// sequence is a list's or tuple's items.
func sequence(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case Tuple:
		return v, true
	}
	return nil, false
}

func equal(s *state, a, b any) bool {
	s.step()
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return x == y
		}
	}
	if x, _, ok := number(a); ok {
		y, _, ok := number(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case string:
		b, ok := b.(string)
		if !ok || len(a) != len(b) {
			return false
		}
		s.charge(len(a))
		return a == b
	case []any:
		b, ok := b.([]any)
		return ok && equalItems(s, a, b)
	case Tuple:
		b, ok := b.(Tuple)
		return ok && equalItems(s, a, b)
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		defer s.deeper()()
		for _, k := range a.keys {
			if v, ok := b.m[k]; !ok || !equal(s, a.m[k], v) {
				return false
			}
		}
		return true
	case *namespace:
		return any(a) == b
	}
	return false
}

func equalItems(s *state, a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	defer s.deeper()()
	for i := range a {
		if !equal(s, a[i], b[i]) {
			return false
		}
	}
	return true
}

// compare orders numbers, strings and sequences.
func compare(s *state, a, b any) (int, error) {
	s.step()
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return cmp.Compare(x, y), nil
		}
	}
	if x, _, ok := number(a); ok {
		if y, _, ok := number(b); ok {
			return cmp.Compare(x, y), nil
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			s.charge(min(len(x), len(y)))
			return strings.Compare(x, y), nil
		}
	}
	x, ok1 := sequence(a)
	y, ok2 := sequence(b)
	if ok1 && ok2 {
		defer s.deeper()()
		for i := range min(len(x), len(y)) {
			if c, err := compare(s, x[i], y[i]); c != 0 || err != nil {
				return c, err
			}
		}
		return len(x) - len(y), nil
	}
	return 0, fmt.Errorf("a %s and a %s have no order", typeName(a), typeName(b))
}

// str is Python's str(): what a value prints as.
func str(s *state, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Undefined:
		return ""
	}
	var b strings.Builder
	repr(s, &b, v)
	return b.String()
}

// repr is Python's repr().
func repr(s *state, b *strings.Builder, v any) {
	s.step()
	before := b.Len()
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(formatFloat(v))
	case string:
		quote(b, v)
	case Undefined:
		b.WriteString("Undefined")
	case []any:
		reprItems(s, b, "[", v, "]")
		return
	case Tuple:
		end := ")"
		if len(v) == 1 {
			end = ",)"
		}
		reprItems(s, b, "(", v, end)
		return
	case *Dict:
		defer s.deeper()()
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			repr(s, b, k)
			b.WriteString(": ")
			repr(s, b, v.m[k])
		}
		b.WriteByte('}')
		return
	default:
		b.WriteString("<" + typeName(v) + ">")
	}
	s.charge(b.Len() - before)
}

func reprItems(s *state, b *strings.Builder, open string, items []any, end string) {
	defer s.deeper()()
	b.WriteString(open)
	for i, x := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		repr(s, b, x)
	}
	b.WriteString(end)
}

// formatFloat is the shortest form that reads back the same, in Python's layout: exponents from 1e16 and below
// 1e-4.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func quote(b *strings.Builder, s string) {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b.WriteByte(q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteByte(q)
}

// length is Python's len(), strings in characters.
func length(s *state, v any) (int, error) {
	switch v := v.(type) {
	case string:
		s.charge(len(v))
		return utf8.RuneCountInString(v), nil
	case []any:
		return len(v), nil
	case Tuple:
		return len(v), nil
	case *Dict:
		return len(v.keys), nil
	case Undefined:
		return 0, nil
	}
	return 0, fmt.Errorf("a %s has no length", typeName(v))
}

// iterate is the items a loop over v sees.
func iterate(s *state, v any) ([]any, error) {
	switch v := v.(type) {
	case []any:
		return v, nil
	case Tuple:
		return v, nil
	case *Dict:
		return v.keys, nil
	case Undefined:
		return nil, nil
	case string:
		s.charge(len(v) * itemBytes)
		list := make([]any, 0, len(v))
		for _, r := range v {
			list = append(list, string(r))
		}
		return list, nil
	}
	return nil, fmt.Errorf("a %s cannot be looped over", typeName(v))
}

// contains is Python's "a in b".
func contains(s *state, b, a any) (bool, error) {
	switch b := b.(type) {
	case string:
		a, ok := a.(string)
		if !ok {
			return false, fmt.Errorf("only a string can be in a string, not a %s", typeName(a))
		}
		s.charge(len(b))
		return strings.Contains(b, a), nil
	case *Dict:
		k, err := key(a)
		if err != nil {
			return false, err
		}
		_, ok := b.m[k]
		return ok, nil
	}
	items, err := iterate(s, b)
	if err != nil {
		return false, err
	}
	for _, x := range items {
		if equal(s, x, a) {
			return true, nil
		}
	}
	return false, nil
}
