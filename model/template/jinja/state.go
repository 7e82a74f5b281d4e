package jinja

import (
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

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
	tree       *syntax.Tree
	autoescape bool
	tail       strings.Builder // see extend
}

// frame holds the values of one scope while it runs.
type frame struct {
	slots  []any
	parent *frame
}

// unset is the value of a slot before the first assignment, and of an argument that was not given to bind.
type missing struct{}

var unset any = missing{}

// frameSize returns the memory of a frame of a scope, in bytes, its loop included.
func frameSize(sc *syntax.Scope) int { return 2*frameBytes + 16*sc.Size }

func (s *state) frame(sc *syntax.Scope, parent *frame) *frame {
	s.charge(frameSize(sc))
	f := &frame{make([]any, sc.Size), parent}
	f.clear()
	return f
}

// release takes back what a frame was charged, where nothing can hold on to it.
func (s *state) release(sc *syntax.Scope) {
	if !sc.Captured {
		s.bytes -= frameSize(sc)
	}
}

func (f *frame) clear() {
	for i := range f.slots {
		f.slots[i] = unset
	}
}

// fail ends the rendering: errors travel by panic to Render.
func (s *state) fail(format string, a ...any) {
	panic(syntax.ErrorAt(s.line, format, a...))
}

func (s *state) limit(what string, n int) {
	msg := fmt.Sprintf("the template used up its limit of %d %s", n, what)
	panic(&syntax.Error{Line: s.line, Msg: msg, Err: ErrLimit})
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

// show returns the text that a value prints as.
func (s *state) show(v any) string {
	if s.autoescape {
		return string(escape(s, v))
	}
	return str(s, v)
}
