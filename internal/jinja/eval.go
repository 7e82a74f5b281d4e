package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// function is anything a template can call.
type function func(s *state, a callArgs) (any, error)

// callArgs are the evaluated arguments of a call, filter or test.
type callArgs struct {
	list   []any
	names  []string
	values []any
}

// missing stands in bind's result for an argument that was not given.
type missing struct{}

// bind matches arguments to parameter names; the first required ones must be there.
func (a callArgs) bind(fn string, required int, params ...string) ([]any, error) {
	if len(a.list) > len(params) {
		return nil, fmt.Errorf("%s takes at most %d arguments, %d given", fn, len(params), len(a.list))
	}
	v := make([]any, len(params))
	for i := range v {
		v[i] = missing{}
	}
	copy(v, a.list)
	for i, name := range a.names {
		j := slices.Index(params, name)
		if j < 0 {
			return nil, fmt.Errorf("%s has no argument %q", fn, name)
		}
		if j < len(a.list) {
			return nil, fmt.Errorf("%s: argument %q is given twice", fn, name)
		}
		v[j] = a.values[i]
	}
	for i := range required {
		if v[i] == (missing{}) {
			return nil, fmt.Errorf("%s wants an argument %q", fn, params[i])
		}
	}
	return v, nil
}

func (s *state) eval(f *frame, e expr) any {
	s.step()
	defer s.deeper()()
	switch e := e.(type) {
	case *literal:
		return e.value
	case *nameExpr:
		if v, ok := f.get(e.name); ok {
			return v
		}
		return Undefined{e.name}
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
		s.charge(len(e.keys) * 2 * itemBytes)
		d := NewDict()
		for i := range e.keys {
			k, err := key(s.eval(f, e.keys[i]))
			if err != nil {
				s.fail(e.line, err)
			}
			d.set(k, s.eval(f, e.values[i]))
		}
		return d
	case *attrExpr:
		return s.attr(e.line, s.eval(f, e.of), e.name)
	case *itemExpr:
		return s.item(e.line, s.eval(f, e.of), s.eval(f, e.key))
	case *sliceExpr:
		return s.slice(f, e)
	case *callExpr:
		fn := s.eval(f, e.fn)
		return s.call(e.line, fn, s.args(f, e.line, e.args))
	case *filterExpr:
		return s.applyFilters(f, []filterCall{e.call}, s.eval(f, e.of))
	case *testExpr:
		ok, err := tests[e.name](s, s.eval(f, e.of), s.args(f, e.line, e.args))
		if err != nil {
			s.fail(e.line, fmt.Errorf("is %s: %w", e.name, err))
		}
		return ok != e.negate
	case *condExpr:
		switch {
		case truth(s.eval(f, e.cond)):
			return s.eval(f, e.then)
		case e.other != nil:
			return s.eval(f, e.other)
		}
		return Undefined{"the value of an inline if without else"}
	case *notExpr:
		return !truth(s.eval(f, e.of))
	case *signExpr:
		return s.sign(e, s.eval(f, e.of))
	case *logicExpr:
		left := s.eval(f, e.left)
		if truth(left) == e.or {
			return left
		}
		return s.eval(f, e.right)
	case *binaryExpr:
		v, err := s.binary(e.op, s.eval(f, e.left), s.eval(f, e.right))
		if err != nil {
			s.fail(e.line, err)
		}
		return v
	case *compareExpr:
		return s.compareChain(f, e)
	}
	panic(fmt.Sprintf("jinja: unknown expression %T", e))
}

func (s *state) args(f *frame, line int, a args) callArgs {
	var c callArgs
	for _, x := range a.list {
		c.list = append(c.list, s.eval(f, x))
	}
	if a.star != nil {
		more, err := iterate(s, s.eval(f, a.star))
		if err != nil {
			s.fail(line, err)
		}
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
			s.fail(line, errors.New("** wants a dict"))
		}
		for _, k := range d.keys {
			c.names = append(c.names, str(s, k))
			c.values = append(c.values, d.m[k])
		}
	}
	return c
}

func (s *state) call(line int, fn any, a callArgs) any {
	var v any
	var err error
	switch fn := fn.(type) {
	case function:
		v, err = fn(s, a)
	case *loop:
		if fn.call == nil {
			err = errors.New("loop(…) wants a loop declared recursive")
		} else {
			v, err = fn.call(s, a)
		}
	case Undefined:
		err = fmt.Errorf("%s is undefined and cannot be called", fn.Name)
	default:
		err = fmt.Errorf("a %s cannot be called", typeName(fn))
	}
	if err != nil {
		s.fail(line, err)
	}
	return v
}

func (s *state) applyFilters(f *frame, list []filterCall, v any) any {
	for _, c := range list {
		got, err := filters[c.name](s, v, s.args(f, c.line, c.args))
		if err != nil {
			s.fail(c.line, fmt.Errorf("filter %s: %w", c.name, err))
		}
		v = got
	}
	return v
}

// attr is a.name: a method or attribute first, then a dict's item.
func (s *state) attr(line int, of any, name string) any {
	switch v := of.(type) {
	case Undefined:
		s.fail(line, fmt.Errorf("%s is undefined, it has no %q", v.Name, name))
	case *loop:
		if x, ok := v.attr(name); ok {
			return x
		}
	case *namespace:
		if x, ok := v.vars[name]; ok {
			return x
		}
	case *Dict:
		if m := dictMethods[name]; m != nil {
			return bound(m, v)
		}
		if x, ok := v.m[name]; ok {
			return x
		}
	case string:
		if m := strMethods[name]; m != nil {
			return bound(m, v)
		}
	case []any, Tuple:
		if m := listMethods[name]; m != nil {
			items, _ := sequence(v)
			return bound(m, items)
		}
	}
	if slices.Contains(mutators, name) {
		s.fail(line, fmt.Errorf("%q changes a %s, which chat templates may not", name, typeName(of)))
	}
	return Undefined{name}
}

func bound[T any](m func(*state, T, callArgs) (any, error), self T) function {
	return func(s *state, a callArgs) (any, error) { return m(s, self, a) }
}

// item is a[key]: an item first, then (for strings) an attribute.
func (s *state) item(line int, of, k any) any {
	switch v := of.(type) {
	case Undefined:
		s.fail(line, fmt.Errorf("%s is undefined, it has no items", v.Name))
	case *Dict:
		dk, err := key(k)
		if err != nil {
			s.fail(line, err)
		}
		if x, ok := v.m[dk]; ok {
			return x
		}
	case []any, Tuple:
		items, _ := sequence(v)
		if i, ok := integer(k); ok {
			if i < 0 {
				i += int64(len(items))
			}
			if i >= 0 && i < int64(len(items)) {
				return items[i]
			}
			return Undefined{fmt.Sprintf("item %v", k)}
		}
	case string:
		if i, ok := integer(k); ok {
			s.charge(len(v))
			r := []rune(v)
			if i < 0 {
				i += int64(len(r))
			}
			if i >= 0 && i < int64(len(r)) {
				return string(r[i])
			}
			return Undefined{fmt.Sprintf("character %v", k)}
		}
	}
	if name, ok := k.(string); ok {
		return s.attr(line, of, name)
	}
	return Undefined{str(s, k)}
}

func (s *state) slice(f *frame, e *sliceExpr) any {
	of := s.eval(f, e.of)
	bound := func(x expr) *int64 {
		if x == nil {
			return nil
		}
		v := s.eval(f, x)
		if v == nil {
			return nil
		}
		i, ok := integer(v)
		if !ok {
			s.fail(e.line, fmt.Errorf("a slice's bounds are ints, not a %s", typeName(v)))
		}
		return &i
	}
	start, stop, step := bound(e.start), bound(e.stop), bound(e.step)
	if step != nil && *step == 0 {
		s.fail(e.line, errors.New("a slice's step cannot be 0"))
	}
	switch v := of.(type) {
	case string:
		s.charge(len(v))
		r := []rune(v)
		var b strings.Builder
		for _, i := range indices(len(r), start, stop, step) {
			b.WriteRune(r[i])
		}
		return b.String()
	case []any, Tuple:
		items, _ := sequence(v)
		s.charge(len(items) * itemBytes)
		var list []any
		for _, i := range indices(len(items), start, stop, step) {
			list = append(list, items[i])
		}
		if _, ok := v.(Tuple); ok {
			return Tuple(list)
		}
		return list
	case Undefined:
		s.fail(e.line, fmt.Errorf("%s is undefined and cannot be sliced", v.Name))
	}
	s.fail(e.line, fmt.Errorf("a %s cannot be sliced", typeName(of)))
	return nil
}

// indices are the positions a Python slice selects from n items (the rules of slice.indices).
func indices(n int, start, stop, step *int64) (list []int) {
	by, size := int64(1), int64(n)
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
		for i, end := clamp(start, 0, 0, size), clamp(stop, size, 0, size); i < end; i += by {
			list = append(list, int(i))
		}
		return list
	}
	for i, end := clamp(start, size-1, -1, size-1), clamp(stop, -1, -1, size-1); i > end; i += by {
		list = append(list, int(i))
	}
	return list
}

func (s *state) sign(e *signExpr, v any) any {
	if i, ok := integer(v); ok {
		if e.neg {
			return -i
		}
		return i
	}
	if x, ok := v.(float64); ok {
		if e.neg {
			return -x
		}
		return x
	}
	s.fail(e.line, fmt.Errorf("a %s has no sign", typeName(v)))
	return nil
}

func (s *state) compareChain(f *frame, e *compareExpr) any {
	left := s.eval(f, e.first)
	for i, op := range e.ops {
		right := s.eval(f, e.rest[i])
		var ok bool
		var err error
		switch op {
		case "==", "!=":
			ok = equal(s, left, right) == (op == "==")
		case "in", "not in":
			ok, err = contains(s, right, left)
			ok = ok == (op == "in")
		default:
			var c int
			c, err = compare(s, left, right)
			ok = op == "<" && c < 0 || op == "<=" && c <= 0 || op == ">" && c > 0 || op == ">=" && c >= 0
		}
		if err != nil {
			s.fail(e.line, err)
		}
		if !ok {
			return false
		}
		left = right
	}
	return true
}

var errOverflow = errors.New("a number leaves the range of 64-bit integers")

func (s *state) binary(op string, a, b any) (any, error) {
	for _, v := range []any{a, b} {
		if u, ok := v.(Undefined); ok && op != "~" {
			return nil, fmt.Errorf("%s is undefined: cannot use it with %s", u.Name, op)
		}
	}
	if op == "~" {
		x, y := str(s, a), str(s, b)
		s.charge(len(x) + len(y))
		return x + y, nil
	}
	if x, ok := a.(string); ok {
		switch y := b.(type) {
		case string:
			if op == "+" {
				s.charge(len(x) + len(y))
				return x + y, nil
			}
		case int64:
			if op == "*" {
				return s.repeat(x, y)
			}
		}
		if op == "%" {
			return percent(s, x, b)
		}
	}
	if y, ok := b.(string); ok && op == "*" {
		if x, ok := a.(int64); ok {
			return s.repeat(y, x)
		}
	}
	if op == "+" {
		if x, ok := a.([]any); ok {
			if y, ok := b.([]any); ok {
				return s.joinLists(x, y), nil
			}
		}
		if x, ok := a.(Tuple); ok {
			if y, ok := b.(Tuple); ok {
				return Tuple(s.joinLists(x, y)), nil
			}
		}
	}
	if op == "*" {
		if x, ok := a.([]any); ok {
			if n, ok := b.(int64); ok {
				if n = max(n, 0); n > int64(s.limits.Bytes) {
					n = int64(s.limits.Bytes)
				}
				s.charge(min(len(x)*itemBytes, 1<<31) * int(n))
				return slices.Repeat(x, int(n)), nil
			}
		}
	}
	x, xInt, ok1 := number(a)
	y, yInt, ok2 := number(b)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s does not work between a %s and a %s", op, typeName(a), typeName(b))
	}
	if xInt && yInt && op != "/" {
		i, _ := integer(a)
		j, _ := integer(b)
		return intMath(op, i, j)
	}
	return floatMath(op, x, y)
}

func (s *state) repeat(x string, n int64) (any, error) {
	n = max(n, 0)
	if len(x) == 0 {
		return "", nil
	}
	if n > int64(s.limits.Bytes/len(x)) {
		s.limit("bytes of work", s.limits.Bytes)
	}
	s.charge(len(x) * int(n))
	return strings.Repeat(x, int(n)), nil
}

func (s *state) joinLists(x, y []any) []any {
	s.charge((len(x) + len(y)) * itemBytes)
	return append(append(make([]any, 0, len(x)+len(y)), x...), y...)
}

func intMath(op string, i, j int64) (any, error) {
	switch op {
	case "+":
		if sum := i + j; (sum > i) == (j > 0) {
			return sum, nil
		}
		return nil, errOverflow
	case "-":
		if diff := i - j; (diff < i) == (j > 0) {
			return diff, nil
		}
		return nil, errOverflow
	case "*":
		if p := i * j; i == 0 || p/i == j && !(i == -1 && j == math.MinInt64) {
			return p, nil
		}
		return nil, errOverflow
	case "//", "%":
		if j == 0 {
			return nil, errors.New("division by zero")
		}
		q, r := i/j, i%j
		if r != 0 && (r < 0) != (j < 0) {
			q, r = q-1, r+j
		}
		if op == "//" {
			return q, nil
		}
		return r, nil
	}
	// **
	if j < 0 {
		return floatMath(op, float64(i), float64(j))
	}
	if math.Abs(math.Pow(float64(i), float64(j))) >= 1<<62 {
		return nil, errOverflow
	}
	p := int64(1)
	for ; j > 0; j >>= 1 { // square and multiply; i may wrap after its last use
		if j&1 == 1 {
			p *= i
		}
		i *= i
	}
	return p, nil
}

func floatMath(op string, x, y float64) (any, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return math.Pow(x, y), nil
	}
	if y == 0 {
		return nil, errors.New("division by zero")
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	r := math.Mod(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r, nil
}
