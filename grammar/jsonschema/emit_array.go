package jsonschema

import (
	"slices"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

func (c *compiler) emitArray(p *place, a *array) grammar.Node {
	var body grammar.Node
	switch {
	case a.unique && (a.max < 0 || a.max > 1):
		body = c.emitUnique(p, a)
	case len(a.contains) > 0:
		body = c.emitContains(p, a)
	default:
		body = c.items(a)
	}
	return c.bracket(c.marks.openArray, body, c.marks.closeArray, c.marks.endArray, a.min == 0 && len(a.contains) == 0)
}

// items is one or more of a's items.
func (c *compiler) items(a *array) grammar.Node {
	b := c.b
	if a.max == 0 {
		return b.Nothing()
	}
	if len(a.prefix) == 0 {
		item := c.emit(a.rest)
		if !c.setOf(a.rest).scalarsOnly() { // what a Seq and a Repeat would write out twice
			return b.Unordered(c.marks.comma, max(a.min, 1), a.max, grammar.Member{Node: item, Max: unbounded})
		}
		return b.Seq(item, b.Repeat(b.Seq(c.marks.comma, item), max(a.min-1, 0), max(a.max-1, unbounded)))
	}
	n := len(a.prefix)
	tail := b.Empty()
	if a.rest != nothing && (a.max < 0 || a.max > n) {
		most := unbounded
		if a.max >= 0 {
			most = a.max - n
		}
		tail = b.Repeat(b.Seq(c.marks.comma, c.emit(a.rest)), max(a.min-n, 0), most)
	}
	for i := n - 1; i > 0; i-- {
		tail = b.Seq(c.marks.comma, c.emit(a.prefix[i]), tail)
		if i >= a.min {
			tail = b.Optional(tail)
		}
	}
	return b.Seq(c.emit(a.prefix[0]), tail)
}

// emitUnique is one or more different items: values that are listed, of which each comes once, and others, which the
// automaton remembers.
func (c *compiler) emitUnique(p *place, a *array) grammar.Node {
	s := c.setOf(a.rest)
	if c.err != nil {
		return c.b.Nothing()
	}
	if !s.scalarsOnly() {
		c.refuse(p, "uniqueItems", "items that are arrays or objects cannot be told apart")
		return c.b.Nothing()
	}
	if len(a.prefix) > 0 || len(a.contains) > 0 || a.min > grammar.MaxDistinct {
		c.refuse(p, "uniqueItems", "it cannot be enforced beside prefixItems or contains, nor with minItems above %d",
			grammar.MaxDistinct)
		return c.b.Nothing()
	}
	var members []grammar.Member
	add := func(e regex.Expr) { members = append(members, grammar.Member{Node: c.b.Terminal(e), Max: 1}) }
	if s.null {
		add(c.s.Literal("null"))
	}
	if s.no {
		add(c.s.Literal("false"))
	}
	if s.yes {
		add(c.s.Literal("true"))
	}
	for _, d := range s.num.values {
		add(c.number(numberSet{finite: true, values: []decimal{d}}))
	}
	if !s.num.finite && !s.num.isEmpty() {
		texts := c.number(s.num)
		switch _, n := c.texts(c.s.And(texts, c.num.short), grammar.MaxDistinct); n {
		case many:
			members = append(members, grammar.Member{Node: c.b.Empty(), Key: c.numberKey(texts), Max: unbounded})
		default:
			c.refuse(p, "uniqueItems", "fewer than %d different numbers are not counted", grammar.MaxDistinct)
			return c.b.Nothing()
		}
	}
	str := s.str.values
	if !s.str.finite && s.str.texts != c.s.Nothing() {
		list, n := c.texts(s.str.texts, grammar.MaxDistinct)
		switch str = list; n {
		case many:
			members = append(members, grammar.Member{Node: c.b.Empty(), Key: c.stringKey(s.str.texts), Max: unbounded})
		case unknown:
			c.refuse(p, "uniqueItems", "how many different strings there are is not known")
			return c.b.Nothing()
		}
	}
	for _, v := range str {
		add(c.text(stringSet{finite: true, values: []string{v}}))
	}
	return c.b.Unordered(c.marks.comma, max(a.min, 1), a.max, members...)
}

// maxWitnesses is the most contains of one array: each way to share items among them is an alternative.
const maxWitnesses = 4

// emitContains is one or more items of which some are of given kinds.
func (c *compiler) emitContains(p *place, a *array) grammar.Node {
	b, comma := c.b, c.marks.comma
	if len(a.prefix) > 0 {
		return c.emitContainsBehind(p, a)
	}
	if len(a.contains) == 1 {
		h := a.contains[0]
		others := a.rest
		if h.max >= 0 {
			others = c.and(others, c.not(h.items))
		}
		list := b.Unordered(comma, max(a.min, 1), a.max, grammar.Member{Node: c.emit(c.and(a.rest, h.items)),
			Min: h.min, Max: h.max},
			grammar.Member{Node: c.emit(others), Max: unbounded})
		if h.min == 0 && a.min == 0 {
			return b.Optional(list)
		}
		return list
	}
	if len(a.contains) > maxWitnesses ||
		slices.ContainsFunc(a.contains, func(h contains) bool { return h.min != 1 || h.max >= 0 }) {
		c.refuse(p, "contains", "more than one with minContains or maxContains, or more than %d, cannot be counted",
			maxWitnesses)
		return b.Nothing()
	}
	var alts []grammar.Node
	for groups := range partitions(len(a.contains)) {
		var members []grammar.Member
		for _, g := range groups {
			kind := a.rest
			for _, i := range g {
				kind = c.and(kind, a.contains[i].items)
			}
			members = append(members, grammar.Member{Node: c.emitShared(kind), Min: 1, Max: 1})
		}
		members = append(members, grammar.Member{Node: c.emitShared(a.rest), Max: unbounded})
		alts = append(alts, b.Unordered(comma, max(a.min, 1), a.max, members...))
	}
	return b.Alt(alts...)
}

// emitContainsBehind is emitContains where items have places: the one that counts is in one of them or behind.
func (c *compiler) emitContainsBehind(p *place, a *array) grammar.Node {
	b := c.b
	h := a.contains[0]
	if len(a.contains) > 1 || h.min != 1 || h.max >= 0 {
		c.refuse(p, "contains", "beside prefixItems only one, without minContains or maxContains, can be enforced")
		return b.Nothing()
	}
	var alts []grammar.Node
	n := len(a.prefix)
	for i := range a.prefix {
		x := *a
		x.contains, x.prefix, x.min = nil, slices.Clone(a.prefix), max(a.min, i+1)
		x.prefix[i] = c.and(x.prefix[i], h.items)
		alts = append(alts, c.items(&x))
	}
	if a.rest != nothing && (a.max < 0 || a.max > n) {
		var seq []grammar.Node
		for _, r := range a.prefix {
			seq = append(seq, c.emitShared(r), c.marks.comma)
		}
		most := unbounded
		if a.max >= 0 {
			most = a.max - n
		}
		seq = append(seq, b.Unordered(c.marks.comma, max(a.min-n, 1), most,
			grammar.Member{Node: c.emitShared(c.and(a.rest, h.items)), Min: 1, Max: unbounded},
			grammar.Member{Node: c.emitShared(a.rest), Max: unbounded}))
		alts = append(alts, b.Seq(seq...))
	}
	return b.Alt(alts...)
}

// partitions yields the ways to split 0 to n-1 into groups.
func partitions(n int) func(func([][]int) bool) {
	return func(yield func([][]int) bool) {
		var split func(i int, groups [][]int) bool
		split = func(i int, groups [][]int) bool {
			if i == n {
				return yield(groups)
			}
			for g := range groups {
				next := slices.Clone(groups)
				next[g] = append(slices.Clone(groups[g]), i)
				if !split(i+1, next) {
					return false
				}
			}
			return split(i+1, append(slices.Clone(groups), []int{i}))
		}
		split(0, nil)
	}
}
