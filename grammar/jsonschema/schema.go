package jsonschema

// schemaSet returns the values that the schema at p allows: those of its type, restricted by each keyword.
func (c *compiler) schemaSet(p *place) *set {
	if p.v.kind == boolValue {
		if p.v.truth {
			return c.full
		}
		return c.none
	}
	if p.v.kind != objectValue {
		return c.invalid(p, "", "a schema is an object or a boolean, not %s", p.v.kind)
	}
	if r := p.v.get("$ref"); r != nil && p.res.draft != unknownDraft && p.res.draft <= draft7 {
		return c.reference(p, "$ref", r) // before draft 2019-09 the keywords beside $ref are ignored
	}
	if p.res.draft == unknownDraft {
		return c.refuse(p, "$schema", "the meta-schema is not known; name a draft of json-schema.org, or leave it out")
	}
	c.checkKeywords(p)
	out := c.typed(p)
	out = c.numberKeywords(p, out)
	out = c.stringKeywords(p, out)
	out = c.arrayKeywords(p, out)
	out = c.objectKeywords(p, out)
	for _, a := range applicators {
		if v := p.v.get(a.keyword); v != nil && c.err == nil {
			out = a.apply(c, p, v, out)
		}
	}
	return out
}

// applicators are the keywords that combine schemas, in the order in which they are applied: the cheap ones first,
// because each cuts down what the next has to combine.
var applicators []struct {
	keyword string
	apply   func(c *compiler, p *place, v *value, out *set) *set
}

func init() { // a variable would be an initialisation cycle: applying a keyword compiles schemas
	type apply = func(c *compiler, p *place, v *value, out *set) *set
	add := func(keyword string, f apply) {
		applicators = append(applicators, struct {
			keyword string
			apply   apply
		}{keyword, f})
	}
	add("const", func(c *compiler, p *place, v *value, out *set) *set { return c.intersect(p, out, c.constSet(p, v)) })
	add("enum", (*compiler).enum)
	for _, keyword := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		add(keyword, func(c *compiler, p *place, v *value, out *set) *set {
			return c.intersect(p, out, c.reference(p, keyword, v))
		})
	}
	add("allOf", (*compiler).allOf)
	add("dependentRequired", (*compiler).dependentRequired)
	add("dependentSchemas", (*compiler).dependentSchemas)
	add("dependencies", (*compiler).dependencies)
	add("anyOf", (*compiler).anyOf)
	add("not", func(c *compiler, p *place, v *value, out *set) *set {
		return c.intersect(p, out, c.complement(p, c.setOf(c.schema(c.doc.child(p, v, "not")))))
	})
	add("if", (*compiler).conditional)
	add("oneOf", (*compiler).oneOf)
	add("unevaluatedProperties", (*compiler).unevaluatedProperties)
	add("unevaluatedItems", (*compiler).unevaluatedItems)
}

// typed returns the values that the keyword type allows.
func (c *compiler) typed(p *place) *set {
	v := p.v.get("type")
	if v == nil {
		return c.full
	}
	types := []*value{v}
	if v.kind == arrayValue {
		types = v.items
	}
	out := &set{num: c.none.num, str: c.none.str}
	for _, t := range types {
		if t.kind != stringValue {
			return c.invalid(p, "type", "want the name of a type or an array of them")
		}
		switch t.text {
		case "null":
			out.null = true
		case "boolean":
			out.no, out.yes = true, true
		case "number":
			out.num = c.full.num
		case "integer":
			if out.num.isEmpty() {
				out.num = c.integers(p)
			}
		case "string":
			out.str = c.full.str
		case "array":
			out.arrs = c.full.arrs
		case "object":
			out.objs = c.full.objs
		default:
			return c.invalid(p, "type", "there is no type %.40q", t.text)
		}
	}
	if n := p.v.get("nullable"); n != nil && n.kind == boolValue && n.truth && c.opts.Nullable {
		out.null = true
	}
	return out
}

// integers returns all integers; from draft 6 on 1.0 is one.
func (c *compiler) integers(p *place) numberSet {
	if p.res.draft <= draft4 {
		return numberSet{texts: c.num.short, whole: true}
	}
	return numberSet{texts: c.num.integer, whole: true}
}

func (c *compiler) constSet(p *place, v *value) *set {
	out := &set{num: c.none.num, str: c.none.str}
	switch v.kind {
	case nullValue:
		out.null = true
	case boolValue:
		out.no, out.yes = !v.truth, v.truth
	case numberValue:
		d, err := parseDecimal(v.text)
		if err != nil {
			return c.invalid(p, "const", "%s", err)
		}
		out.num = numberSet{finite: true, values: []decimal{d}, whole: d.isInt()}
	case stringValue:
		out.str = stringSet{finite: true, values: []string{v.text}}
	case arrayValue:
		a := &array{rest: nothing, min: len(v.items), max: len(v.items)}
		for _, it := range v.items {
			a.prefix = append(a.prefix, c.constant(p, it))
		}
		out.arrs = []*array{a}
	case objectValue:
		o := &object{classes: []class{{c.s.AnyText(), nothing}}, max: unbounded}
		for _, m := range v.members {
			o.add(property{m.name, c.constant(p, m.value), true})
		}
		out.objs = []*object{o}
	}
	return out
}

func (c *compiler) enum(p *place, v *value, out *set) *set {
	if v.kind != arrayValue {
		return c.invalid(p, "enum", "want an array, have %s", v.kind)
	}
	all := &set{num: c.none.num, str: c.none.str}
	all.num.values, all.str.values = nil, nil
	numbers, texts := map[decimal]bool{}, map[string]bool{}
	whole := true
	var compound *set = c.none
	for _, it := range v.items {
		switch it.kind {
		case nullValue:
			all.null = true
		case boolValue:
			all.no, all.yes = all.no || !it.truth, all.yes || it.truth
		case numberValue:
			d, err := parseDecimal(it.text)
			if err != nil {
				return c.invalid(p, "enum", "%s", err)
			}
			if !numbers[d] {
				numbers[d] = true
				all.num.values = append(all.num.values, d)
				whole = whole && d.isInt()
			}
		case stringValue:
			if !texts[it.text] {
				texts[it.text] = true
				all.str.values = append(all.str.values, it.text)
			}
		default:
			compound = c.union(p, compound, c.constSet(p, it))
		}
	}
	all.num.finite, all.num.whole, all.str.finite = true, whole, true
	return c.intersect(p, out, c.union(p, all, compound))
}

// reference returns the values that the schema named by v allows.
func (c *compiler) reference(p *place, keyword string, v *value) *set {
	if v.kind != stringValue {
		return c.invalid(p, keyword, "want a URI reference, have %s", v.kind)
	}
	to, err := c.doc.resolve(p, v.text)
	if err != nil {
		return c.invalid(p, keyword, "%s", err)
	}
	if keyword != "$ref" && c.doc.isDynamic(to, keyword) {
		return c.refuse(p, keyword, "what it names depends on the way to it: more than one schema has its anchor")
	}
	return c.setOf(c.schema(to))
}

// isDynamic reports whether a dynamic reference to the schema at p may end elsewhere.
func (d *document) isDynamic(p *place, keyword string) bool {
	n := 0
	for _, r := range d.resources {
		if keyword == "$recursiveRef" {
			if a := r.root.get("$recursiveAnchor"); a != nil && a.truth {
				n++
			}
			continue
		}
		for name, a := range p.res.dynamic {
			if a.v == p.v && r.dynamic[name] != nil {
				n++
			}
		}
	}
	return n > 1
}

// schemas returns the refs of the schemas in the array v.
func (c *compiler) schemas(p *place, keyword string, v *value) []ref {
	if v.kind != arrayValue {
		c.invalid(p, keyword, "want an array of schemas, have %s", v.kind)
		return nil
	}
	out := make([]ref, len(v.items))
	for i, it := range v.items {
		out[i] = c.schema(c.doc.child(p, it, keyword, itoa(i)))
	}
	return out
}

func (c *compiler) allOf(p *place, v *value, out *set) *set {
	for _, r := range c.schemas(p, "allOf", v) {
		out = c.intersect(p, out, c.setOf(r))
	}
	return out
}

func (c *compiler) anyOf(p *place, v *value, out *set) *set {
	sum := c.none
	for _, r := range c.schemas(p, "anyOf", v) {
		sum = c.union(p, sum, c.intersect(p, out, c.setOf(r)))
	}
	return sum
}

// oneOf returns the union of the schemas, each without what another one allows too.
func (c *compiler) oneOf(p *place, v *value, out *set) *set {
	refs := c.schemas(p, "oneOf", v)
	sets := make([]*set, len(refs))
	for i, r := range refs {
		sets[i] = c.intersect(p, out, c.setOf(r))
	}
	sum := c.none
	for i, s := range sets {
		alone := s
		for j, o := range sets {
			if i == j || c.err != nil || c.isEmptySet(c.intersect(p, s, o)) {
				continue
			}
			alone = c.intersect(p, alone, c.complement(p, c.setOf(refs[j])))
		}
		sum = c.union(p, sum, alone)
	}
	return sum
}

func (c *compiler) conditional(p *place, v *value, out *set) *set {
	then, other := c.full, c.full
	t, e := p.v.get("then"), p.v.get("else")
	if t == nil && e == nil {
		return out
	}
	if t != nil {
		then = c.setOf(c.schema(c.doc.child(p, t, "then")))
	}
	if e != nil {
		other = c.setOf(c.schema(c.doc.child(p, e, "else")))
	}
	cond := c.setOf(c.schema(c.doc.child(p, v, "if")))
	yes := c.intersect(p, c.intersect(p, out, cond), then)
	no := c.intersect(p, c.intersect(p, out, c.complement(p, cond)), other)
	return c.union(p, yes, no)
}

// onlyObjects returns every value that is no object, and objs.
func (c *compiler) onlyObjects(objs ...*object) *set {
	s := *c.full
	s.objs = objs
	return &s
}

// unlessMember returns every value without a member called name, and those with it that then has.
func (c *compiler) unlessMember(p *place, name string, then *set) *set {
	without, with := c.anyObject(), c.anyObject()
	without.add(property{name, nothing, false})
	with.add(property{name, anything, true})
	return c.union(p, c.onlyObjects(without),
		c.intersect(p, &set{num: c.none.num, str: c.none.str, objs: []*object{with}}, then))
}

func (c *compiler) needs(p *place, keyword, name string, v *value, out *set) *set {
	o := c.anyObject()
	for _, it := range v.items {
		if it.kind != stringValue {
			return c.invalid(p, keyword, "want names of properties")
		}
		if _, ok := o.index[it.text]; !ok {
			o.add(property{it.text, anything, true})
		}
	}
	return c.intersect(p, out, c.unlessMember(p, name, c.onlyObjects(o)))
}

func (c *compiler) dependentRequired(p *place, v *value, out *set) *set {
	for _, m := range v.members {
		if m.kind != arrayValue {
			return c.invalid(p, "dependentRequired", "want arrays of names")
		}
		out = c.needs(p, "dependentRequired", m.name, m.value, out)
	}
	return out
}

func (c *compiler) dependentSchemas(p *place, v *value, out *set) *set {
	for _, m := range v.members {
		then := c.setOf(c.schema(c.doc.child(p, m.value, "dependentSchemas", m.name)))
		out = c.intersect(p, out, c.unlessMember(p, m.name, then))
	}
	return out
}

func (c *compiler) dependencies(p *place, v *value, out *set) *set {
	for _, m := range v.members {
		if m.kind == arrayValue {
			out = c.needs(p, "dependencies", m.name, m.value, out)
			continue
		}
		then := c.setOf(c.schema(c.doc.child(p, m.value, "dependencies", m.name)))
		out = c.intersect(p, out, c.unlessMember(p, m.name, then))
	}
	return out
}
