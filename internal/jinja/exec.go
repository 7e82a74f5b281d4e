package jinja

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ErrLimit is the cause of an Error when a template used up what Limits allow it.
var ErrLimit = errors.New("limit reached")

// Raised is the cause of an Error when the template itself refused its input, with raise_exception("…").
type Raised struct{ Message string }

func (r *Raised) Error() string { return r.Message }

// Limits bound one rendering. The zero value means DefaultLimits.
type Limits struct {
	Steps  int // nodes evaluated and items visited
	Bytes  int // text and list memory made or scanned, added up over the rendering
	Output int // bytes rendered
	Depth  int // nested evaluations, macro calls included
}

// DefaultLimits let a conversation of a few megabytes and ten thousand turns through and stop a hostile template
// after about a second.
var DefaultLimits = Limits{Steps: 5_000_000, Bytes: 128 << 20, Output: 32 << 20, Depth: 500}

// itemBytes is what one list item is charged: an interface and what it points to.
const itemBytes = 32

// Template is a compiled template. It is immutable and safe for concurrent use.
type Template struct{ body []node }

// Compile parses a template. The error is an *Error that names the line.
func Compile(src string) (t *Template, err error) {
	if len(src) > maxSource {
		return nil, errorAt(1, "the template has %d bytes, the limit is %d", len(src), maxSource)
	}
	tokens, err := lex(src)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e, ok := recover().(*Error); ok {
			t, err = nil, e
		} else if e != nil {
			panic(e)
		}
	}()
	p := &parser{tokens: tokens, filters: filters, tests: tests}
	return &Template{p.nodes()}, nil
}

// Render runs the template with vars as its global names. Values are JSON-like Go values, *Dict where the order of
// keys matters. now is what strftime_now formats. The error is an *Error.
func (t *Template) Render(vars map[string]any, limits Limits, now time.Time) (out string, err error) {
	if limits == (Limits{}) {
		limits = DefaultLimits
	}
	s := &state{limits: limits, out: new(strings.Builder), now: now}
	globals := &frame{vars: map[string]any{}}
	maps.Copy(globals.vars, builtins)
	for name, v := range vars {
		globals.vars[name] = fromGo(v)
	}
	defer func() {
		if e, ok := recover().(*Error); ok {
			out, err = "", e
		} else if e != nil {
			panic(e)
		}
	}()
	s.exec(&frame{vars: map[string]any{}, parent: globals}, t.body)
	return s.out.String(), nil
}

// state is one rendering in progress.
type state struct {
	limits Limits
	steps  int
	bytes  int
	depth  int
	line   int // of the statement or expression being run, for limits hit far from any node
	out    *strings.Builder
	now    time.Time
}

// frame is a scope: {% for %}, {% with %}, macros and captured blocks open one, {% if %} does not.
type frame struct {
	vars   map[string]any
	parent *frame
}

func (f *frame) child() *frame { return &frame{vars: map[string]any{}, parent: f} }

func (f *frame) get(name string) (any, bool) {
	for ; f != nil; f = f.parent {
		if v, ok := f.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func (s *state) fail(line int, err error) {
	if e, ok := err.(*Error); ok {
		panic(e)
	}
	panic(&Error{Line: line, Msg: err.Error(), Err: err})
}

func (s *state) limit(what string, n int) {
	panic(&Error{Line: s.line, Msg: fmt.Sprintf("the template used up its limit of %d %s", n, what), Err: ErrLimit})
}

func (s *state) step() {
	if s.steps++; s.steps > s.limits.Steps {
		s.limit("steps", s.limits.Steps)
	}
}

// charge counts n bytes made or scanned. Call it before making them.
func (s *state) charge(n int) {
	if n < 0 || n > s.limits.Bytes-s.bytes {
		s.limit("bytes of work", s.limits.Bytes)
	}
	s.bytes += n
}

func (s *state) deeper() func() {
	if s.depth++; s.depth > s.limits.Depth {
		s.limit("nested evaluations", s.limits.Depth)
	}
	return func() { s.depth-- }
}

func (s *state) write(text string) {
	if len(text) > s.limits.Output-s.out.Len() {
		s.limit("bytes of output", s.limits.Output)
	}
	s.charge(len(text))
	s.out.WriteString(text)
}

// capture runs f and returns what it wrote.
func (s *state) capture(f func()) string {
	outer := s.out
	s.out = new(strings.Builder)
	defer func() { s.out = outer }()
	f()
	return s.out.String()
}

// flow is how a body ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

func (s *state) exec(f *frame, body []node) flow {
	defer s.deeper()()
	for _, n := range body {
		s.step()
		switch n := n.(type) {
		case *textNode:
			s.write(n.text)
		case *outputNode:
			s.line = n.line
			s.write(str(s, s.eval(f, n.expr)))
		case *ifNode:
			if fl := s.ifElse(f, n); fl != flowNext {
				return fl
			}
		case *forNode:
			s.line = n.line
			s.forLoop(f, n, s.eval(f, n.iter), 1)
		case *setNode:
			s.set(f, n)
		case *macroNode:
			f.vars[n.name] = s.macro(f, n)
		case *callNode:
			inner := f.child()
			inner.vars["caller"] = s.macro(f, n.macro)
			call := n.call.(*callExpr)
			args := s.args(f, call.line, call.args)
			args.names = append(args.names, "caller")
			args.values = append(args.values, inner.vars["caller"])
			s.write(str(s, s.call(call.line, s.eval(f, call.fn), args)))
		case *filterNode:
			s.write(str(s, s.applyFilters(f, n.filters, s.capture(func() { s.exec(f.child(), n.body) }))))
		case *withNode:
			inner := f.child()
			for i, t := range n.names {
				s.assign(inner, n.line, t, s.eval(f, n.values[i]))
			}
			if fl := s.exec(inner, n.body); fl != flowNext {
				return fl
			}
		case *generationNode:
			if fl := s.exec(f, n.body); fl != flowNext {
				return fl
			}
		case *loopControl:
			if n.stop {
				return flowBreak
			}
			return flowContinue
		}
	}
	return flowNext
}

func (s *state) ifElse(f *frame, n *ifNode) flow {
	s.line = n.line
	for i, c := range n.conds {
		if truth(s.eval(f, c)) {
			return s.exec(f, n.bodies[i])
		}
	}
	if len(n.bodies) > len(n.conds) {
		return s.exec(f, n.bodies[len(n.conds)])
	}
	return flowNext
}

func (s *state) set(f *frame, n *setNode) {
	s.line = n.line
	if n.value != nil {
		s.assign(f, n.line, n.target, s.eval(f, n.value))
		return
	}
	var v any = s.capture(func() { s.exec(f.child(), n.body) })
	s.assign(f, n.line, n.target, s.applyFilters(f, n.filters, v))
}

func (s *state) assign(f *frame, line int, t target, v any) {
	switch {
	case t.tuple != nil:
		items, err := iterate(s, v)
		if err != nil {
			s.fail(line, err)
		}
		if len(items) != len(t.tuple) {
			s.fail(line, fmt.Errorf("%d values for %d names", len(items), len(t.tuple)))
		}
		for i, x := range t.tuple {
			s.assign(f, line, x, items[i])
		}
	case t.attr != "":
		got, _ := f.get(t.name)
		ns, ok := got.(*namespace)
		if !ok {
			s.fail(line, fmt.Errorf("cannot set %s.%s: only a namespace's attributes can be set", t.name, t.attr))
		}
		ns.vars[t.attr] = v
	default:
		f.vars[t.name] = v
	}
}

// loop is the "loop" variable.
type loop struct {
	index0, length int
	depth          int
	prev, next     any
	changed        []any
	call           function // of a recursive loop
}

func (s *state) forLoop(f *frame, n *forNode, over any, depth int) {
	items, err := iterate(s, over)
	if err != nil {
		s.fail(n.line, err)
	}
	if n.filter != nil {
		var kept []any
		for _, x := range items {
			inner := f.child()
			s.assign(inner, n.line, n.target, x)
			if truth(s.eval(inner, n.filter)) {
				s.charge(itemBytes)
				kept = append(kept, x)
			}
		}
		items = kept
	}
	if len(items) == 0 {
		s.exec(f.child(), n.elseBody)
		return
	}
	l := &loop{length: len(items), depth: depth}
	if n.recursive {
		l.call = func(s *state, a callArgs) (any, error) {
			v, err := a.bind("loop", 1, "iterable")
			if err != nil {
				return nil, err
			}
			return s.capture(func() { s.forLoop(f, n, v[0], depth+1) }), nil
		}
	}
	for i, x := range items {
		s.step()
		s.line = n.line
		l.index0, l.prev, l.next = i, Undefined{"loop.previtem"}, Undefined{"loop.nextitem"}
		if i > 0 {
			l.prev = items[i-1]
		}
		if i+1 < len(items) {
			l.next = items[i+1]
		}
		inner := f.child()
		inner.vars["loop"] = l
		s.assign(inner, n.line, n.target, x)
		if s.exec(inner, n.body) == flowBreak {
			return
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
		return int64(l.length - l.index0), true
	case "revindex0":
		return int64(l.length - l.index0 - 1), true
	case "first":
		return l.index0 == 0, true
	case "last":
		return l.index0 == l.length-1, true
	case "length":
		return int64(l.length), true
	case "depth":
		return int64(l.depth), true
	case "depth0":
		return int64(l.depth - 1), true
	case "previtem":
		return l.prev, true
	case "nextitem":
		return l.next, true
	case "cycle":
		return function(func(_ *state, a callArgs) (any, error) {
			if len(a.list) == 0 {
				return nil, errors.New("loop.cycle wants at least one value")
			}
			return a.list[l.index0%len(a.list)], nil
		}), true
	case "changed":
		return function(func(s *state, a callArgs) (any, error) {
			if l.changed != nil && equalItems(s, l.changed, a.list) {
				return false, nil
			}
			l.changed = append([]any{}, a.list...)
			return true, nil
		}), true
	}
	return nil, false
}

// macro makes a callable that renders n's body in a scope below the one it was defined in.
func (s *state) macro(defined *frame, n *macroNode) function {
	return func(s *state, a callArgs) (any, error) {
		inner := defined.child()
		for i, p := range n.params {
			switch j := slices.Index(a.names, p.name); {
			case i < len(a.list) && j >= 0:
				return nil, fmt.Errorf("%s(): argument %q is given twice", n.name, p.name)
			case i < len(a.list):
				inner.vars[p.name] = a.list[i]
			case j >= 0:
				inner.vars[p.name] = a.values[j]
			case p.value != nil:
				inner.vars[p.name] = s.eval(inner, p.value)
			default:
				inner.vars[p.name] = Undefined{p.name}
			}
		}
		kwargs := NewDict()
		for i, name := range a.names {
			if name == "caller" {
				inner.vars["caller"] = a.values[i]
			} else if !slices.ContainsFunc(n.params, func(p param) bool { return p.name == name }) {
				kwargs.set(name, a.values[i])
			}
		}
		inner.vars["kwargs"] = kwargs
		inner.vars["varargs"] = Tuple(a.list[min(len(n.params), len(a.list)):])
		return s.capture(func() { s.exec(inner, n.body) }), nil
	}
}
