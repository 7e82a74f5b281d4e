package jinja

import "github.com/uma-serve/uma-serve/model/template/jinja/syntax"

// loop is the "loop" variable, which reads one item ahead only when the template asks what comes next.
type loop struct {
	s             *state
	source        any // the value of the loop, where that has a length
	next          iterator
	index0        int
	length        int // -1 until it is known
	depth0        int
	ahead         any // unset, or the item after this one
	current, last any
	changed       Tuple
	recurse       func(v any, depth int) string // of a loop declared recursive
}

func (l *loop) advance() (any, bool) {
	x := l.ahead
	if l.ahead = unset; x == unset {
		var ok bool
		if x, ok = l.next(); !ok {
			return nil, false
		}
	}
	l.index0++
	l.last, l.current = l.current, x
	return x, true
}

func (l *loop) peek() any {
	if l.ahead == unset {
		if x, ok := l.next(); ok {
			l.ahead = x
		}
	}
	return l.ahead
}

func (l *loop) size() int {
	if l.length < 0 {
		if l.length = length(l.s, l.source); l.length < 0 {
			rest := items(l.s, &generator{l.next})
			l.next = iterate(l.s, rest)
			l.length = len(rest) + l.index0 + 1
			if l.ahead != unset {
				l.length++
			}
		}
	}
	return l.length
}

func (s *state) forLoop(f *frame, n *syntax.ForNode, v any, depth int) flow {
	s.steps += 4 // it takes that much more than another statement
	inner := s.frame(n.Scope, f)
	l := &loop{s: s, source: v, next: iterate(s, v), index0: -1, length: -1, depth0: depth, ahead: unset}
	if n.Filter != nil {
		l.source, l.next = nil, s.filtered(f, n, l.next)
	}
	if n.Recursive {
		l.recurse = func(v any, depth int) string {
			return s.capture(func() { s.forLoop(f, n, v, depth) })
		}
	}
	once := false // reading on is an effect
	switch v.(type) {
	case *generator, *loop:
		once = true
	}
	none := true // no pass came to its end, as Jinja2 sees it: break and continue do not count
	for {
		x, ok := l.advance()
		if !ok {
			break
		}
		s.steps += inner.reset() / 8
		s.step()
		s.line = n.Line
		inner.slots[syntax.LoopSlot] = l
		s.assign(inner, n.Target, x)
		var fl flow
		if n.Settles != nil {
			test := n.Body[0].(*syntax.IfNode)
			i := s.branch(inner, test)
			if i < len(test.Bodies) {
				fl = s.exec(inner, test.Bodies[i])
			}
			if n.Settles[i] && !once {
				none = false
				break
			}
		} else {
			fl = s.exec(inner, n.Body)
		}
		if fl == flowBreak {
			break
		}
		none = none && fl == flowContinue
	}
	s.release(n.Scope)
	if none && n.ElseBody != nil {
		return s.within(n.ElseScope, f, n.ElseBody)
	}
	return flowNext
}

// reset clears a frame for the next pass and is the number of its slots.
func (f *frame) reset() int {
	f.clear()
	return len(f.slots)
}

// filtered is the items of a loop for which the condition in its head holds, tested one by one as the loop continues.
func (s *state) filtered(f *frame, n *syntax.ForNode, next iterator) iterator {
	inner := s.frame(n.Test, f)
	return func() (any, bool) {
		for {
			x, ok := next()
			if !ok {
				return nil, false
			}
			s.step()
			s.assign(inner, n.Target, x)
			if truth(s.eval(inner, n.Filter)) {
				return assigned(inner, n.Target), true
			}
		}
	}
}

func (l *loop) attr(name string) (any, bool) {
	switch name {
	case "index":
		return int64(l.index0 + 1), true
	case "index0":
		return int64(l.index0), true
	case "revindex":
		return int64(l.size() - l.index0), true
	case "revindex0":
		return int64(l.size() - l.index0 - 1), true
	case "first":
		return l.index0 == 0, true
	case "last":
		return l.peek() == unset, true
	case "length":
		return int64(l.size()), true
	case "depth":
		return int64(l.depth0 + 1), true
	case "depth0":
		return int64(l.depth0), true
	case "previtem":
		if l.index0 == 0 {
			return Undefined{Name: "loop.previtem"}, true
		}
		return l.last, true
	case "nextitem":
		if l.peek() == unset {
			return Undefined{Name: "loop.nextitem"}, true
		}
		return l.ahead, true
	case "cycle":
		return &function{"cycle", func(s *state, a *callArgs) any {
			if len(a.list) == 0 {
				s.fail("loop.cycle wants at least one value")
			}
			return a.list[l.index0%len(a.list)]
		}}, true
	case "changed":
		return &function{"changed", func(s *state, a *callArgs) any {
			if l.changed != nil && equalItems(s, l.changed, a.list) {
				return false
			}
			s.charge(len(a.list) * itemBytes)
			l.changed = append(Tuple{}, a.list...)
			return true
		}}, true
	}
	return nil, false
}
