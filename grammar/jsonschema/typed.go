package jsonschema

import (
	"errors"
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// The keywords of one type each cut down that type's part of a set.

func (c *compiler) numberKeywords(p *place, out *set) *set {
	if out.num.isEmpty() {
		return out
	}
	var lo, hi bound
	read := func(keyword string) (decimal, bool) {
		v := p.v.get(keyword)
		if v == nil || v.kind == boolValue {
			return decimal{}, false
		}
		if v.kind != numberValue {
			c.invalid(p, keyword, "want a number, have %s", v.kind)
			return decimal{}, false
		}
		d, err := parseDecimal(v.text)
		if err != nil {
			c.invalid(p, keyword, "%s", err)
		}
		return d, err == nil
	}
	flag := func(keyword string) bool { v := p.v.get(keyword); return v != nil && v.kind == boolValue && v.truth }
	if d, ok := read("minimum"); ok {
		lo = bound{true, flag("exclusiveMinimum"), d}
	}
	if d, ok := read("maximum"); ok {
		hi = bound{true, flag("exclusiveMaximum"), d}
	}
	if d, ok := read("exclusiveMinimum"); ok && (!lo.set || d.cmp(lo.at) >= 0) {
		lo = bound{true, true, d}
	}
	if d, ok := read("exclusiveMaximum"); ok && (!hi.set || d.cmp(hi.at) <= 0) {
		hi = bound{true, true, d}
	}
	num := out.num
	if lo.set || hi.set {
		num = c.intersectNumbers(num, numberSet{texts: c.num.between(lo, hi)})
	}
	if d, ok := read("multipleOf"); ok {
		e, err := c.num.multipleOf(d)
		if err != nil {
			return c.refuse(p, "multipleOf", "%s", err)
		}
		num = c.intersectNumbers(num, numberSet{texts: e, whole: d.isInt()})
	}
	if !same(num, out.num) {
		s := *out
		s.num = num
		out = &s
	}
	return out
}

func same(a, b numberSet) bool {
	return !a.finite && !b.finite && a.texts == b.texts && a.whole == b.whole
}

// counts reads a pair of keywords for a least and a most.
func (c *compiler) counts(p *place, least, most string) (lo, hi int) {
	read := func(keyword string, none int) int {
		v := p.v.get(keyword)
		if v == nil {
			return none
		}
		n, err := v.count()
		if err != nil {
			c.invalid(p, keyword, "%s", err)
		}
		return n
	}
	return read(least, 0), read(most, unbounded)
}

func (c *compiler) stringKeywords(p *place, out *set) *set {
	if out.str.isEmpty() {
		return out
	}
	str := out.str
	if lo, hi := c.counts(p, "minLength", "maxLength"); lo > 0 || hi >= 0 {
		str = c.intersectStrings(str, stringSet{texts: c.s.Repeat(c.s.AnyRune(), lo, hi)})
	}
	if v := p.v.get("pattern"); v != nil {
		e, ok := c.pattern(p, "pattern", v)
		if !ok {
			return c.none
		}
		str = c.intersectStrings(str, stringSet{texts: e})
	}
	if v := p.v.get("format"); v != nil {
		if v.kind != stringValue {
			return c.invalid(p, "format", "want a name, have %s", v.kind)
		}
		e, known, err := c.format(v.text)
		switch {
		case err != nil:
			return c.refuse(p, "format", "%s", err)
		case known && p.v.get("type") == nil && p.res.draft == draft2020 && p.res.root.get("$schema") != nil:
			return c.refuse(p, "format", "without a type, draft 2020-12 leaves open whether it binds; add \"type\": "+
				"\"string\"")
		case known:
			str = c.intersectStrings(str, stringSet{texts: e})
		}
	}
	if str.finite == out.str.finite && str.texts == out.str.texts && !str.finite {
		return out
	}
	s := *out
	s.str = str
	return &s
}

// pattern compiles the regular expression v; a false ok comes with an error in c.
func (c *compiler) pattern(p *place, keyword string, v *value) (e regex.Expr, ok bool) {
	if v.kind != stringValue {
		c.invalid(p, keyword, "want a regular expression, have %s", v.kind)
		return 0, false
	}
	return c.parsePattern(p, keyword, v.text)
}

func (c *compiler) parsePattern(p *place, keyword, text string) (regex.Expr, bool) {
	flavour := regex.ECMA
	if c.opts.AnyForm {
		flavour = regex.ECMAExact
	}
	e, err := c.s.Parse(text, flavour)
	switch {
	case err == nil:
		return e, true
	case errors.Is(err, regex.ErrSyntax):
		c.invalid(p, keyword, "%s", err)
	case errors.Is(err, regex.ErrLimit):
		c.exceed(p, keyword, "%s", err)
	default:
		c.refuse(p, keyword, "%s", err)
	}
	return 0, false
}

func (c *compiler) arrayKeywords(p *place, out *set) *set {
	if len(out.arrs) == 0 {
		return out
	}
	lo, hi := c.counts(p, "minItems", "maxItems")
	a := &array{rest: anything, min: lo, max: hi}
	items, prefix := p.v.get("items"), p.v.get("prefixItems")
	if items != nil && items.kind == arrayValue { // before draft 2020-12
		prefix, items = items, p.v.get("additionalItems")
		a.prefix = c.schemas(p, "items", prefix)
		if items != nil {
			a.rest = c.schema(c.doc.child(p, items, "additionalItems"))
		}
	} else {
		if prefix != nil {
			a.prefix = c.schemas(p, "prefixItems", prefix)
		}
		if items != nil {
			a.rest = c.schema(c.doc.child(p, items, "items"))
		}
	}
	if v := p.v.get("contains"); v != nil {
		h := contains{c.schema(c.doc.child(p, v, "contains")), 1, unbounded}
		if p.v.get("minContains") != nil || p.v.get("maxContains") != nil {
			h.min, h.max = c.counts(p, "minContains", "maxContains")
			if p.v.get("minContains") == nil {
				h.min = 1
			}
		}
		a.contains = []contains{h}
	}
	if v := p.v.get("uniqueItems"); v != nil && v.kind == boolValue {
		a.unique = v.truth
	}
	if a.isAny() {
		return out
	}
	s := *out
	s.arrs = nil
	if a = c.settle(a); a != nil {
		s.arrs = c.intersect(p, &set{arrs: out.arrs}, &set{arrs: []*array{a}}).arrs
	}
	return &s
}

// aboutOthers are the keywords about members that properties does not list.
var aboutOthers = []string{"additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties"}

func (c *compiler) objectKeywords(p *place, out *set) *set {
	if len(out.objs) == 0 {
		return out
	}
	o := c.anyObject()
	o.min, o.max = c.counts(p, "minProperties", "maxProperties")
	o.closed = c.opts.Closed && p.v.get("properties") != nil && !slices.ContainsFunc(aboutOthers,
		func(keyword string) bool { return p.v.get(keyword) != nil })
	if v := p.v.get("additionalProperties"); v != nil {
		o.classes[0].value = c.schema(c.doc.child(p, v, "additionalProperties"))
	}
	var patterns []class
	if v := p.v.get("patternProperties"); v != nil {
		if v.kind != objectValue {
			return c.invalid(p, "patternProperties", "want an object, have %s", v.kind)
		}
		for _, m := range v.members {
			at := &place{p.v, p.res, p.ptr + "/patternProperties"}
			e, ok := c.parsePattern(at, escapePointer(m.name), m.name)
			if !ok {
				return c.none
			}
			patterns = append(patterns, class{e, c.schema(c.doc.child(p, m.value, "patternProperties", m.name))})
		}
		o.classes = c.partition(p, patterns, o.classes[0].value)
	}
	if v := p.v.get("properties"); v != nil {
		if v.kind != objectValue {
			return c.invalid(p, "properties", "want an object, have %s", v.kind)
		}
		for _, m := range v.members {
			r := c.schema(c.doc.child(p, m.value, "properties", m.name))
			for _, k := range patterns {
				if c.s.Match(k.names, []byte(m.name)) {
					r = c.and(r, k.value)
				}
			}
			o.add(property{m.name, r, false})
		}
	}
	if v := p.v.get("required"); v != nil {
		if v.kind != arrayValue {
			return c.refuse(p, "required", "want an array of names, have %s", v.kind)
		}
		for _, it := range v.items {
			if it.kind != stringValue {
				return c.invalid(p, "required", "want names of properties")
			}
			if i, ok := o.index[it.text]; ok {
				o.props[i].required = true
			} else {
				o.add(property{it.text, c.classOf(o, it.text), true})
			}
		}
	}
	objs := []*object{}
	if o = c.settleObject(o); o != nil {
		objs = append(objs, o)
	}
	if v := p.v.get("propertyNames"); v != nil {
		names := c.setOf(c.schema(c.doc.child(p, v, "propertyNames")))
		objs = c.intersect(p, &set{objs: objs}, &set{objs: c.withNames(names.str)}).objs
	}
	if len(objs) == 1 && objs[0].isAny() {
		return out
	}
	s := *out
	s.objs = c.intersect(p, &set{objs: out.objs}, &set{objs: objs}).objs
	return &s
}

// withNames returns the objects all of whose members' names are in s.
func (c *compiler) withNames(s stringSet) []*object {
	o := c.anyObject()
	if s.finite {
		o.classes[0].value = nothing
		for _, name := range s.values {
			o.add(property{name, anything, false})
		}
		return []*object{o}
	}
	o.classes = []class{{s.texts, anything}}
	if rest := c.s.Minus(c.s.AnyText(), s.texts); !c.noNames(rest) {
		o.classes = append(o.classes, class{rest, nothing})
	}
	return []*object{o}
}

// partition returns the classes of names that patterns make: a name has the values of all patterns that it matches, and
// of others where it matches none.
func (c *compiler) partition(p *place, patterns []class, others ref) []class {
	type part struct {
		names   regex.Expr
		value   ref
		matched bool
	}
	parts := []part{{c.s.AnyText(), others, false}}
	for _, k := range patterns {
		var next []part
		for _, q := range parts {
			inside, outside := c.s.And(q.names, k.names), c.s.Minus(q.names, k.names)
			if !c.noNames(inside) {
				v := k.value
				if q.matched {
					v = c.and(q.value, v)
				}
				next = append(next, part{inside, v, true})
			}
			if !c.noNames(outside) {
				next = append(next, part{outside, q.value, q.matched})
			}
		}
		if parts = next; len(parts) > c.limits.Alternatives {
			c.exceed(p, "patternProperties", "the patterns make more than %d classes of names (Limits.Alternatives)",
				c.limits.Alternatives)
			break
		}
	}
	var out []class
	slices.SortStableFunc(parts, func(a, b part) int { // patterns first, as they were written
		if a.matched == b.matched {
			return 0
		} else if a.matched {
			return -1
		}
		return 1
	})
	for _, q := range parts {
		out = c.addClass(out, class{q.names, q.value})
	}
	return out
}
