package jsonschema

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

// marks are the grammar's nodes of punctuation, white space included.
type marks struct {
	openArray, closeArray, endArray    grammar.Node // close follows an item, end follows open
	openObject, closeObject, endObject grammar.Node
	comma                              grammar.Node
	quote, colon                       regex.Expr
	around                             grammar.Node
}

// maxIndent is the longest indentation of Pretty, as in llama.cpp's grammars of schemas.
const maxIndent = 20

func (c *compiler) newMarks() marks {
	s, b := c.s, c.b
	inner, after, before := s.Empty(), s.Empty(), s.Empty() // inside brackets; behind , and :; before them
	around := s.Empty()
	switch c.opts.Whitespace {
	case Pretty:
		after = s.Optional(s.Byte(' '))
		inner = s.Or(after, s.Concat(s.Byte('\n'), s.Repeat(s.Bytes(regex.ByteOf(" \t")), 0, maxIndent)))
	case Free:
		inner = s.Star(s.Bytes(regex.ByteOf(" \t\r\n")))
		after, before, around = inner, inner, inner
	}
	open := func(mark string) grammar.Node { return b.Terminal(s.Concat(s.Literal(mark), inner)) }
	shut := func(mark string) grammar.Node { return b.Terminal(s.Concat(inner, s.Literal(mark))) }
	return marks{
		openArray: open("["), closeArray: shut("]"), endArray: b.Literal("]"),
		openObject: open("{"), closeObject: shut("}"), endObject: b.Literal("}"),
		comma:  b.Terminal(s.Concat(before, s.Byte(','), inner)),
		colon:  s.Concat(before, s.Byte(':'), after),
		quote:  s.Byte('"'),
		around: b.Terminal(around),
	}
}

// maxEmitting is the longest chain of schemas, one inside the other, that is written: it bounds the stack.
const maxEmitting = 10_000

// emission is the grammar of a set. One that is used more than once, or inside itself, is a rule: nodes are written out
// where they are used.
type emission struct {
	uses int
	node grammar.Node
	rule grammar.Node
	done bool
}

func (c *compiler) emitRoot(r ref) grammar.Node {
	c.countUses(r, 0)
	n := c.emit(r)
	if c.opts.Whitespace == Free {
		n = c.b.Seq(c.marks.around, n, c.marks.around)
	}
	return n
}

// countUses counts how often each set is used below r.
func (c *compiler) countUses(r ref, depth int) {
	if c.err != nil || r == nothing {
		return
	}
	if depth > maxEmitting {
		c.exceed(c.nodes[r].place, "", "a chain of more than %d schemas", maxEmitting)
		return
	}
	s := c.setOf(r)
	e := c.emitted[s]
	if e == nil {
		e = &emission{}
		c.emitted[s] = e
	}
	if e.uses++; e.uses > 1 {
		return
	}
	for _, a := range s.arrs {
		for _, p := range a.prefix {
			c.countUses(p, depth+1)
		}
		c.countUses(a.rest, depth+1)
	}
	for _, o := range s.objs {
		for _, m := range o.props {
			c.countUses(m.value, depth+1)
		}
		for _, k := range o.classes {
			c.countUses(k.value, depth+1)
		}
	}
}

// emit returns the grammar of r's values.
func (c *compiler) emit(r ref) grammar.Node {
	if c.err != nil || r == nothing {
		return c.b.Nothing()
	}
	s := c.setOf(r)
	e := c.emitted[s]
	if e == nil { // of a combination that only emitting makes
		e = &emission{uses: 1}
		c.emitted[s] = e
	}
	switch {
	case e.rule != 0:
		return e.rule
	case e.done && s.scalarsOnly():
		return e.node
	case e.done, e.node != 0: // again, or inside itself
		e.rule = c.b.Rule("schema")
		if e.done {
			c.b.Define(e.rule, e.node)
		}
		return e.rule
	}
	if c.emitting++; c.emitting > maxEmitting {
		c.exceed(c.nodes[r].place, "", "a chain of more than %d schemas", maxEmitting)
		return c.b.Nothing()
	}
	if e.uses > 1 && !s.scalarsOnly() {
		e.rule = c.b.Rule("schema")
	}
	e.node = c.b.Empty() // says that it is being written
	e.node = c.emitSet(c.nodes[r].place, s)
	c.emitting--
	e.done = true
	if e.rule != 0 {
		c.b.Define(e.rule, e.node)
		return e.rule
	}
	return e.node
}

// emitShared is emit for a node that is put into more than one place: anything but a terminal becomes a rule.
func (c *compiler) emitShared(r ref) grammar.Node {
	if c.err == nil && r != nothing {
		s := c.setOf(r)
		e := c.emitted[s]
		if e == nil {
			e = &emission{}
			c.emitted[s] = e
		}
		e.uses += 2
	}
	return c.emit(r)
}

func (c *compiler) emitSet(p *place, s *set) grammar.Node {
	var alts []grammar.Node
	if t := c.scalars(s); t != c.s.Nothing() {
		alts = append(alts, c.b.Terminal(t))
	}
	for _, a := range s.arrs {
		alts = append(alts, c.emitArray(p, a))
	}
	for _, o := range s.objs {
		for _, q := range c.resolveHas(p, o) {
			alts = append(alts, c.emitObject(p, q))
		}
	}
	if len(alts) == 1 {
		return alts[0]
	}
	return c.b.Alt(alts...)
}

// scalars returns the texts of s's null, booleans, numbers and strings.
func (c *compiler) scalars(s *set) regex.Expr {
	var es []regex.Expr
	if s.null {
		es = append(es, c.s.Literal("null"))
	}
	if s.no {
		es = append(es, c.s.Literal("false"))
	}
	if s.yes {
		es = append(es, c.s.Literal("true"))
	}
	es = append(es, c.number(s.num), c.text(s.str))
	return c.s.Or(es...)
}

func (c *compiler) number(n numberSet) regex.Expr {
	switch {
	case c.opts.AnyForm:
		return c.numberTexts(n)
	case n.finite:
		texts := make([]string, len(n.values))
		for i, d := range n.values {
			texts[i] = d.String()
		}
		return c.s.Literals(texts)
	case n.whole && n.texts == c.num.integer:
		return c.ending(c.num.short)
	case n.whole:
		return c.ending(c.s.And(n.texts, c.num.short))
	}
	return c.ending(n.texts)
}

// ending leaves out texts of numbers with more digits than a reader keeps: models that repeat themselves write digits
// without an end. All are left in where no shorter one is.
func (c *compiler) ending(texts regex.Expr) regex.Expr {
	short := c.s.And(texts, c.num.ending)
	if empty, err := c.s.IsEmpty(short); empty || err != nil {
		return texts
	}
	return short
}

func (c *compiler) text(s stringSet) regex.Expr {
	if s.finite {
		texts := make([]string, len(s.values))
		for i, v := range s.values {
			texts[i] = quote(v)
		}
		return c.s.Literals(texts)
	}
	if s.texts == c.s.Nothing() {
		return s.texts
	}
	return c.s.Concat(c.marks.quote, c.s.JSONString(s.texts), c.marks.quote)
}

// quote writes s as a JSON string with the escapes that must be.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case ch == '"' || ch == '\\':
			b.WriteByte('\\')
			b.WriteByte(ch)
		case ch >= ' ':
			b.WriteByte(ch)
		default:
			if j := strings.IndexByte("\b\f\n\r\t", ch); j >= 0 {
				b.WriteByte('\\')
				b.WriteByte("bfnrt"[j])
			} else {
				b.WriteString(`\u00`)
				b.WriteByte("01"[ch>>4])
				b.WriteByte("0123456789abcdef"[ch&15])
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}

// bracket is body between open and shut, or open and end with nothing between, where empty allows it. body, where it
// is Nothing, leaves only that.
func (c *compiler) bracket(open, body, shut, end grammar.Node, empty bool) grammar.Node {
	full := c.b.Seq(open, body, shut)
	if !empty {
		return full
	}
	return c.b.Seq(open, c.b.Alt(end, c.b.Seq(body, shut)))
}

func (c *compiler) emitObject(p *place, q requirement) grammar.Node {
	o := q.object
	var named, open []grammar.Member
	required := 0
	distinct := q.distinct || c.uncounted(o)
	unordered := distinct || c.opts.AnyForm || o.max >= 0 || len(q.open) > 0 || c.mustCount(o)
	value := c.emit
	if !unordered {
		value = c.emitShared // ordered puts a member into two places
	}
	for _, m := range o.props {
		if m.value == nothing {
			continue
		}
		key := c.b.Terminal(c.s.Concat(c.s.Literal(quote(m.name)), c.marks.colon))
		member := grammar.Member{Node: c.b.Seq(key, value(m.value)), Max: 1}
		if m.required {
			member.Min = 1
			required++
		}
		named = append(named, member)
	}
	declared := c.s.Literals(o.names())
	class := func(k class, least, most int) {
		names := k.names
		if len(o.props) > 0 {
			names = c.s.Minus(names, declared)
		}
		if distinct {
			list, n := c.texts(names, grammar.MaxDistinct)
			switch {
			case n == few && least == 0: // each is a member like those of properties
				for _, name := range list {
					key := c.b.Terminal(c.s.Concat(c.s.Literal(quote(name)), c.marks.colon))
					named = append(named, grammar.Member{Node: c.b.Seq(key, c.emitShared(k.value)), Max: 1})
				}
				return
			case n != many:
				c.refuse(p, "minProperties", "of up to %d names that properties does not list, members cannot be "+
					"counted", grammar.MaxDistinct)
				return
			}
			open = append(open, grammar.Member{Key: c.stringKey(names), Min: least, Max: most,
				Node: c.b.Seq(c.b.Terminal(c.marks.colon), value(k.value))})
			return
		}
		key := c.s.Concat(c.marks.quote, c.s.JSONString(names), c.marks.quote, c.marks.colon)
		open = append(open, grammar.Member{Node: c.b.Seq(c.b.Terminal(key), value(k.value)), Min: least,
			Max: unbounded})
	}
	most := unbounded
	if q.distinct {
		most = 1
	}
	for _, k := range q.open {
		class(k, 1, most)
	}
	for _, k := range o.classes {
		if k.value != nothing && !(o.closed && k.value == anything && !c.mustCount(o)) {
			class(k, 0, unbounded)
		}
	}
	if distinct && o.min > grammar.MaxDistinct {
		c.refuse(p, "minProperties", "above %d it cannot be enforced", grammar.MaxDistinct)
		return c.b.Nothing()
	}
	least := o.min
	if least <= required {
		least = 0
	}
	var body grammar.Node
	if unordered {
		body = c.b.Unordered(c.marks.comma, max(least, 1), o.max, append(named, open...)...)
	} else {
		body = c.ordered(named, open)
	}
	return c.bracket(c.marks.openObject, body, c.marks.closeObject, c.marks.endObject, required == 0 && least == 0 &&
		len(q.open) == 0)
}

// uncounted reports whether o has more members than the required ones, and one more, whose names properties does not
// list: then their names must be remembered, because two members may have one name.
func (c *compiler) uncounted(o *object) bool {
	required := 0
	for _, m := range o.props {
		if m.required {
			required++
		}
	}
	return o.min > required+1 && slices.ContainsFunc(o.classes, func(k class) bool { return k.value != nothing })
}

// mustCount reports whether a minimum of members is more than the required ones.
func (c *compiler) mustCount(o *object) bool {
	required := 0
	for _, m := range o.props {
		if m.required {
			required++
		}
	}
	return o.min > required
}

// maxInline is the most optional members at the start of an object of which what follows is written out again for each.
const maxInline = 4

// ordered is one or more members: named in their order, then any number of open.
func (c *compiler) ordered(named, open []grammar.Member) grammar.Node {
	b := c.b
	after, first := b.Empty(), b.Nothing() // what may follow a member; what may come where none was
	optional := 0                          // members before the first required one: any of them may be the first
	for optional < len(named) && named[optional].Min == 0 {
		optional++
	}
	if len(open) > 0 {
		kinds := make([]grammar.Node, len(open))
		for i, m := range open {
			kinds[i] = m.Node
		}
		one := b.Alt(kinds...)
		after = b.Repeat(b.Seq(c.marks.comma, one), 0, unbounded)
		first = b.Seq(one, after)
	}
	for i, m := range slices.Backward(named) {
		if i < optional && optional > maxInline {
			rest := b.Rule("members")
			b.Define(rest, after)
			after = rest
		}
		begin := b.Seq(m.Node, after)
		if m.Min > 0 {
			first = begin
			after = b.Seq(c.marks.comma, m.Node, after)
		} else {
			first = b.Alt(begin, first)
			after = b.Seq(b.Optional(b.Seq(c.marks.comma, m.Node)), after)
		}
	}
	return first
}
