package jsonschema

import (
	"slices"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Types is a set of JSON types.
type Types uint8

const (
	String Types = 1 << iota
	Number
	Boolean
	Null
	Object
	Array
	AllTypes Types = 1<<iota - 1
)

// Notation writes an object's members in another way than JSON does: as elements, or as keyword arguments.
type Notation struct {
	Separator string // between members
	// Member returns the text of a member.
	Member func(a *Argument) grammar.Node
	// Names are the names that members may have which properties does not list. An object whose schema has properties
	// and says nothing of others has none.
	Names regex.Expr
}

// Argument is a member of an object that a Notation writes.
type Argument struct {
	Name  string     // empty for a member that properties does not list
	Names regex.Expr // names of such members

	c     *compiler
	place *place
	value *set
}

// AddMembers compiles the objects that schema allows into b, written in notation n. Each text is an object's members,
// in any order, without the braces around them.
func AddMembers(b *grammar.Builder, schema []byte, n Notation, o Options, l Limits) (grammar.Node, error) {
	o.Object = true
	c, root, err := newCompiler(b, schema, o, l)
	if err != nil {
		return 0, err
	}
	p := c.nodes[root].place
	s := c.setOf(root)
	alts := []grammar.Node{}
	for _, obj := range s.objs {
		for _, q := range c.resolveHas(p, obj) {
			alts = append(alts, c.emitMembers(p, q, n, c.doc.root.root.get("properties") != nil))
		}
	}
	if len(alts) == 0 && c.err == nil {
		return 0, &Error{Reason: "no object is left", Kind: ErrUnsatisfiable}
	}
	return c.result(b.Alt(alts...))
}

// emitMembers writes the members of q in the notation n. named: the schema lists its members.
func (c *compiler) emitMembers(p *place, q requirement, n Notation, named bool) grammar.Node {
	o := q.object
	if q.distinct || c.uncounted(o) {
		c.refuse(p, "minProperties", "members that properties does not list cannot be counted")
		return c.b.Nothing()
	}
	var members []grammar.Member
	argument := func(name string, names regex.Expr, value ref, least, most int) {
		at := c.nodes[value].place
		if at == nil {
			at = p
		}
		a := &Argument{Name: name, Names: names, c: c, place: at, value: c.setOf(value)}
		members = append(members, grammar.Member{Node: n.Member(a), Min: least, Max: most})
	}
	for _, m := range o.props {
		if m.value == nothing {
			continue
		}
		least := 0
		if m.required {
			least = 1
		}
		argument(m.name, 0, m.value, least, 1)
	}
	declared := c.s.Literals(o.names())
	class := func(k class, least int) {
		names := c.s.And(k.names, n.Names)
		if len(o.props) > 0 {
			names = c.s.Minus(names, declared)
		}
		if !c.noNames(names) {
			argument("", names, k.value, least, unbounded)
		}
	}
	for _, k := range q.open {
		class(k, 1)
	}
	// additionalProperties that allow anything allow what the model was not told of.
	named = named || len(o.props) > 0
	for _, k := range o.classes {
		if k.value != nothing && !(named && k.value == anything) {
			class(k, 0)
		}
	}
	least := o.min
	if !c.mustCount(o) {
		least = 0
	}
	if len(members) == 0 && least == 0 {
		return c.b.Empty()
	}
	return c.b.Unordered(c.b.Literal(n.Separator), least, o.max, members...)
}

// Members returns the argument's objects in notation n, as AddMembers does.
func (a *Argument) Members(n Notation) grammar.Node {
	var alts []grammar.Node
	for _, o := range a.value.objs {
		for _, q := range a.c.resolveHas(a.place, o) {
			alts = append(alts, a.c.emitMembers(a.place, q, n, false))
		}
	}
	return a.c.b.Alt(alts...)
}

// Items returns the argument's arrays as their entries, with separator between. An array that prefixItems, contains or
// uniqueItems restricts is left out.
func (a *Argument) Items(separator string, entry func(item *Argument) grammar.Node) grammar.Node {
	var alts []grammar.Node
	for _, list := range a.value.arrs {
		if len(list.prefix) > 0 || len(list.contains) > 0 || list.unique {
			continue
		}
		if list.max == 0 || list.rest == nothing {
			alts = append(alts, a.c.b.Empty())
			continue
		}
		at := a.c.nodes[list.rest].place
		if at == nil {
			at = a.place
		}
		item := entry(&Argument{c: a.c, place: at, value: a.c.setOf(list.rest)})
		b, most := a.c.b, unbounded
		if list.max > 0 {
			most = list.max - 1
		}
		all := b.Seq(item, b.Repeat(b.Seq(b.Literal(separator), item), max(list.min-1, 0), most))
		if list.min == 0 {
			all = b.Optional(all)
		}
		alts = append(alts, all)
	}
	return a.c.b.Alt(alts...)
}

// Types returns the types of the values that the argument may have.
func (a *Argument) Types() (t Types) {
	s := a.value
	for _, has := range []struct {
		t   Types
		any bool
	}{{String, !s.str.isEmpty()}, {Number, !s.num.isEmpty()}, {Boolean, s.no || s.yes}, {Null, s.null},
		{Object, len(s.objs) > 0}, {Array, len(s.arrs) > 0}} {
		if has.any {
			t |= has.t
		}
	}
	return t
}

// JSON returns the argument's values of the types t as JSON.
func (a *Argument) JSON(t Types) grammar.Node {
	s := *a.value
	if t&String == 0 {
		s.str = a.c.none.str
	}
	if t&Number == 0 {
		s.num = a.c.none.num
	}
	if t&Boolean == 0 {
		s.no, s.yes = false, false
	}
	s.null = s.null && t&Null != 0
	if t&Object == 0 {
		s.objs = nil
	}
	if t&Array == 0 {
		s.arrs = nil
	}
	if a.c.err != nil {
		return a.c.b.Nothing()
	}
	return a.c.emitSet(a.place, &s)
}

// Strings returns the strings that the argument may be, decoded.
func (a *Argument) Strings() regex.Expr { return a.c.stringTexts(a.value.str) }

// Words returns the strings that the argument may be where schema lists them; ok is false where it does not.
func (a *Argument) Words() (words []string, ok bool) {
	return slices.Clone(a.value.str.values), a.value.str.finite
}

// Booleans reports which of false and true the argument may be.
func (a *Argument) Booleans() (no, yes bool) { return a.value.no, a.value.yes }
