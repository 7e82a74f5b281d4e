// Package toolcalls compiles what calls of tools look like (toolcall.Expr) into grammars, so that a model that is to
// call a tool writes a call that can be read, with arguments that fit the tool's schema.
//
// The grammar is over the bytes that toolcall.Spec.Piece gives for tokens: make its Vocabulary of Pieces.
package toolcalls

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/regex"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// Build builds the grammar whose root add returns. With loose it adds again without the schemas that were found to be
// unenforceable: a builder cannot forget what it was given.
func Build(l grammar.Limits, loose bool, add func(*grammar.Builder, *Holder) (grammar.Node, error),
) (*grammar.Grammar, error) {
	h := &Holder{loose: loose, free: map[*toolcall.Tool]error{}}
	for {
		b := grammar.NewBuilder(l)
		root, err := add(b, h)
		if err == nil {
			var g *grammar.Grammar
			if g, err = b.Build(root); err == nil {
				return g, nil
			}
			err = h.unnamed(err)
		}
		if err != errAgain {
			return nil, err
		}
	}
}

// errAgain says that the grammar is to be built again, with fewer schemas.
var errAgain = errors.New("toolcalls: again")

// Holder adds calls to a grammar, and knows whose schemas are left out.
type Holder struct {
	loose bool
	free  map[*toolcall.Tool]error // tools whose arguments are any object, and why
	seen  []*toolcall.Tool
	cuts  int // how often unnamed has left schemas out
}

// Add adds p to b and returns its node.
func (h *Holder) Add(b *grammar.Builder, p toolcall.Expr, l jsonschema.Limits) (grammar.Node, error) {
	c := compiler{b: b, limits: l, holder: h, objects: map[string]grammar.Node{}, schemas: map[string]grammar.Node{}}
	h.seen = h.seen[:0]
	n := c.expr(&p)
	switch {
	case c.err == nil && b.Err() != nil:
		c.err = h.unnamed(b.Err())
	case c.err == nil && c.again:
		c.err = errAgain
	}
	return n, c.err
}

// Free is a tool whose schema is left out: its arguments may be any object.
type Free struct {
	Tool string
	Why  string
}

// Free returns the tools whose schemas are left out, by name.
func (h *Holder) Free() (list []Free) {
	for t, err := range h.free {
		list = append(list, Free{t.Name, err.Error()})
	}
	slices.SortFunc(list, func(a, b Free) int { return strings.Compare(a.Tool, b.Tool) })
	return list
}

// failed handles an error of t's schema: a schema that is too large or not supported is left out (Free), unless the
// tool is strict or the Holder is not loose.
func (h *Holder) failed(t *toolcall.Tool, err error) error {
	var schema *jsonschema.Error
	if !errors.As(err, &schema) && !errors.Is(err, grammar.ErrLimit) && !errors.Is(err, regex.ErrLimit) {
		return err
	}
	if h.free[t] != nil || !h.loose || t.Strict {
		return fmt.Errorf("tool %q: %w", t.Name, err)
	}
	h.free[t] = err
	return errAgain
}

// unnamed handles an error of the whole grammar, which names no tool. If the grammar is too large, or a schema leaves
// nothing, it leaves out the longest schema, then two more, then four, so that a grammar of hundreds of tools is not
// built hundreds of times.
func (h *Holder) unnamed(err error) error {
	if !h.loose || !errors.Is(err, grammar.ErrLimit) && !errors.Is(err, regex.ErrLimit) &&
		!errors.Is(err, grammar.ErrEmpty) {
		return err
	}
	var held []*toolcall.Tool
	for _, t := range h.seen {
		if !t.Strict && h.free[t] == nil && !slices.Contains(held, t) {
			held = append(held, t)
		}
	}
	if len(held) == 0 {
		return err
	}
	slices.SortStableFunc(held, func(a, b *toolcall.Tool) int { return len(b.Parameters) - len(a.Parameters) })
	for _, t := range held[:min(len(held), 1<<h.cuts)] {
		h.free[t] = err
	}
	h.cuts++
	return errAgain
}

type compiler struct {
	b       *grammar.Builder
	limits  jsonschema.Limits
	holder  *Holder
	objects map[string]grammar.Node // of each schema's text: tools share them
	schemas map[string]grammar.Node
	space   grammar.Node // 0: not made yet
	again   bool         // a schema is to be left out
	err     error        // the first one
}

func (c *compiler) expr(p *toolcall.Expr) grammar.Node {
	switch {
	case c.err != nil:
		return c.b.Nothing()
	case p.Literal != "":
		return c.b.Literal(p.Literal)
	case p.Gap != 0:
		return c.white()
	case p.Schema != nil:
		return c.schema(p.Schema)
	case p.Pattern != "":
		return c.pattern(p.Pattern)
	case p.Until != "":
		return c.until(p.Until)
	case p.Seq != nil:
		return c.b.Seq(c.parts(p.Seq)...)
	case p.Any != nil:
		return c.b.Alt(c.parts(p.Any)...)
	case p.Repeat != nil:
		return c.repeat(p.Repeat)
	case p.Args != nil:
		return c.arguments(p.Args)
	}
	return c.b.Empty()
}

func (c *compiler) parts(list []toolcall.Expr) []grammar.Node {
	nodes := make([]grammar.Node, len(list))
	for i := range list {
		nodes[i] = c.expr(&list[i])
	}
	return nodes
}

// maxIndent bounds the white space between the parts of a call, at a line's begin, as jsonschema.Pretty does: a model
// cannot write it without end.
const maxIndent = 20

// white returns the grammar of the white space between the parts of a call, as models write it.
func (c *compiler) white() grammar.Node {
	if c.space == 0 {
		c.space = c.pattern(fmt.Sprintf(`(?: ?|\n{1,2}[ \t]{0,%d})`, maxIndent))
	}
	return c.space
}

func (c *compiler) pattern(text string) grammar.Node {
	n, err := c.b.Pattern(text)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n
}

func (c *compiler) schema(text []byte) grammar.Node {
	if n, ok := c.schemas[string(text)]; ok {
		return n
	}
	n, err := jsonschema.Add(c.b, text, jsonschema.Options{Closed: true}, c.limits)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.schemas[string(text)] = n
	return n
}

// until is any text without end.
func (c *compiler) until(end string) grammar.Node {
	return c.b.Terminal(c.without(c.b.Regex().AnyText(), end))
}

// without returns the texts of e that do not hold text.
func (c *compiler) without(e regex.Expr, text string) regex.Expr {
	if text == "" {
		return e
	}
	s := c.b.Regex()
	any := s.AnyText()
	return s.Minus(e, s.Concat(any, s.Literal(text), any))
}

func (c *compiler) repeat(r *toolcall.Repeat) grammar.Node {
	one := c.expr(&r.Expr)
	most := r.Max
	if most == 0 {
		most = regex.Unbounded
	}
	switch {
	case most == 1 && r.Min == 1:
		return one
	case r.Min != 1:
		c.err = fmt.Errorf("toolcalls: a repetition of %d to %d", r.Min, r.Max)
		return c.b.Nothing()
	case most != regex.Unbounded:
		most--
	}
	return c.b.Seq(one, c.b.Repeat(c.b.Seq(c.expr(&r.Separator), one), 0, most))
}
