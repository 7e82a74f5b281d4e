package jinja

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Tuple is Python's tuple: a list that prints in parentheses.
type Tuple []any

// markup is text that counts as escaped: what the safe and escape filters make.
type markup string

// Undefined is the value of a name nobody set. It prints as nothing, is false and is an error to look into.
type Undefined struct {
	Name   string
	reason string // why it is undefined, when the name alone does not say
}

func (u Undefined) message() string {
	if u.reason != "" {
		return u.reason
	}
	return u.Name + " is undefined"
}

// Dict is a mapping that keeps the order its keys came in, as Python's does. It is not modified once made.
type Dict struct {
	keys, vals []any
	index      map[any]int // by hash, once there are more than a few keys
}

// fewKeys are searched one after the other, which is faster than a map and much smaller.
const fewKeys = 8

// NewDict makes a dict of alternating keys (strings) and values, in order.
func NewDict(pairs ...any) *Dict {
	d := &Dict{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.set(fromGo(pairs[i]), fromGo(pairs[i+1]))
	}
	return d
}

// find is where the key with this hash is, or -1.
func (d *Dict) find(hash any) int {
	if d.index != nil {
		if i, ok := d.index[hash]; ok {
			return i
		}
		return -1
	}
	text, isText := hash.(string)
	for i, k := range d.keys {
		if t, ok := k.(string); ok {
			if isText && t == text {
				return i
			}
		} else if h, _ := hashOf(nil, k); h == hash {
			return i
		}
	}
	return -1
}

// set is for the making of a dict with keys that are strings, and for namespaces.
func (d *Dict) set(k, v any) {
	hash, _ := hashOf(nil, k)
	d.put(hash, k, v)
}

func (d *Dict) put(hash, k, v any) {
	if i := d.find(hash); i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	_, slow := hash.(tupleHash)
	switch {
	case d.index != nil:
		d.index[hash] = len(d.keys) - 1
	case slow || len(d.keys) > fewKeys:
		d.index = make(map[any]int, 2*len(d.keys))
		for i, k := range d.keys[:len(d.keys)-1] { // none of them a tuple
			hash, _ := hashOf(nil, k)
			d.index[hash] = i
		}
		d.index[hash] = len(d.keys) - 1
	}
}

// Get is the value of a string key.
func (d *Dict) Get(key string) (any, bool) {
	if i := d.find(key); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

type (
	tupleHash string
	bigHash   string
)

// hashOf is a Go map's key that is equal for keys Python takes for one: 1, 1.0 and True. It is false for values that
// cannot be keys. s is nil where v is known not to be a tuple.
func hashOf(s *state, v any) (any, bool) {
	switch v := v.(type) {
	case nil, string, int64:
		return v, true
	case bool:
		return toInt(v), true
	case markup:
		return string(v), true
	case *big.Int:
		return bigHash(v.String()), true
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			if math.Abs(v) < 1<<62 {
				return int64(v), true
			}
			n, _ := big.NewFloat(v).Int(nil)
			return bigHash(n.String()), true
		}
		return v, true
	case Undefined:
		return Undefined{}, true
	case Tuple:
		b := buffer{s: s}
		ok := b.hash(v)
		return tupleHash(b.String()), ok
	case *rangeValue, *namespace, *loop, *macro, *cycler, *function, *generator:
		return v, true
	}
	return nil, false
}

// hash writes a text that is the same for equal tuples, and only for them.
func (b *buffer) hash(v Tuple) bool {
	b.s.enter()
	b.put("(")
	for _, x := range v {
		b.s.step()
		if t, ok := x.(Tuple); ok {
			if !b.hash(t) {
				return false
			}
			continue
		}
		h, ok := hashOf(b.s, x)
		if !ok {
			return false
		}
		if t, ok := h.(string); ok {
			b.put("'", strconv.Itoa(len(t)), ":", t)
		} else {
			b.put(fmt.Sprintf("%T:%v,", h, h))
		}
	}
	b.put(")")
	b.s.leave()
	return true
}

// namespace is the one thing templates may write to, through {% set ns.x = … %}.
type namespace struct{ vars *Dict }

// function is anything else a template can call.
type function struct {
	name string
	call func(s *state, a *callArgs) any
}

// cycler is what cycler(…) makes, joiner (a function) what joiner(…) makes.
type cycler struct {
	items Tuple
	at    int
}

// dictView is what keys(), values() and items() return: not a list, and printed as what it is.
type dictView struct {
	of   *Dict
	kind string // "keys", "values" or "items"
}

func (v dictView) at(i int) any {
	switch v.kind {
	case "keys":
		return v.of.keys[i]
	case "values":
		return v.of.vals[i]
	}
	return Tuple{v.of.keys[i], v.of.vals[i]}
}

// group is what groupby makes: a pair whose parts have names.
type group struct {
	grouper any
	list    []any
}

// rangeValue is Python's range, which holds no list.
type rangeValue struct{ start, stop, step, length int64 }

func (r *rangeValue) at(i int64) any { return r.start + i*r.step }

// generator is read once, by whoever gets there first, and always true.
type generator struct{ next iterator }

// iterator yields items until it says false.
type iterator func() (any, bool)

// Size is the bytes of text in v and in all that it holds, as a caller counts them who sets Limits.
func Size(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		for _, x := range v {
			n += 16 + Size(x)
		}
	case *Dict:
		for i, x := range v.vals {
			n += 16 + Size(v.keys[i]) + Size(x)
		}
	case map[string]any:
		for k, x := range v {
			n += 16 + len(k) + Size(x)
		}
	}
	return n
}

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
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(string(v), 10); ok && len(v) <= maxDigits {
			return n
		}
		f, _ := v.Float64()
		return f
	case nil, bool, int64, string, *Dict, Tuple, Undefined, *big.Int:
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
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string, markup:
		return "string"
	case []any:
		return "list"
	case Tuple, *group:
		return "tuple"
	case *Dict:
		return "dict"
	case dictView:
		return "dict_" + v.kind
	case *rangeValue:
		return "range"
	case *generator:
		return "generator"
	case *namespace:
		return "namespace"
	case *loop:
		return "loop"
	case *macro:
		return "macro"
	case *cycler:
		return "cycler"
	case Undefined:
		return "undefined value"
	}
	return "function"
}

// text is the characters of a string, escaped or not.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
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

// sequence is a list's or tuple's items.
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
		return ok && x.length == y.length && (x.length == 0 || x.start == y.start && (x.length == 1 || x.step == y.step))
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
	case *namespace, *loop, *macro, *cycler, *function, *generator:
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

// unordered is what compare says of numbers that are not numbers: no comparison holds.
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

// iterate is what a loop over v sees.
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
