package jsonschema

import "github.com/uma-serve/uma-serve/grammar/regex"

// evaluated records the members or items that other keywords evaluate, for unevaluatedProperties and unevaluatedItems.
type evaluated struct {
	names    []string
	patterns []regex.Expr
	members  bool   // all
	items    int    // the first ones
	rest     bool   // all items
	dynamic  string // the keyword by which more may be evaluated
	contains bool   // items that contains matches are
}

func (e *evaluated) any() bool {
	return len(e.names) > 0 || len(e.patterns) > 0 || e.members || e.items > 0 || e.rest || e.dynamic != "" ||
		e.contains
}

// evaluate adds what the schema at p evaluates, whatever the value. Keywords that do so for some values only, with
// something to evaluate, are dynamic. except is the keyword that asks: it does not count at the schema itself.
func (c *compiler) evaluate(p *place, e *evaluated, except string, seen map[*value]bool) {
	if p.v.kind != objectValue || seen[p.v] || !c.step(p) {
		return
	}
	seen[p.v] = true
	for _, m := range p.v.members {
		switch m.name {
		case "properties":
			for _, q := range m.members {
				e.names = append(e.names, q.name)
			}
		case "patternProperties":
			for _, q := range m.members {
				if x, ok := c.parsePattern(p, "patternProperties", q.name); ok {
					e.patterns = append(e.patterns, x)
				}
			}
		case "additionalProperties", "unevaluatedProperties":
			e.members = e.members || m.name != except
		case "prefixItems":
			e.items = max(e.items, len(m.items))
		case "items":
			if m.kind == arrayValue {
				e.items = max(e.items, len(m.items))
			} else {
				e.rest = true
			}
		case "additionalItems":
			if v := p.v.get("items"); v != nil && v.kind == arrayValue {
				e.rest = true
			}
		case "unevaluatedItems":
			e.rest = e.rest || m.name != except
		case "contains":
			if p.res.draft >= draft2020 {
				e.contains = true
			}
		case "allOf":
			for i, it := range m.items {
				c.evaluate(c.doc.child(p, it, m.name, itoa(i)), e, "", seen)
			}
		case "$ref", "$dynamicRef", "$recursiveRef":
			if to, err := c.doc.resolve(p, m.text); err == nil {
				c.evaluate(to, e, "", seen)
			}
		case "anyOf", "oneOf":
			for i, it := range m.items {
				c.evaluateSome(c.doc.child(p, it, m.name, itoa(i)), m.name, e, seen)
			}
		case "if", "then", "else":
			c.evaluateSome(c.doc.child(p, m.value, m.name), m.name, e, seen)
		case "dependentSchemas", "dependencies":
			for _, q := range m.members {
				c.evaluateSome(c.doc.child(p, q.value, m.name, q.name), m.name, e, seen)
			}
		}
	}
	delete(seen, p.v)
}

func (c *compiler) evaluateSome(p *place, keyword string, e *evaluated, seen map[*value]bool) {
	var some evaluated
	if c.evaluate(p, &some, "", seen); some.any() {
		e.dynamic = keyword
	}
}

func (c *compiler) unevaluatedProperties(p *place, v *value, out *set) *set {
	if len(out.objs) == 0 {
		return out
	}
	const keyword = "unevaluatedProperties"
	var e evaluated
	c.evaluate(p, &e, keyword, map[*value]bool{})
	r := c.schema(c.doc.child(p, v, keyword))
	switch {
	case e.members || r == anything:
		return out
	case e.dynamic != "":
		return c.refuse(p, keyword, "beside %s it depends on the value", e.dynamic)
	}
	var patterns []class
	for _, x := range e.patterns {
		patterns = append(patterns, class{x, anything})
	}
	o := &object{classes: c.partition(p, patterns, r), max: unbounded}
	for _, name := range e.names {
		if _, ok := o.index[name]; !ok {
			o.add(property{name, anything, false})
		}
	}
	return c.intersect(p, out, c.onlyObjects(o))
}

func (c *compiler) unevaluatedItems(p *place, v *value, out *set) *set {
	if len(out.arrs) == 0 {
		return out
	}
	const keyword = "unevaluatedItems"
	var e evaluated
	c.evaluate(p, &e, keyword, map[*value]bool{})
	r := c.schema(c.doc.child(p, v, keyword))
	switch {
	case e.rest || r == anything:
		return out
	case e.dynamic != "":
		return c.refuse(p, keyword, "beside %s it depends on the value", e.dynamic)
	case e.contains:
		return c.refuse(p, keyword, "beside contains it depends on the value")
	}
	a := &array{rest: r, max: unbounded}
	for range e.items {
		a.prefix = append(a.prefix, anything)
	}
	s := *c.full
	s.arrs = nil
	if a = c.settle(a); a != nil {
		s.arrs = []*array{a}
	}
	return c.intersect(p, out, &s)
}
