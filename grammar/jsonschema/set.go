package jsonschema

import (
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// set is a set of JSON values, by type: the union of its parts. A set is never changed once it is made.
type set struct {
	null    bool
	no, yes bool // false, true
	num     numberSet
	str     stringSet
	arrs    []*array
	objs    []*object
}

// numberSet is a set of numbers: of their texts.
type numberSet struct {
	texts regex.Expr // see numbers: of each value all plain texts or none
	// finite says that values are all there are.
	finite bool
	values []decimal
	// whole says that every value is an integer.
	whole bool
}

// stringSet is a set of strings, decoded.
type stringSet struct {
	texts regex.Expr
	// finite says that values are all there are. texts is then computed from them when it is needed.
	finite bool
	values []string
}

func (c *compiler) fullSet() *set {
	return &set{null: true, no: true, yes: true, num: numberSet{texts: c.num.any}, str: stringSet{texts: c.s.AnyText()},
		arrs: []*array{{rest: anything, max: unbounded}}, objs: []*object{c.anyObject()}}
}

func noSet() *set {
	return &set{num: numberSet{finite: true, whole: true}, str: stringSet{finite: true}}
}

func (n numberSet) isEmpty() bool { return len(n.values) == 0 && (n.finite || n.texts == 0) }

func (s stringSet) isEmpty() bool { return len(s.values) == 0 && (s.finite || s.texts == 0) }

// scalarsOnly reports whether no array or object is in the set.
func (s *set) scalarsOnly() bool { return len(s.arrs) == 0 && len(s.objs) == 0 }

// numberTexts returns the expression of n.
func (c *compiler) numberTexts(n numberSet) regex.Expr {
	if !n.finite {
		return n.texts
	}
	es := make([]regex.Expr, len(n.values))
	for i, d := range n.values {
		es[i] = c.num.equal(d)
	}
	return c.s.Or(es...)
}

// stringTexts returns the expression of s.
func (c *compiler) stringTexts(s stringSet) regex.Expr {
	if !s.finite {
		return s.texts
	}
	return c.s.Literals(s.values)
}

func (c *compiler) intersect(p *place, a, b *set) *set {
	if a == c.full || b == c.none {
		return b
	}
	if b == c.full || a == c.none {
		return a
	}
	out := &set{null: a.null && b.null, no: a.no && b.no, yes: a.yes && b.yes, num: c.intersectNumbers(a.num, b.num),
		str: c.intersectStrings(a.str, b.str)}
	for _, x := range a.arrs {
		for _, y := range b.arrs {
			if !c.step(p) {
				return c.none
			}
			if m := c.intersectArrays(x, y); m != nil {
				out.arrs = append(out.arrs, m)
			}
		}
	}
	for _, x := range a.objs {
		for _, y := range b.objs {
			if !c.step(p) {
				return c.none
			}
			if m := c.intersectObjects(p, x, y); m != nil {
				out.objs = append(out.objs, m)
			}
		}
		c.checkWidth(p, out)
	}
	c.checkWidth(p, out)
	return c.tidy(out)
}

// checkWidth refuses a union of too many shapes.
func (c *compiler) checkWidth(p *place, s *set) {
	if len(s.arrs) > c.limits.Alternatives || len(s.objs) > c.limits.Alternatives {
		c.exceed(p, "", "its combinations have more than %d alternatives (Limits.Alternatives)", c.limits.Alternatives)
		s.arrs, s.objs = nil, nil
	}
}

// tidy drops shapes that others cover. The slices of s are its own.
func (c *compiler) tidy(s *set) *set {
	if len(s.objs) > 1 {
		s.objs = distinct(s.objs, func(y, x *object) bool { return c.covers(y, x) })
	}
	if len(s.arrs) > 1 {
		s.arrs = distinct(s.arrs, (*array).same)
	}
	return s
}

// distinct drops each element that another one covers; of two that cover each other the first stays.
func distinct[T any](in []T, covers func(y, x T) bool) []T {
	var out []T
	for _, x := range in {
		if slices.ContainsFunc(out, func(y T) bool { return covers(y, x) }) {
			continue
		}
		out = slices.DeleteFunc(out, func(y T) bool { return covers(x, y) })
		out = append(out, x)
	}
	return out
}

func (c *compiler) intersectNumbers(a, b numberSet) numberSet {
	if a.texts == b.texts && a.finite == b.finite && !a.finite {
		a.whole = a.whole || b.whole
		return a
	}
	if b.finite && !a.finite {
		a, b = b, a
	}
	if a.finite {
		out := numberSet{finite: true, whole: a.whole}
		for _, d := range a.values {
			if b.finite && slices.Contains(b.values, d) || !b.finite && c.s.Match(b.texts, []byte(d.String())) {
				out.values = append(out.values, d)
			}
		}
		return out
	}
	return numberSet{texts: c.s.And(a.texts, b.texts), whole: a.whole || b.whole}
}

func (c *compiler) intersectStrings(a, b stringSet) stringSet {
	if !a.finite && !b.finite {
		if any := c.s.AnyText(); a.texts == any {
			return b
		} else if b.texts == any {
			return a
		}
		return stringSet{texts: c.s.And(a.texts, b.texts)}
	}
	if b.finite && !a.finite {
		a, b = b, a
	}
	out := stringSet{finite: true}
	for _, v := range a.values {
		if b.finite && slices.Contains(b.values, v) || !b.finite && c.s.Match(b.texts, []byte(v)) {
			out.values = append(out.values, v)
		}
	}
	return out
}

func (c *compiler) union(p *place, a, b *set) *set {
	if a == c.none || b == c.full {
		return b
	}
	if b == c.none || a == c.full {
		return a
	}
	out := &set{null: a.null || b.null, no: a.no || b.no, yes: a.yes || b.yes}
	switch {
	case a.num.isEmpty():
		out.num = b.num
	case b.num.isEmpty():
		out.num = a.num
	case a.num.finite && b.num.finite:
		out.num = numberSet{finite: true, whole: a.num.whole && b.num.whole, values: merge(a.num.values, b.num.values)}
	default:
		out.num = numberSet{texts: c.s.Or(c.numberTexts(a.num), c.numberTexts(b.num)), whole: a.num.whole &&
			b.num.whole}
	}
	switch {
	case a.str.isEmpty():
		out.str = b.str
	case b.str.isEmpty():
		out.str = a.str
	case a.str.finite && b.str.finite:
		out.str = stringSet{finite: true, values: merge(a.str.values, b.str.values)}
	default:
		out.str = stringSet{texts: c.s.Or(c.stringTexts(a.str), c.stringTexts(b.str))}
	}
	out.arrs = slices.Concat(a.arrs, b.arrs)
	out.objs = slices.Concat(a.objs, b.objs)
	c.checkWidth(p, out)
	return c.tidy(out)
}

// merge returns a with what of b is not in it.
func merge[T comparable](a, b []T) []T {
	out := slices.Clone(a)
	seen := make(map[T]bool, len(a))
	for _, v := range a {
		seen[v] = true
	}
	for _, v := range b {
		if !seen[v] {
			out = append(out, v)
		}
	}
	return out
}

// complement returns every value that s does not hold.
func (c *compiler) complement(p *place, s *set) *set {
	switch s {
	case c.none:
		return c.full
	case c.full:
		return c.none
	}
	out := &set{null: !s.null, no: !s.no, yes: !s.yes}
	switch {
	case s.num.isEmpty():
		out.num = c.full.num
	case s.num.texts == c.num.any && !s.num.finite:
		out.num = c.none.num
	default:
		out.num = numberSet{texts: c.s.Minus(c.num.plain, c.numberTexts(s.num))}
	}
	switch any := c.s.AnyText(); {
	case s.str.isEmpty():
		out.str = c.full.str
	case s.str.texts == any && !s.str.finite:
		out.str = c.none.str
	default:
		out.str = stringSet{texts: c.s.Minus(any, c.stringTexts(s.str))}
	}
	arrays := &set{arrs: c.full.arrs}
	for _, a := range s.arrs {
		arrays = c.intersect(p, arrays, &set{arrs: c.complementArray(p, a)})
	}
	objects := &set{objs: c.full.objs}
	for _, o := range s.objs {
		objects = c.intersect(p, objects, &set{objs: c.complementObject(o)})
	}
	out.arrs, out.objs = arrays.arrs, objects.objs
	return out
}
