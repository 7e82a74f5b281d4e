package jinja

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// callArgs are the evaluated arguments of a call, filter or test.
type callArgs struct {
	list   []any
	names  []string
	values []any
}

var noArgs = &callArgs{}

// byName is where each named argument is.
func (a *callArgs) byName() map[string]int {
	if a.names == nil {
		return nil
	}
	m := make(map[string]int, len(a.names))
	for i, name := range a.names {
		m[name] = i
	}
	return m
}

// bind matches arguments to parameter names; the first required ones must be there. What is not given is unset.
func (a *callArgs) bind(s *state, fn string, required int, params ...string) []any {
	if len(a.list) > len(params) {
		s.fail("%s takes at most %d arguments, %d given", fn, len(params), len(a.list))
	}
	v := make([]any, len(params))
	for i := copy(v, a.list); i < len(v); i++ {
		v[i] = unset
	}
	for i, name := range a.names {
		j := slices.Index(params, name)
		if j < 0 {
			s.fail("%s has no argument %q", fn, name)
		}
		if j < len(a.list) {
			s.fail("%s: argument %q is given twice", fn, name)
		}
		v[j] = a.values[i]
	}
	for i := range required {
		if v[i] == unset {
			s.fail("%s wants an argument %q", fn, params[i])
		}
	}
	return v
}

// positional is bind for functions whose arguments have no names.
func (a *callArgs) positional(s *state, fn string, required, most int) []any {
	if a.names != nil {
		s.fail("%s takes no named arguments", fn)
	}
	if len(a.list) < required || len(a.list) > most {
		s.fail("%s takes %d to %d arguments, %d given", fn, required, most, len(a.list))
	}
	v := make([]any, most)
	for i := copy(v, a.list); i < len(v); i++ {
		v[i] = unset
	}
	return v
}

// eval is an expression's value.
func (s *state) eval(f *frame, e expr) any {
	switch e := e.(type) { // the two most frequent ones nest no further
	case *literal:
		s.step()
		return e.value
	case *nameExpr:
		s.step()
		return s.lookup(f, e)
	}
	s.step()
	s.enter()
	v := s.compute(f, e)
	s.leave()
	return v
}

func (s *state) lookup(f *frame, e *nameExpr) any {
	hops := 0
	for _, p := range e.places {
		for ; hops < p.hops; hops++ {
			f = f.parent
		}
		if v := f.slots[p.slot]; v != unset {
			return v
		}
	}
	if e.name == "self" {
		return self{}
	}
	return s.globals[e.global]
}

func (s *state) compute(f *frame, e expr) any {
	switch e := e.(type) {
	case *attrExpr:
		of := s.eval(f, e.of)
		s.line = e.line
		return s.attr(of, e.name)
	case *itemExpr:
		of, key := s.eval(f, e.of), s.eval(f, e.key)
		s.line = e.line
		return s.item(of, key)
	case *callExpr:
		if a, ok := e.fn.(*attrExpr); ok { // a method needs no function value
			of := s.eval(f, a.of)
			s.line = a.line
			if m := methodOf(of, a.name); m != nil {
				args := s.args(f, e.args)
				s.line = e.line
				return m(s, of, args)
			}
			fn := s.attr(of, a.name)
			return s.call(e.line, fn, s.args(f, e.args))
		}
		fn := s.eval(f, e.fn)
		return s.call(e.line, fn, s.args(f, e.args))
	case *filterExpr:
		return s.applyFilter(f, &e.call, s.eval(f, e.of))
	case *testExpr:
		v := s.eval(f, e.of)
		a := s.args(f, e.args)
		s.line = e.line
		if e.test == nil {
			s.fail("unknown test %q", e.name)
		}
		return e.test(s, v, a) != e.negate
	case *condExpr:
		switch {
		case truth(s.eval(f, e.cond)):
			return s.eval(f, e.then)
		case e.other != nil:
			return s.eval(f, e.other)
		}
		return Undefined{Name: "the value of an inline if without else"}
	case *notExpr:
		return !truth(s.eval(f, e.of))
	case *logicExpr:
		left := s.eval(f, e.left)
		if truth(left) == e.or {
			return left
		}
		return s.eval(f, e.right)
	case *compareExpr:
		left := s.eval(f, e.first)
		for i, op := range e.ops {
			right := s.eval(f, e.rest[i])
			s.line = e.line
			if !s.holds(op, left, right) {
				return false
			}
			left = right
		}
		return true
	case *binaryExpr:
		left, right := s.eval(f, e.left), s.eval(f, e.right)
		s.line = e.line
		return s.binary(e.op, left, right)
	case *concatExpr:
		return s.concat(f, e)
	case *signExpr:
		v := s.eval(f, e.of)
		s.line = e.line
		return s.sign(e.neg, v)
	case *listExpr:
		s.charge(len(e.items) * itemBytes)
		list := make([]any, len(e.items))
		for i, x := range e.items {
			list[i] = s.eval(f, x)
		}
		if e.tuple {
			return Tuple(list)
		}
		return list
	case *dictExpr:
		s.charge(len(e.keys) * entryBytes)
		d := NewDict()
		for i := range e.keys {
			k := s.eval(f, e.keys[i])
			s.line = e.line
			s.put(d, k, s.eval(f, e.values[i]))
		}
		return d
	case *sliceExpr:
		return s.slice(f, e)
	}
	panic(fmt.Sprintf("unknown expression %T", e))
}

// put is Python's d[k] = v for a dict in the making.
func (s *state) put(d *Dict, k, v any) {
	hash, ok := hashOf(s, k)
	if !ok {
		s.fail("a %s cannot be a dict's key", typeName(k))
	}
	d.put(hash, k, v)
}

func (s *state) args(f *frame, a args) *callArgs {
	if a.list == nil && a.names == nil && a.star == nil && a.starStar == nil {
		return noArgs
	}
	c := &callArgs{list: make([]any, len(a.list))}
	for i, x := range a.list {
		c.list[i] = s.eval(f, x)
	}
	if a.star != nil {
		more := items(s, s.eval(f, a.star))
		s.charge(len(more) * itemBytes)
		c.list = append(c.list, more...)
	}
	c.names = slices.Clone(a.names)
	for _, x := range a.values {
		c.values = append(c.values, s.eval(f, x))
	}
	if a.starStar != nil {
		d, ok := s.eval(f, a.starStar).(*Dict)
		if !ok {
			s.fail("** wants a dict")
		}
		seen := c.byName()
		s.charge(len(d.keys) * entryBytes)
		for i, k := range d.keys {
			name, ok := text(k)
			if _, twice := seen[name]; !ok || twice {
				s.fail("** wants names that are strings and not given before, not %s", str(s, k))
			}
			c.names = append(c.names, name)
			c.values = append(c.values, d.vals[i])
		}
	}
	return c
}

func (s *state) call(line int, fn any, a *callArgs) any {
	s.line = line
	switch fn := fn.(type) {
	case *function:
		return fn.call(s, a)
	case *macro:
		return s.callMacro(fn, a)
	case *loop:
		v := a.bind(s, "loop", 1, "iterable")
		if fn.recurse == nil {
			s.fail("loop(…) wants a loop declared recursive")
		}
		return fn.recurse(v[0], fn.depth0+1)
	case Undefined:
		if fn.reason != "" {
			s.fail("%s", fn.reason)
		}
		s.fail("%s is undefined and cannot be called", fn.Name)
	}
	s.fail("a %s cannot be called", typeName(fn))
	return nil
}

func (s *state) applyFilter(f *frame, c *filterCall, v any) any {
	a := s.args(f, c.args)
	s.line = c.line
	if c.filter == nil {
		s.fail("unknown filter %q", c.name)
	}
	return c.filter(s, v, a)
}

func (s *state) applyFilters(f *frame, list []filterCall, v any) any {
	for i := range list {
		v = s.applyFilter(f, &list[i], v)
	}
	return v
}

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

// offset is the byte at which the i-th character of t begins; len(t) beyond the last.
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

func (s *state) slice(f *frame, e *sliceExpr) any {
	of := s.eval(f, e.of)
	bound := func(x expr) *int64 {
		if x == nil {
			return nil
		}
		v := s.eval(f, x)
		s.line = e.line
		if v == nil {
			return nil
		}
		i, ok := integer(v)
		if !ok {
			s.fail("a slice's bounds are ints, not a %s", typeName(v))
		}
		return &i
	}
	start, stop, step := bound(e.start), bound(e.stop), bound(e.step)
	s.line = e.line
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

// indices is the first of the positions a Python slice selects from size items, the distance to the next, and their
// number (the rules of slice.indices).
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

func (s *state) concat(f *frame, e *concatExpr) any {
	t := str(s, s.eval(f, e.items[0]))
	for _, x := range e.items[1:] {
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
	if t, ok := text(a); ok && op == "%" {
		if m, ok := a.(markup); ok {
			return markup(percent(s, string(m), b, true))
		}
		return percent(s, t, b, false)
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
