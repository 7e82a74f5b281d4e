package jinja

// macro is a macro, or the body of a call block, with the frame it was defined in.
type macro struct {
	node       *macroNode
	defined    *frame
	autoescape bool
}

func (m *macro) attr(name string) (any, bool) {
	n := m.node
	switch name {
	case "name":
		if n.name == "" {
			return nil, true
		}
		return n.name, true
	case "arguments":
		var list Tuple
		for _, p := range n.params {
			list = append(list, p.name)
		}
		return list, true
	case "caller":
		return n.caller >= 0, true
	case "catch_kwargs":
		return n.kwargs >= 0, true
	case "catch_varargs":
		return n.varargs >= 0, true
	case "explicit_caller":
		_, ok := n.scope.slots["caller"]
		return ok && n.caller < 0, true
	}
	return nil, false
}

func (s *state) callMacro(m *macro, a *callArgs) any {
	n := m.node
	f := s.frame(n.scope, m.defined)
	s.scan(128 * len(a.names))
	rest := a.byName()
	take := func(name string) any {
		if i, ok := rest[name]; ok {
			delete(rest, name)
			return a.values[i]
		}
		return unset
	}
	for i, p := range n.params {
		if i < len(a.list) {
			f.slots[p.slot] = a.list[i]
		} else {
			f.slots[p.slot] = take(p.name)
		}
	}
	if n.caller >= 0 {
		caller := take("caller")
		if caller == unset || caller == nil {
			caller = Undefined{Name: "caller"}
		}
		f.slots[n.caller] = caller
	}
	if n.kwargs >= 0 {
		d := NewDict()
		s.charge(len(rest) * entryBytes)
		for i, name := range a.names {
			if _, ok := rest[name]; ok {
				d.set(name, a.values[i])
			}
		}
		f.slots[n.kwargs] = d
	} else {
		for _, name := range a.names {
			if _, ok := rest[name]; ok {
				s.fail("macro %s has no argument %q", n.name, name)
			}
		}
	}
	if n.varargs >= 0 {
		s.charge(len(a.list) * itemBytes)
		f.slots[n.varargs] = Tuple(a.list[min(len(n.params), len(a.list)):])
	} else if len(a.list) > len(n.params) {
		s.fail("macro %s takes at most %d arguments, %d given", n.name, len(n.params), len(a.list))
	}
	for _, p := range n.params {
		switch {
		case f.slots[p.slot] != unset:
		case p.value != nil:
			f.slots[p.slot] = s.eval(f, p.value)
		default:
			f.slots[p.slot] = Undefined{Name: p.name}
		}
	}
	caller := s.autoescape
	s.autoescape = m.autoescape
	text := s.capture(func() { s.exec(f, n.body) })
	s.autoescape = caller
	s.release(n.scope)
	return s.marked(text)
}
