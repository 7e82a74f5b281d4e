package jinja

import (
	"slices"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// callArgs are the evaluated arguments of a call, filter or test.
type callArgs struct {
	list   []any
	names  []string
	values []any
}

var noArgs = &callArgs{}

// byName returns the index of each named argument.
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

func (s *state) args(f *frame, a syntax.Args) *callArgs {
	if a.List == nil && a.Names == nil && a.Star == nil && a.StarStar == nil {
		return noArgs
	}
	c := &callArgs{list: make([]any, len(a.List))}
	for i, x := range a.List {
		c.list[i] = s.eval(f, x)
	}
	if a.Star != nil {
		more := items(s, s.eval(f, a.Star))
		s.charge(len(more) * itemBytes)
		c.list = append(c.list, more...)
	}
	c.names = slices.Clone(a.Names)
	for _, x := range a.Values {
		c.values = append(c.values, s.eval(f, x))
	}
	if a.StarStar != nil {
		d, ok := s.eval(f, a.StarStar).(*Dict)
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

func (s *state) applyFilter(f *frame, c *syntax.FilterCall, v any) any {
	a := s.args(f, c.Args)
	s.line = c.Line
	apply := filters[c.Name]
	if apply == nil {
		s.fail("unknown filter %q", c.Name)
	}
	return apply(s, v, a)
}

func (s *state) applyFilters(f *frame, list []syntax.FilterCall, v any) any {
	for i := range list {
		v = s.applyFilter(f, &list[i], v)
	}
	return v
}
