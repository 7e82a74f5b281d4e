// Package toolcalls compiles what calls of tools look like (toolcall.Part) into grammars, so that a model that is to
// call a tool writes a call that can be read, with arguments that fit the tool's schema.
//
// The grammar is over the bytes that toolcall.Spec.Piece gives for tokens: make its Vocabulary of Pieces.
package toolcalls

import (
	"fmt"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/regex"
	"github.com/uma-serve/uma-serve/internal/toolcall"
)

// Compile returns the grammar of p. Errors are those of jsonschema.Compile: they name the keyword that cannot be
// enforced.
func Compile(p toolcall.Part, o jsonschema.Options, l jsonschema.Limits) (*grammar.Grammar, error) {
	b := grammar.NewBuilder(l.Grammar)
	root, err := Add(b, p, o, l)
	if err != nil {
		return nil, err
	}
	return b.Build(root)
}

// Add adds p to b and returns its node.
func Add(b *grammar.Builder, p toolcall.Part, o jsonschema.Options, l jsonschema.Limits) (grammar.Node, error) {
	c := compiler{b: b, options: o, limits: l, schemas: map[string]grammar.Node{}}
	n := c.part(&p)
	if c.err == nil {
		c.err = b.Err()
	}
	return n, c.err
}

type compiler struct {
	b       *grammar.Builder
	options jsonschema.Options
	limits  jsonschema.Limits
	schemas map[string]grammar.Node // of each schema's text: tools share them
	space   grammar.Node            // 0: not made yet
	err     error                   // the first one
}

func (c *compiler) part(p *toolcall.Part) grammar.Node {
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
	case p.Members != nil:
		return c.members(p.Members)
	}
	return c.b.Empty()
}

func (c *compiler) parts(list []toolcall.Part) []grammar.Node {
	nodes := make([]grammar.Node, len(list))
	for i := range list {
		nodes[i] = c.part(&list[i])
	}
	return nodes
}

// maxIndent bounds the white space between the parts of a call, at a line's begin, as jsonschema.Pretty does: a model
// cannot write it without end.
const maxIndent = 20

// white is what models write between the parts of a call.
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
	n, err := jsonschema.Add(c.b, text, c.options, c.limits)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.schemas[string(text)] = n
	return n
}

// until is any text without end.
func (c *compiler) until(end string) grammar.Node {
	s := c.b.Regex()
	any := s.AnyText()
	return c.b.Terminal(s.Minus(any, s.Concat(any, s.Literal(end), any)))
}

func (c *compiler) repeat(r *toolcall.Repeat) grammar.Node {
	one := c.part(&r.Part)
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
	return c.b.Seq(one, c.b.Repeat(c.b.Seq(c.part(&r.Separator), one), 0, most))
}

func (c *compiler) members(list []toolcall.Member) grammar.Node {
	separator := c.b.Empty()
	if between := list[0].Between; between != "" {
		separator = c.b.Literal(between)
	}
	members := make([]grammar.Member, len(list))
	for i := range list {
		members[i] = grammar.Member{Node: c.part(&list[i].Part), Max: 1}
		if list[i].Required {
			members[i].Min = 1
		}
	}
	return c.b.Unordered(separator, 0, regex.Unbounded, members...)
}

// Pieces are the bytes of a vocabulary's tokens for grammar.NewVocabulary: their text, and markers of calls as the
// parser reads them.
func Pieces(s *toolcall.Spec, v toolcall.Vocabulary) [][]byte {
	pieces := make([][]byte, v.Size())
	for t := range pieces {
		pieces[t] = s.Piece(int32(t), v.Piece(int32(t)))
	}
	return pieces
}
