package jinja

import (
	"fmt"
)

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
