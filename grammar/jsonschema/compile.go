// Package jsonschema compiles JSON schemas into grammars: the texts of a grammar are JSON texts that the schema allows.
//
// What cannot be enforced exactly is refused when it is compiled; the error names the keyword and its place. A schema
// is read as a set of JSON values, by type (set.go), and keywords are operations on sets: allOf, anyOf, not and if are
// intersection, union and complement, and oneOf is a union of what remains of each branch without the others. Strings
// and numbers are regular expressions, closed under all of them; arrays and objects are lists of shapes (array.go,
// object.go) whose parts are combinations of schemas, computed when they are asked for (node.go), so that recursion is
// no obstacle. emit.go writes the sets as rules.
//
// Which keywords are enforced is in keywords.go, from which docs/structured-output.md is checked.
package jsonschema

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Whitespace says which white space the grammar allows between the tokens of a JSON text.
type Whitespace uint8

const (
	// Pretty allows what writers of JSON write: nothing or one space behind a comma or colon, or a line break and an
	// indentation of at most 20 around members and items. A model cannot write white space without end.
	Pretty Whitespace = iota
	// Compact allows none.
	Compact
	// Free allows any, also around the text.
	Free
)

// Options says which of the texts of a valid instance a grammar has. Every text of every grammar is valid.
type Options struct {
	Whitespace Whitespace
	// AnyForm accepts members in any order, integers with a zero fraction or an exponent (1.0, 1e3), exponents above
	// 299, and all of ECMA-262's white space for \s. Without it a grammar has the form that models write: members in
	// the schema's order with those that it does not name last, and integers as digits. Objects with minProperties or
	// maxProperties take members in any order in both.
	AnyForm bool
	// Object leaves only objects, whatever else the schema allows.
	Object bool
	// Closed is for texts that a model writes: an object whose schema has properties and says nothing of other members
	// has no others, where the standard allows any. Small models do not end an object otherwise.
	Closed bool
	// Nullable reads "nullable": true beside a type as OpenAPI 3.0 does: null is allowed too.
	Nullable bool
}

// Limits bounds one schema. A zero field takes its default.
type Limits struct {
	// Bytes is the longest schema. Default 1 MiB.
	Bytes int
	// Depth is the deepest nesting: of the schema's text, and of schemas that are combined. Default 200.
	Depth int
	// Schemas is the most schemas, those that intersections and complements make included. Default 50,000.
	Schemas int
	// Alternatives is the most shapes of arrays or objects that one schema may have after oneOf, not and their like are
	// worked out. Default 400.
	Alternatives int
	// Work is the most steps of combining shapes. Default 200,000.
	Work int
	// Grammar bounds the grammar.
	Grammar grammar.Limits
}

// fill sets zero fields to their defaults.
func (l *Limits) fill() {
	for _, f := range []struct {
		field *int
		def   int
	}{{&l.Bytes, 1 << 20}, {&l.Depth, 200}, {&l.Schemas, 50_000}, {&l.Alternatives, 400}, {&l.Work, 200_000}} {
		if *f.field <= 0 {
			*f.field = f.def
		}
	}
}

var (
	// ErrInvalid is wrapped by the error of a document that is no schema.
	ErrInvalid = errors.New("invalid schema")
	// ErrUnsupported wraps what cannot be enforced exactly.
	ErrUnsupported = errors.New("cannot be enforced")
	// ErrLimit wraps what exceeds a field of Limits; the error's text names the field.
	ErrLimit = errors.New("schema too large")
	// ErrUnsatisfiable says that the schema allows no value.
	ErrUnsatisfiable = errors.New("the schema allows no value")

	errDepth = errors.New("nested too deeply")
)

// Error says which keyword of a schema was refused, and where.
type Error struct {
	Pointer string // JSON pointer of the schema that has the keyword
	Keyword string // empty for the schema as a whole
	Reason  string
	Kind    error // ErrInvalid, ErrUnsupported, ErrLimit or ErrUnsatisfiable
}

func (e *Error) Error() string {
	at := "#" + e.Pointer
	if e.Keyword != "" {
		return fmt.Sprintf("schema: %s at %s: %s: %s", e.Keyword, at, e.Kind, e.Reason)
	}
	return fmt.Sprintf("schema: at %s: %s: %s", at, e.Kind, e.Reason)
}

func (e *Error) Unwrap() error { return e.Kind }

type compiler struct {
	limits Limits
	opts   Options
	doc    *document
	b      *grammar.Builder
	s      *regex.Set
	num    *numbers
	err    error // the first one; sticky

	nodes    []node
	places   map[placeKey]ref
	combos   map[string]ref
	formats  map[string]regex.Expr
	depth    int
	asking   int  // nested questions about emptiness
	open     bool // the result rests on an answer that is not known yet, and is not kept
	work     int
	emitting int // nested calls of emit

	full, none *set

	marks   marks
	emitted map[*set]*emission
}

// Compile compiles schema. Errors are *Error, or come from package grammar.
func Compile(schema []byte, o Options, l Limits) (*grammar.Grammar, error) {
	b := grammar.NewBuilder(l.Grammar)
	root, err := Add(b, schema, o, l)
	if err != nil {
		return nil, err
	}
	g, err := b.Build(root)
	if errors.Is(err, grammar.ErrEmpty) {
		return nil, &Error{Reason: "no text is left", Kind: ErrUnsatisfiable}
	}
	return g, err
}

// Add compiles schema into b and returns the node of its texts, for a grammar that has more around it.
func Add(b *grammar.Builder, schema []byte, o Options, l Limits) (grammar.Node, error) {
	c, root, err := newCompiler(b, schema, o, l)
	if err != nil {
		return 0, err
	}
	return c.result(c.emitRoot(root))
}

// result is n, unless an error came up.
func (c *compiler) result(n grammar.Node) (grammar.Node, error) {
	if c.err == nil {
		c.err = c.b.Err()
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, nil
}

// newCompiler reads schema. root is the set of values that it allows.
func newCompiler(b *grammar.Builder, schema []byte, o Options, l Limits) (c *compiler, root ref, err error) {
	l.fill()
	if len(schema) > l.Bytes {
		return nil, 0, &Error{Reason: fmt.Sprintf("%d bytes, more than %d (Limits.Bytes)", len(schema), l.Bytes),
			Kind: ErrLimit}
	}
	if !utf8.Valid(schema) {
		return nil, 0, &Error{Reason: "it is not UTF-8", Kind: ErrInvalid}
	}
	v, err := parseValue(schema, l.Depth)
	if errors.Is(err, errDepth) {
		return nil, 0, &Error{Reason: fmt.Sprintf("nested deeper than %d (Limits.Depth)", l.Depth), Kind: ErrLimit}
	} else if err != nil {
		return nil, 0, &Error{Reason: err.Error(), Kind: ErrInvalid}
	}
	c = &compiler{limits: l, opts: o, b: b, s: b.Regex(), places: map[placeKey]ref{}, combos: map[string]ref{},
		formats: map[string]regex.Expr{}, emitted: map[*set]*emission{}}
	c.nodes = []node{{op: opNothing}, {op: opAnything}}
	c.num = newNumbers(c.s, o.AnyForm)
	c.full, c.none = c.fullSet(), noSet()
	c.doc = newDocument(v)
	c.marks = c.newMarks()
	root = c.schema(&place{v: v, res: c.doc.root})
	if o.Object {
		object := &value{kind: objectValue, members: []member{{"type", &value{kind: stringValue, text: "object"}}}}
		// in its own resource: siblings of an old draft's $ref count for nothing
		root = c.and(root, c.schema(&place{v: object, res: &resource{root: object, draft: draft2020}}))
	}
	return c, root, nil
}

// refuse, invalid and exceed set c's error, unless there is one, and return the empty set.

func (c *compiler) refuse(p *place, keyword, format string, a ...any) *set {
	return c.fail(p, keyword, ErrUnsupported, format, a)
}

func (c *compiler) invalid(p *place, keyword, format string, a ...any) *set {
	return c.fail(p, keyword, ErrInvalid, format, a)
}

func (c *compiler) exceed(p *place, keyword, format string, a ...any) {
	c.fail(p, keyword, ErrLimit, format, a)
}

func (c *compiler) fail(p *place, keyword string, kind error, format string, a []any) *set {
	if c.err == nil {
		e := &Error{Keyword: keyword, Reason: fmt.Sprintf(format, a...), Kind: kind}
		if p != nil {
			e.Pointer = p.ptr
		}
		c.err = e
	}
	return c.none
}

// step counts one step of combining against Limits.Work.
func (c *compiler) step(p *place) bool {
	if c.work++; c.work > c.limits.Work {
		c.exceed(p, "", "combining its parts takes more than %d steps (Limits.Work)", c.limits.Work)
	}
	c.checkStop()
	return c.err == nil
}

// checkStop breaks compiling off where grammar.Limits.Stop says so.
func (c *compiler) checkStop() {
	if c.err == nil && c.b.Stopped() {
		c.err = grammar.ErrStopped
	}
}

func itoa(i int) string { return strconv.Itoa(i) }
