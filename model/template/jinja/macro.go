package jinja

import "github.com/uma-serve/uma-serve/model/template/jinja/syntax"

// macro is a macro, or the body of a call block, with the frame it was defined in.
type macro struct {
	node       *syntax.MacroNode
	defined    *frame
	autoescape bool
}

func (m *macro) attr(name string) (any, bool) {
	n := m.node
	switch name {
	case "name":
		if n.Name == "" {
			return nil, true
		}
		return n.Name, true
	case "arguments":
		var list Tuple
		for _, p := range n.Params {
			list = append(list, p.Name)
		}
		return list, true
	case "caller":
		return n.Caller >= 0, true
	case "catch_kwargs":
		return n.Kwargs >= 0, true
	case "catch_varargs":
		return n.Varargs >= 0, true
	case "explicit_caller":
		_, ok := n.Scope.Slots["caller"]
		return ok && n.Caller < 0, true
	}
	return nil, false
}

func (s *state) callMacro(m *macro, a *callArgs) any {
	n := m.node
	f := s.frame(n.Scope, m.defined)
	s.scan(128 * len(a.names))
	rest := a.byName()
	take := func(name string) any {
		if i, ok := rest[name]; ok {
			delete(rest, name)
			return a.values[i]
		}
		return unset
	}
	for i, p := range n.Params {
		if i < len(a.list) {
			f.slots[p.Slot] = a.list[i]
		} else {
			f.slots[p.Slot] = take(p.Name)
		}
	}
	if n.Caller >= 0 {
		caller := take("caller")
		if caller == unset || caller == nil {
			caller = Undefined{Name: "caller"}
		}
		f.slots[n.Caller] = caller
	}
	if n.Kwargs >= 0 {
		d := NewDict()
		s.charge(len(rest) * entryBytes)
		for i, name := range a.names {
			if _, ok := rest[name]; ok {
				d.set(name, a.values[i])
			}
		}
		f.slots[n.Kwargs] = d
	} else {
		for _, name := range a.names {
			if _, ok := rest[name]; ok {
				s.fail("macro %s has no argument %q", n.Name, name)
			}
		}
	}
	if n.Varargs >= 0 {
		s.charge(len(a.list) * itemBytes)
		f.slots[n.Varargs] = Tuple(a.list[min(len(n.Params), len(a.list)):])
	} else if len(a.list) > len(n.Params) {
		s.fail("macro %s takes at most %d arguments, %d given", n.Name, len(n.Params), len(a.list))
	}
	for _, p := range n.Params {
		switch {
		case f.slots[p.Slot] != unset:
		case p.Value != nil:
			f.slots[p.Slot] = s.eval(f, p.Value)
		default:
			f.slots[p.Slot] = Undefined{Name: p.Name}
		}
	}
	caller := s.autoescape
	s.autoescape = m.autoescape
	text := s.capture(func() { s.exec(f, n.Body) })
	s.autoescape = caller
	s.release(n.Scope)
	return s.marked(text)
}
