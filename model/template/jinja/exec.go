package jinja

import "github.com/uma-serve/uma-serve/model/template/jinja/syntax"

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

func (s *state) exec(f *frame, body []syntax.Node) flow {
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
func (s *state) within(sc *syntax.Scope, parent *frame, body []syntax.Node) flow {
	fl := s.exec(s.frame(sc, parent), body)
	s.release(sc)
	return fl
}

// run runs one statement.
func (s *state) run(f *frame, n syntax.Node) flow {
	switch n := n.(type) {
	case *syntax.TextNode:
		s.write(n.Text)
	case *syntax.OutputNode:
		s.line = n.Line
		s.write(s.show(s.eval(f, n.Expr)))
	case *syntax.IfNode:
		if i := s.branch(f, n); i < len(n.Bodies) {
			return s.exec(f, n.Bodies[i])
		}
	case *syntax.ForNode:
		s.line = n.Line
		over := s.eval(f, n.Iter)
		return s.forLoop(f, n, over, 0)
	case *syntax.SetNode:
		return s.set(f, n)
	case *syntax.MacroNode:
		s.charge(frameBytes)
		f.slots[n.Slot] = &macro{n, f, s.autoescape}
	case *syntax.CallNode:
		s.charge(frameBytes)
		caller := &macro{n.Macro, f, s.autoescape}
		if n.Call == nil {
			s.write(s.show(s.callMacro(caller, noArgs)))
			break
		}
		a := s.args(f, n.Call.Args)
		a = &callArgs{a.list, append(a.names, "caller"), append(a.values, caller)}
		s.write(s.show(s.call(n.Call.Line, s.eval(f, n.Call.Fn), a)))
	case *syntax.FilterNode:
		var fl flow
		text := s.capture(func() { fl = s.within(n.Scope, f, n.Body) })
		if fl != flowNext {
			return fl
		}
		s.write(s.show(s.applyFilters(f, n.Filters, s.marked(text))))
	case *syntax.WithNode:
		inner := s.frame(n.Scope, f)
		for i, t := range n.Targets {
			s.line = n.Line
			s.assign(inner, t, s.eval(f, n.Values[i]))
		}
		fl := s.exec(inner, n.Body)
		s.release(n.Scope)
		return fl
	case *syntax.AutoescapeNode:
		before := s.autoescape
		s.autoescape = truth(s.eval(f, n.Value))
		fl := s.within(n.Scope, f, n.Body)
		s.autoescape = before
		return fl
	case *syntax.BlockNode:
		if !n.Scoped {
			f = s.root
		}
		s.within(n.Scope, f, n.Body)
	case *syntax.OtherFile:
		s.line = n.Line
		s.fail("{%% %s %%} is not supported: a chat template is a single file", n.Name)
	case *syntax.LoopControl:
		if n.Stop {
			return flowBreak
		}
		return flowContinue
	}
	return flowNext
}

// branch is the index of the body an if takes; beyond the last when there is none.
func (s *state) branch(f *frame, n *syntax.IfNode) int {
	s.line = n.Line
	for i, c := range n.Conds {
		if truth(s.eval(f, c)) {
			return i
		}
	}
	return len(n.Conds)
}

func (s *state) set(f *frame, n *syntax.SetNode) flow {
	s.line = n.Line
	if n.Value != nil {
		s.spaces(f, n.Target)
		v := s.eval(f, n.Value)
		s.line = n.Line
		s.assign(f, n.Target, v)
		return flowNext
	}
	var fl flow
	text := s.capture(func() { fl = s.within(n.Scope, f, n.Body) })
	if fl == flowNext {
		v := s.applyFilters(f, n.Filters, s.marked(text))
		s.assign(f, n.Target, v)
	}
	return fl
}

// spaces checks, before anything is evaluated, that each attribute is set on a namespace.
func (s *state) spaces(f *frame, t syntax.Target) {
	if t.Space != nil {
		if _, ok := s.eval(f, t.Space).(*namespace); !ok {
			s.fail("cannot set %s.%s: only a namespace's attributes can be set", t.Space.Name, t.Attr)
		}
	}
	for _, x := range t.Tuple {
		s.spaces(f, x)
	}
}

func (s *state) assign(f *frame, t syntax.Target, v any) {
	switch {
	case t.Tuple != nil:
		list := items(s, v)
		if len(list) != len(t.Tuple) {
			s.fail("%d values for %d names", len(list), len(t.Tuple))
		}
		for i, x := range t.Tuple {
			s.assign(f, x, list[i])
		}
	case t.Space != nil:
		s.spaces(f, t)
		ns := s.eval(f, t.Space).(*namespace)
		before := len(ns.vars.keys)
		if ns.vars.set(t.Attr, v); len(ns.vars.keys) > before {
			s.charge(entryBytes)
		}
	default:
		f.slots[t.Slot] = v
	}
}

// assigned returns the values that assign has stored in f, as one value.
func assigned(f *frame, t syntax.Target) any {
	if t.Tuple == nil {
		return f.slots[t.Slot]
	}
	list := make(Tuple, len(t.Tuple))
	for i, x := range t.Tuple {
		list[i] = assigned(f, x)
	}
	return list
}
