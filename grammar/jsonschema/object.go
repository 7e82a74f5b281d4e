package jsonschema

import (
	"maps"
	"slices"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

// object is a set of objects: named members, and the others by classes of their names.
type object struct {
	props    []property // in the order in which they are written
	index    map[string]int
	classes  []class // Invariant: every name is in exactly one class; that of a property counts for nothing
	min, max int     // members in all
	has      []witness
	closed   bool // with Options.Closed: members of any name and value are left out where nothing counts them
}

// property is a member by its name. nothing as its value, where it is not required, says that it may not be there.
type property struct {
	name     string
	value    ref
	required bool
}

// class holds the set of values of the members whose names match names and that are no property.
type class struct {
	names regex.Expr // decoded
	value ref
}

// witness says that there is a member whose name matches names and whose value is one of value.
type witness struct {
	names regex.Expr
	value ref
}

func (c *compiler) anyObject() *object {
	return &object{classes: []class{{c.s.AnyText(), anything}}, max: unbounded}
}

// isAny reports whether every object is in o.
func (o *object) isAny() bool {
	return len(o.props) == 0 && len(o.classes) == 1 && o.classes[0].value == anything && o.min == 0 && o.max < 0 &&
		len(o.has) == 0 && !o.closed
}

// add appends a property.
func (o *object) add(p property) {
	if o.index == nil {
		o.index = map[string]int{}
	}
	o.index[p.name] = len(o.props)
	o.props = append(o.props, p)
}

// lookup returns the set of values of a member called name, and whether the member is required.
func (c *compiler) lookup(o *object, name string) (ref, bool) {
	if i, ok := o.index[name]; ok {
		return o.props[i].value, o.props[i].required
	}
	return c.classOf(o, name), false
}

func (c *compiler) classOf(o *object, name string) ref {
	for _, k := range o.classes {
		if len(o.classes) == 1 || c.s.Match(k.names, []byte(name)) {
			return k.value
		}
	}
	return anything
}

// noNames reports whether e, of names, matches none. A question that is too hard counts as no.
func (c *compiler) noNames(e regex.Expr) bool {
	empty, err := c.s.IsEmpty(e)
	return err == nil && empty
}

func (c *compiler) intersectObjects(p *place, x, y *object) *object {
	if x.isAny() {
		return y
	}
	if y.isAny() {
		return x
	}
	o := &object{min: max(x.min, y.min), max: smaller(x.max, y.max), has: slices.Concat(x.has, y.has),
		closed: x.closed || y.closed}
	for _, m := range x.props {
		v, required := c.lookup(y, m.name)
		o.add(property{m.name, c.both(m.value, v), m.required || required})
	}
	for _, m := range y.props {
		if _, ok := x.index[m.name]; !ok {
			o.add(property{m.name, c.both(m.value, c.classOf(x, m.name)), m.required})
		}
	}
	o.classes = c.intersectClasses(p, x.classes, y.classes)
	return c.settleObject(o)
}

// both returns the intersection of a and b, and nothing where that is sure to be empty: an object that requires it is
// left out.
func (c *compiler) both(a, b ref) ref {
	r := c.and(a, b)
	if r != a && r != b && c.isEmpty(r) {
		return nothing
	}
	return r
}

// covers reports whether, by their forms, every object of x is one of y.
func (c *compiler) covers(y, x *object) bool {
	if y.min > x.min || y.max >= 0 && (x.max < 0 || x.max > y.max) || len(y.has) > 0 && !slices.Equal(x.has, y.has) ||
		!slices.Equal(x.classes, y.classes) {
		return false
	}
	if y.closed && (!x.closed || slices.ContainsFunc(x.props, func(m property) bool {
		_, ok := y.index[m.name]
		return !ok
	})) {
		return false
	}
	for _, m := range y.props {
		v, required := c.lookup(x, m.name)
		if m.required && !required || !c.within(v, m.value) {
			return false
		}
	}
	for _, m := range x.props {
		if _, ok := y.index[m.name]; !ok && !c.within(m.value, c.classOf(y, m.name)) {
			return false
		}
	}
	return true
}

func (c *compiler) intersectClasses(p *place, x, y []class) []class {
	var out []class
	for _, a := range x {
		for _, b := range y {
			names := a.names
			switch {
			case len(y) == 1:
			case len(x) == 1:
				names = b.names
			case a.names == b.names:
			default:
				names = c.s.And(a.names, b.names)
				if c.noNames(names) {
					continue
				}
			}
			out = c.addClass(out, class{names, c.and(a.value, b.value)})
		}
	}
	if len(out) > c.limits.Alternatives {
		c.exceed(p, "patternProperties", "its combinations have more than %d classes of names (Limits.Alternatives)",
			c.limits.Alternatives)
	}
	return out
}

// addClass adds k to classes, joined with the one that has its value.
func (c *compiler) addClass(classes []class, k class) []class {
	for i := range classes {
		if classes[i].value == k.value {
			classes[i].names = c.s.Or(classes[i].names, k.names)
			return classes
		}
	}
	return append(classes, k)
}

// settleObject returns nil when o, by its form, is no object.
func (c *compiler) settleObject(o *object) *object {
	required, possible := 0, 0
	for _, m := range o.props {
		if m.required {
			required++
			if m.value == nothing {
				return nil
			}
		}
		if m.value != nothing {
			possible++
		}
	}
	if slices.ContainsFunc(o.classes, func(k class) bool { return k.value != nothing }) {
		possible = unbounded
	}
	if o.max >= 0 && required > o.max || possible >= 0 && o.min > possible {
		return nil
	}
	return o
}

// complementObject returns every object that is not in o.
func (c *compiler) complementObject(o *object) []*object {
	var out []*object
	named := func(m property) {
		x := c.anyObject()
		x.add(m)
		out = append(out, x)
	}
	for _, m := range o.props {
		if m.required {
			named(property{m.name, nothing, false})
		}
		if m.value != anything {
			named(property{m.name, c.not(m.value), true})
		}
	}
	others := c.s.Not(c.s.Nothing())
	if len(o.props) > 0 {
		others = c.s.Not(c.s.Literals(o.names()))
	}
	for _, k := range o.classes {
		if k.value != anything {
			x := c.anyObject()
			x.has = []witness{{c.s.And(k.names, others), c.not(k.value)}}
			out = append(out, x)
		}
	}
	if o.min > 0 {
		x := c.anyObject()
		x.max = o.min - 1
		out = append(out, x)
	}
	if o.max >= 0 {
		x := c.anyObject()
		x.min = o.max + 1
		out = append(out, x)
	}
	for _, h := range o.has {
		out = append(out, &object{classes: c.split(h.names, c.not(h.value)), max: unbounded})
	}
	return out
}

// split returns the classes of names, which have value, and of all others, which may be anything.
func (c *compiler) split(names regex.Expr, value ref) []class {
	return []class{{names, value}, {c.s.Minus(c.s.AnyText(), names), anything}}
}

func (o *object) names() []string {
	out := make([]string, len(o.props))
	for i, m := range o.props {
		out[i] = m.name
	}
	return out
}

// requirement is an object whose has is resolved: classes that must have a member.
type requirement struct {
	object *object
	open   []class // each with at least one member, apart from the object's classes
	// distinct: the names of members are remembered. Then each of open has one member, and its names and values are
	// also among the object's classes. Otherwise, of two members of one name the last counts.
	distinct bool
}

// resolveHas splits o by which member is the witness of each has: a property, which is then required, or one of a
// class.
func (c *compiler) resolveHas(p *place, o *object) []requirement {
	out := []requirement{{object: o, distinct: len(o.has) > 1}}
	for _, h := range o.has {
		var next []requirement
		for _, r := range out {
			next = append(next, c.resolveOne(p, r, h)...)
		}
		if out = next; len(out) > c.limits.Alternatives {
			c.exceed(p, "not", "its combinations have more than %d alternatives (Limits.Alternatives)",
				c.limits.Alternatives)
			return nil
		}
	}
	return out
}

func (c *compiler) resolveOne(p *place, r requirement, h witness) []requirement {
	var out []requirement
	o := r.object
	for i, m := range o.props {
		if m.value == nothing || !c.s.Match(h.names, []byte(m.name)) {
			continue
		}
		v := c.and(m.value, h.value)
		if c.isEmpty(v) {
			continue
		}
		x := *o
		x.props = slices.Clone(o.props)
		x.props[i].value, x.props[i].required = v, true
		out = append(out, requirement{&x, r.open, r.distinct})
	}
	for i, k := range r.open { // the member of another witness
		names, v := c.s.And(k.names, h.names), c.and(k.value, h.value)
		if r.distinct && !c.noNames(names) && !c.isEmpty(v) {
			rest := slices.Delete(slices.Clone(r.open), i, i+1)
			out = append(out, c.require(p, requirement{o, rest, true}, class{names, v})...)
		}
	}
	for i, k := range o.classes {
		if k.value == nothing {
			continue
		}
		names := c.s.And(k.names, h.names)
		if len(o.props) > 0 {
			names = c.s.Minus(names, c.s.Literals(o.names()))
		}
		v := c.and(k.value, h.value)
		if c.noNames(names) || c.isEmpty(v) {
			continue
		}
		if r.distinct || v != k.value {
			out = append(out, c.require(p, requirement{o, r.open, true}, class{names, v})...)
			continue
		}
		x := *o
		x.classes = slices.Clone(o.classes)
		x.classes[i].names = c.s.Minus(k.names, h.names)
		out = append(out, requirement{&x, append(slices.Clone(r.open), class{names, k.value}), false})
	}
	return out
}

// maxWitnessNames is the most names of a witness of which each is an alternative.
const maxWitnessNames = 64

// require adds a member to r that is one of k.
func (c *compiler) require(p *place, r requirement, k class) []requirement {
	list, n := c.texts(k.names, maxWitnessNames)
	switch {
	case n == few:
		var out []requirement
		for _, name := range list {
			x := *r.object
			x.props, x.index = slices.Clone(x.props), maps.Clone(x.index)
			if i, ok := x.index[name]; ok { // the member of another witness
				v := c.and(x.props[i].value, k.value)
				if c.isEmpty(v) {
					continue
				}
				x.props[i].value, x.props[i].required = v, true
			} else {
				x.add(property{name, k.value, true})
			}
			out = append(out, requirement{&x, r.open, r.distinct})
		}
		return out
	case n == many:
		// Other members must not use up the names.
		_, n = c.texts(k.names, grammar.MaxDistinct)
	}
	if n != many {
		c.refuse(p, "not", "of %d to %d names, which one a member has cannot be enforced", maxWitnessNames,
			grammar.MaxDistinct)
		return nil
	}
	r.open = append(slices.Clone(r.open), k)
	return []requirement{r}
}
