package jinja

import (
	"errors"
	"fmt"
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
	Steps  int // nodes evaluated, items visited and text looked at
	Bytes  int // memory of texts, lists and scopes, added up over the rendering
	Output int // bytes rendered
	Depth  int // nested evaluations, macro calls included
}

// DefaultLimits stop a hostile template after less than a second and 256 MiB: a step takes some 50 ns and holds at
// most as many bytes, a byte charged takes at most some 5 ns and, with what the garbage collector has not yet taken
// back, 3 bytes.
var DefaultLimits = Limits{Steps: 5_000_000, Bytes: 64 << 20, Output: 32 << 20, Depth: 3000}

const (
	itemBytes  = 32 // one list item: an interface and what it points to
	entryBytes = 96 // one dict entry: key, value and their place in the index
	frameBytes = 96 // a scope, a loop or a function, without its values
)

// Template is a compiled template. It is immutable and safe for concurrent use.
type Template struct {
	body    []node
	scope   *scope
	globals map[string]int // the names that may be global, by their place in state.globals
	blocks  map[string]*blockNode
}

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
	root := newScope(nil)
	p := &parser{tokens: tokens, scope: root, root: root, globals: map[string]int{}, blocks: map[string]*blockNode{}}
	t = &Template{body: p.nodes(), scope: root, globals: p.globals, blocks: p.blocks}
	p.resolve()
	return t, nil
}

// Render runs the template with vars as its global names. Values are JSON-like Go values, *Dict where the order of
// keys matters. now is what strftime_now formats. The error is an *Error.
func (t *Template) Render(vars map[string]any, limits Limits, now time.Time) (out string, err error) {
	if limits == (Limits{}) {
		limits = DefaultLimits
	}
	s := &state{limits: limits, out: new(strings.Builder), now: now, line: 1, globals: make([]any, len(t.globals)), template: t}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			out, err = "", e
		default: // a mistake in this package must not end the process
			out, err = "", errorAt(s.line, "internal error: %v", e)
		}
	}()
	for name, i := range t.globals {
		if v, ok := vars[name]; ok {
			s.globals[i] = fromGo(v)
		} else if v, ok := builtins[name]; ok {
			s.globals[i] = v
		} else {
			s.globals[i] = Undefined{Name: name}
		}
	}
	s.root = s.frame(t.scope, nil)
	s.exec(s.root, t.body)
	return s.out.String(), nil
}

// state is one rendering in progress.
type state struct {
	limits     Limits
	steps      int
	bytes      int
	depth      int
	line       int // of the statement or expression being run
	out        *strings.Builder
	now        time.Time
	globals    []any
	root       *frame
	template   *Template
	autoescape bool
	tail       strings.Builder // see extend
}

// frame holds the values of one scope while it runs.
type frame struct {
	slots  []any
	parent *frame
}

// unset is what a slot holds before the first assignment, and what bind returns for an argument not given.
type missing struct{}

var unset any = missing{}

func (s *state) frame(sc *scope, parent *frame) *frame {
	s.charge(sc.bytes())
	f := &frame{make([]any, sc.size), parent}
	f.clear()
	return f
}

// release takes back what a frame was charged, where nothing can hold on to it.
func (s *state) release(sc *scope) {
	if !sc.held {
		s.bytes -= sc.bytes()
	}
}

func (f *frame) clear() {
	for i := range f.slots {
		f.slots[i] = unset
	}
}

// fail ends the rendering: errors travel by panic to Render.
func (s *state) fail(format string, a ...any) {
	panic(errorAt(s.line, format, a...))
}

func (s *state) limit(what string, n int) {
	panic(&Error{Line: s.line, Msg: fmt.Sprintf("the template used up its limit of %d %s", n, what), Err: ErrLimit})
}

func (s *state) step() {
	if s.steps++; s.steps > s.limits.Steps {
		s.limit("steps", s.limits.Steps)
	}
}

// charge counts n bytes made. Call it before making them.
func (s *state) charge(n int) {
	if n < 0 || n > s.limits.Bytes-s.bytes {
		s.limit("bytes of memory", s.limits.Bytes)
	}
	s.bytes += n
}

// scan counts n bytes looked at, which takes time but no memory: as much as a step for every 64.
func (s *state) scan(n int) {
	if s.steps += n >> 6; s.steps > s.limits.Steps || n < 0 {
		s.limit("steps", s.limits.Steps)
	}
}

// chargeProduct counts n times m bytes, which may be more than an int holds.
func (s *state) chargeProduct(n, m int) {
	if n > 0 && m > s.limits.Bytes/n {
		s.limit("bytes of memory", s.limits.Bytes)
	}
	s.charge(max(n, 0) * max(m, 0))
}

// grow charges for n more bytes in b. When b is full, what it held is copied and left to the garbage collector.
func (s *state) grow(b *strings.Builder, n int) {
	if b.Cap()-b.Len() < n {
		s.charge(b.Cap() / 2)
	}
	s.charge(n)
}

// enter counts a level of nesting; leave ends it. An error leaves the count as it is: the rendering is over.
func (s *state) enter() {
	if s.depth++; s.depth > s.limits.Depth {
		s.limit("nested evaluations", s.limits.Depth)
	}
}

func (s *state) leave() { s.depth-- }

func (s *state) write(text string) {
	if len(text) > s.limits.Output-s.out.Len() {
		s.limit("bytes of output", s.limits.Output)
	}
	s.grow(s.out, len(text))
	s.out.WriteString(text)
}

// capture runs f and returns what it wrote.
func (s *state) capture(f func()) string {
	outer := s.out
	s.out = new(strings.Builder)
	f()
	text := s.out.String()
	s.out = outer
	return text
}

// marked is a captured text as a value.
func (s *state) marked(text string) any {
	if s.autoescape {
		return markup(text)
	}
	return text
}

// show is what a value prints as.
func (s *state) show(v any) string {
	if s.autoescape {
		return string(escape(s, v))
	}
	return str(s, v)
}

// flow is how a body ended.
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

// within runs a body in a scope of its own.
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

// assigned is what assign put into f, as a value.
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

// loop is the "loop" variable, which reads one item ahead only when the template asks what comes next.
type loop struct {
	s             *state
	source        any // what is looped over, where that has a length
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

func (s *state) forLoop(f *frame, n *forNode, v any, depth int) flow {
	s.steps += 4 // it takes that much more than another statement
	inner := s.frame(n.scope, f)
	l := &loop{s: s, source: v, next: iterate(s, v), index0: -1, length: -1, depth0: depth, ahead: unset}
	if n.filter != nil {
		l.source, l.next = nil, s.filtered(f, n, l.next)
	}
	if n.recursive {
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
		s.line = n.line
		inner.slots[loopSlot] = l
		s.assign(inner, n.target, x)
		var fl flow
		if n.settles != nil {
			test := n.body[0].(*ifNode)
			i := s.branch(inner, test)
			if i < len(test.bodies) {
				fl = s.exec(inner, test.bodies[i])
			}
			if n.settles[i] && !once {
				none = false
				break
			}
		} else {
			fl = s.exec(inner, n.body)
		}
		if fl == flowBreak {
			break
		}
		none = none && fl == flowContinue
	}
	s.release(n.scope)
	if none && n.elseBody != nil {
		return s.within(n.elseScope, f, n.elseBody)
	}
	return flowNext
}

// reset clears a frame for the next pass and is the number of its slots.
func (f *frame) reset() int {
	f.clear()
	return len(f.slots)
}

// filtered is the items of a loop for which the condition in its head holds, tested one by one as the loop goes on.
func (s *state) filtered(f *frame, n *forNode, next iterator) iterator {
	inner := s.frame(n.test, f)
	return func() (any, bool) {
		for {
			x, ok := next()
			if !ok {
				return nil, false
			}
			s.step()
			s.assign(inner, n.target, x)
			if truth(s.eval(inner, n.filter)) {
				return assigned(inner, n.target), true
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
