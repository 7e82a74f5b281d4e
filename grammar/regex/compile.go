package regex

import "fmt"

// compiler turns syntax trees into expressions. It goes from the end of the pattern to its start and carries what the
// rest of the text must be, because an assertion speaks of all that follows: (?=x)k is (x…) & k, $ is the empty rest.
type compiler struct {
	set    *Set
	budget int // trees it may still visit
	err    error
}

// maxUnrolled is the largest count of a repetition that has an assertion inside; each repetition is written out.
const maxUnrolled = 16

func (c *compiler) fail(what string) Expr {
	if c.err == nil {
		c.err = fmt.Errorf("regex: %s: %w", what, ErrUnsupported)
	}
	return 0
}

// compile returns the texts of t followed by rest. atStart says that the text begins here.
func (c *compiler) compile(t *tree, rest Expr, atStart bool) Expr {
	if c.budget--; c.budget < 0 && c.err == nil {
		c.err = fmt.Errorf("regex: assertions make the pattern larger than %d expressions (Limits.Expressions): %w",
			c.set.limits.Expressions, ErrLimit)
	}
	if c.err != nil || rest == 0 {
		return 0
	}
	s := c.set
	if !t.asserts {
		return s.concat(c.plain(t), rest)
	}
	switch t.op {
	case opBegin:
		if atStart {
			return rest
		}
		return 0
	case opEnd:
		if s.nodes[rest].nullable {
			return s.Empty()
		}
		return 0
	case opLook:
		ahead := c.compile(t.kids[0], s.AnyText(), atStart)
		if t.negated {
			ahead = s.Not(ahead)
		}
		return s.And(rest, ahead)
	case opAlt:
		es := make([]Expr, len(t.kids))
		for i, k := range t.kids {
			es[i] = c.compile(k, rest, atStart)
		}
		return s.or(es)
	case opCat:
		return c.sequence(t.kids, rest, atStart)
	case opRepeat:
		return c.repeat(t, rest, atStart)
	}
	return 0
}

// sequence compiles kids in order. Behind a part that may be empty the text may or may not begin: both are compiled,
// the first only when it matters.
func (c *compiler) sequence(kids []*tree, rest Expr, atStart bool) Expr {
	if len(kids) == 0 {
		return rest
	}
	s, first, more := c.set, kids[0], kids[1:]
	begins := false
	for _, k := range more {
		begins = begins || k.begins
	}
	if !atStart || !begins {
		return c.compile(first, c.sequence(more, rest, false), atStart)
	}
	if first.asserts {
		switch first.op {
		case opBegin, opEnd, opLook: // they take nothing: the start is still here
			return c.compile(first, c.sequence(more, rest, true), true)
		}
		return c.fail("a ^ behind a group with assertions")
	}
	e := c.plain(first)
	some := s.Concat(e, c.sequence(more, rest, false))
	if !s.nodes[e].nullable {
		return some
	}
	return s.Or(some, c.sequence(more, rest, true))
}

func (c *compiler) repeat(t *tree, rest Expr, atStart bool) Expr {
	if t.max < 0 && t.min <= 1 && onlyEnds(t.kids[0]) {
		return c.repeatToEnd(t, rest)
	}
	if t.max < 0 || t.max > maxUnrolled {
		return c.fail(fmt.Sprintf("an assertion inside a repetition of more than %d", maxUnrolled))
	}
	if atStart && t.begins && t.max > 1 {
		return c.fail("a ^ inside a repetition")
	}
	alts := []Expr{}
	e := rest
	for n := 0; ; n++ {
		if n >= t.min {
			alts = append(alts, e)
		}
		if n == t.max {
			return c.set.or(alts)
		}
		e = c.compile(t.kids[0], e, atStart && t.max == 1)
	}
}

// onlyEnds reports whether $ is the only assertion in t.
func onlyEnds(t *tree) bool {
	if t.op == opBegin || t.op == opLook {
		return false
	}
	for _, k := range t.kids {
		if k.asserts && !onlyEnds(k) {
			return false
		}
	}
	return true
}

// repeatToEnd compiles x* and x+ where x has $ in it and nothing else that asserts. A repetition that passes a $ is at
// the end of the text: it is the last one that takes anything, and what follows must match the empty text.
func (c *compiler) repeatToEnd(t *tree, rest Expr) Expr {
	s := c.set
	free := s.Repeat(c.plain(withoutEnds(t.kids[0])), t.min, t.max)
	out := s.concat(free, rest)
	if s.nodes[rest].nullable {
		last := c.compile(t.kids[0], s.Empty(), false)
		out = s.Or(out, s.Concat(s.Star(c.plain(withoutEnds(t.kids[0]))), last))
	}
	return out
}

// withoutEnds is t where each $ fails.
func withoutEnds(t *tree) *tree {
	if !t.asserts {
		return t
	}
	if t.op == opEnd {
		return &tree{op: opClass} // of no code point
	}
	out := *t
	out.asserts, out.begins, out.kids = false, false, nil
	for _, k := range t.kids {
		out.kids = append(out.kids, withoutEnds(k))
	}
	return &out
}

// plain returns the expression of a tree without assertions.
func (c *compiler) plain(t *tree) Expr {
	s := c.set
	switch t.op {
	case opClass:
		return s.Runes(t.ranges...)
	case opRepeat:
		return s.Repeat(c.plain(t.kids[0]), t.min, t.max)
	case opCat, opAlt:
		es := make([]Expr, len(t.kids))
		for i, k := range t.kids {
			es[i] = c.plain(k)
		}
		if t.op == opAlt {
			return s.or(es)
		}
		return s.Concat(es...)
	}
	return s.Empty()
}
