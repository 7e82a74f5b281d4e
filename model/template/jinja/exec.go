package jinja

const (
	itemBytes  = 32 // one list item: an interface and what it points to
	entryBytes = 96 // one dict entry: key, value and their place in the index
	frameBytes = 96 // a scope, a loop or a function, without its values
)

// flow is the kind of a body's end.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

func (s *state) exec(f *frame, body []node) flow {
	s.enter()
	for _, n := range body {
		s.step()
		if fl := s.run(f, n); fl != flowNext {
			s.leave()
			return fl
		}
	}
	s.leave()
	return flowNext
}

// within runs a body in a new scope.
func (s *state) within(sc *scope, parent *frame, body []node) flow {
	fl := s.exec(s.frame(sc, parent), body)
	s.release(sc)
	return fl
}

// run runs one statement.
func (s *state) run(f *frame, n node) flow {
	switch n := n.(type) {
	case *textNode:
		s.write(n.text)
	case *outputNode:
		s.line = n.line
		s.write(s.show(s.eval(f, n.expr)))
	case *ifNode:
		if i := s.branch(f, n); i < len(n.bodies) {
			return s.exec(f, n.bodies[i])
		}
	case *forNode:
		s.line = n.line
		over := s.eval(f, n.iter)
		return s.forLoop(f, n, over, 0)
	case *setNode:
		return s.set(f, n)
	case *macroNode:
		s.charge(frameBytes)
		f.slots[n.slot] = &macro{n, f, s.autoescape}
	case *callNode:
		s.charge(frameBytes)
		caller := &macro{n.macro, f, s.autoescape}
		if n.call == nil {
			s.write(s.show(s.callMacro(caller, noArgs)))
			break
		}
		a := s.args(f, n.call.args)
		a = &callArgs{a.list, append(a.names, "caller"), append(a.values, caller)}
		s.write(s.show(s.call(n.call.line, s.eval(f, n.call.fn), a)))
	case *filterNode:
		var fl flow
		text := s.capture(func() { fl = s.within(n.scope, f, n.body) })
		if fl != flowNext {
			return fl
		}
		s.write(s.show(s.applyFilters(f, n.filters, s.marked(text))))
	case *withNode:
		inner := s.frame(n.scope, f)
		for i, t := range n.targets {
			s.line = n.line
			s.assign(inner, t, s.eval(f, n.values[i]))
		}
		fl := s.exec(inner, n.body)
		s.release(n.scope)
		return fl
	case *autoescapeNode:
		before := s.autoescape
		s.autoescape = truth(s.eval(f, n.value))
		fl := s.within(n.scope, f, n.body)
		s.autoescape = before
		return fl
	case *blockNode:
		if !n.scoped {
			f = s.root
		}
		s.within(n.scope, f, n.body)
	case *otherFile:
		s.line = n.line
		s.fail("{%% %s %%} is not supported: a chat template is a single file", n.name)
	case *loopControl:
		if n.stop {
			return flowBreak
		}
		return flowContinue
	}
	return flowNext
}

// branch is the index of the body an if takes; beyond the last when there is none.
func (s *state) branch(f *frame, n *ifNode) int {
	s.line = n.line
	for i, c := range n.conds {
		if truth(s.eval(f, c)) {
			return i
		}
	}
	return len(n.conds)
}

func (s *state) set(f *frame, n *setNode) flow {
	s.line = n.line
	if n.value != nil {
		s.spaces(f, n.target)
		v := s.eval(f, n.value)
		s.line = n.line
		s.assign(f, n.target, v)
		return flowNext
	}
	var fl flow
	text := s.capture(func() { fl = s.within(n.scope, f, n.body) })
	if fl == flowNext {
		v := s.applyFilters(f, n.filters, s.marked(text))
		s.assign(f, n.target, v)
	}
	return fl
}

// spaces checks, before anything is evaluated, that what is to get an attribute is a namespace.
func (s *state) spaces(f *frame, t target) {
	if t.space != nil {
		if _, ok := s.eval(f, t.space).(*namespace); !ok {
			s.fail("cannot set %s.%s: only a namespace's attributes can be set", t.space.name, t.attr)
		}
	}
	for _, x := range t.tuple {
		s.spaces(f, x)
	}
}

func (s *state) assign(f *frame, t target, v any) {
	switch {
	case t.tuple != nil:
		list := items(s, v)
		if len(list) != len(t.tuple) {
			s.fail("%d values for %d names", len(list), len(t.tuple))
		}
		for i, x := range t.tuple {
			s.assign(f, x, list[i])
		}
	case t.space != nil:
		s.spaces(f, t)
		ns := s.eval(f, t.space).(*namespace)
		before := len(ns.vars.keys)
		if ns.vars.set(t.attr, v); len(ns.vars.keys) > before {
			s.charge(entryBytes)
		}
	default:
		f.slots[t.slot] = v
	}
}

// assigned returns the values that assign has stored in f, as one value.
func assigned(f *frame, t target) any {
	if t.tuple == nil {
		return f.slots[t.slot]
	}
	list := make(Tuple, len(t.tuple))
	for i, x := range t.tuple {
		list[i] = assigned(f, x)
	}
	return list
}
