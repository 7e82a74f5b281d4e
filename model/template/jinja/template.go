package jinja

import (
	"errors"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// ErrLimit is the cause of a syntax.Error when a template used up what Limits allow it.
var ErrLimit = errors.New("limit reached")

// Raised is the cause of a syntax.Error when the template itself refused its input, with raise_exception("…").
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

// Template is a compiled template. It is immutable and safe for concurrent use.
type Template struct{ tree *syntax.Tree }

// Compile parses a template. The error is a *syntax.Error that names the line.
func Compile(src string) (*Template, error) {
	tree, err := syntax.Parse(src)
	if err != nil {
		return nil, err
	}
	return &Template{tree}, nil
}

// Variable is a name that a template reads.
type Variable = syntax.Variable

// Variables returns the names that the template reads anywhere: see syntax.Tree.
func (t *Template) Variables() []Variable { return t.tree.Variables() }

// Strings returns the template's texts and string literals: see syntax.Tree.
func (t *Template) Strings() []string { return t.tree.Strings() }

// Render runs the template with vars as its global names. Values are JSON-like Go values, *Dict where the order of keys
// matters. now is the time that strftime_now formats. The error is a *syntax.Error.
func (t *Template) Render(vars map[string]any, limits Limits, now time.Time) (out string, err error) {
	if limits == (Limits{}) {
		limits = DefaultLimits
	}
	s := &state{limits: limits, out: new(strings.Builder), now: now, line: 1, globals: make([]any, len(t.tree.Globals)),
		tree: t.tree}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *syntax.Error:
			out, err = "", e
		default: // a mistake in this package must not end the process
			out, err = "", syntax.ErrorAt(s.line, "internal error: %v", e)
		}
	}()
	for name, i := range t.tree.Globals {
		if v, ok := vars[name]; ok {
			s.globals[i] = fromGo(v)
		} else if v, ok := builtins[name]; ok {
			s.globals[i] = v
		} else {
			s.globals[i] = Undefined{Name: name}
		}
	}
	s.root = s.frame(t.tree.Scope, nil)
	s.exec(s.root, t.tree.Body)
	return s.out.String(), nil
}
