package jinja

import (
	"fmt"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// eval is an expression's value.
func (s *state) eval(f *frame, e syntax.Expr) any {
	switch e := e.(type) { // the two most frequent ones nest no further
	case *syntax.Literal:
		s.step()
		return e.Value
	case *syntax.NameExpr:
		s.step()
		return s.lookup(f, e)
	}
	s.step()
	s.enter()
	v := s.compute(f, e)
	s.leave()
	return v
}

func (s *state) lookup(f *frame, e *syntax.NameExpr) any {
	hops := 0
	for _, p := range e.Places {
		for ; hops < p.Hops; hops++ {
			f = f.parent
		}
		if v := f.slots[p.Slot]; v != unset {
			return v
		}
	}
	if e.Name == "self" {
		return self{}
	}
	return s.globals[e.Global]
}

func (s *state) compute(f *frame, e syntax.Expr) any {
	switch e := e.(type) {
	case *syntax.AttrExpr:
		of := s.eval(f, e.Of)
		s.line = e.Line
		return s.attr(of, e.Name)
	case *syntax.ItemExpr:
		of, key := s.eval(f, e.Of), s.eval(f, e.Key)
		s.line = e.Line
		return s.item(of, key)
	case *syntax.CallExpr:
		if a, ok := e.Fn.(*syntax.AttrExpr); ok { // a method needs no function value
			of := s.eval(f, a.Of)
			s.line = a.Line
			if m := methodOf(of, a.Name); m != nil {
				args := s.args(f, e.Args)
				s.line = e.Line
				return m(s, of, args)
			}
			fn := s.attr(of, a.Name)
			return s.call(e.Line, fn, s.args(f, e.Args))
		}
		fn := s.eval(f, e.Fn)
		return s.call(e.Line, fn, s.args(f, e.Args))
	case *syntax.FilterExpr:
		return s.applyFilter(f, &e.Call, s.eval(f, e.Of))
	case *syntax.TestExpr:
		v := s.eval(f, e.Of)
		a := s.args(f, e.Args)
		s.line = e.Line
		t := tests[e.Name]
		if t == nil {
			s.fail("unknown test %q", e.Name)
		}
		return t(s, v, a) != e.Negate
	case *syntax.CondExpr:
		switch {
		case truth(s.eval(f, e.Cond)):
			return s.eval(f, e.Then)
		case e.Other != nil:
			return s.eval(f, e.Other)
		}
		return Undefined{Name: "the value of an inline if without else"}
	case *syntax.NotExpr:
		return !truth(s.eval(f, e.Of))
	case *syntax.LogicExpr:
		left := s.eval(f, e.Left)
		if truth(left) == e.Or {
			return left
		}
		return s.eval(f, e.Right)
	case *syntax.CompareExpr:
		left := s.eval(f, e.First)
		for i, op := range e.Ops {
			right := s.eval(f, e.Rest[i])
			s.line = e.Line
			if !s.holds(op, left, right) {
				return false
			}
			left = right
		}
		return true
	case *syntax.BinaryExpr:
		left, right := s.eval(f, e.Left), s.eval(f, e.Right)
		s.line = e.Line
		return s.binary(e.Op, left, right)
	case *syntax.ConcatExpr:
		return s.concat(f, e)
	case *syntax.SignExpr:
		v := s.eval(f, e.Of)
		s.line = e.Line
		return s.sign(e.Neg, v)
	case *syntax.ListExpr:
		s.charge(len(e.Items) * itemBytes)
		list := make([]any, len(e.Items))
		for i, x := range e.Items {
			list[i] = s.eval(f, x)
		}
		if e.Tuple {
			return Tuple(list)
		}
		return list
	case *syntax.DictExpr:
		s.charge(len(e.Keys) * entryBytes)
		d := NewDict()
		for i := range e.Keys {
			k := s.eval(f, e.Keys[i])
			s.line = e.Line
			s.put(d, k, s.eval(f, e.Values[i]))
		}
		return d
	case *syntax.SliceExpr:
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
