package jsonschema

import (
	"errors"
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// schemaSet is what the schema at p allows: what its type says, cut down by each keyword.
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
		return c.reference(p, "$ref", r) // before draft 2019-09 its siblings count for nothing
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

// typed is what type allows.
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
	return out
}

// integers are all integers; from draft 6 on 1.0 is one.
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

// reference is what the schema that v names allows.
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

// schemas are the refs of the schemas in the array v.
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

// oneOf is the union of the schemas, each without what another one allows too.
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

// onlyObjects is every value that is no object, and objs.
func (c *compiler) onlyObjects(objs ...*object) *set {
	s := *c.full
	s.objs = objs
	return &s
}

// unlessMember is every value without a member called name, and those with it that then has.
func (c *compiler) unlessMember(p *place, name string, then *set) *set {
	without, with := c.anyObject(), c.anyObject()
	without.add(property{name, nothing, false})
	with.add(property{name, anything, true})
	return c.union(p, c.onlyObjects(without), c.intersect(p, &set{num: c.none.num, str: c.none.str, objs: []*object{with}}, then))
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
			return c.refuse(p, "format", "without a type, draft 2020-12 leaves open whether it binds; add \"type\": \"string\"")
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

func (c *compiler) objectKeywords(p *place, out *set) *set {
	if len(out.objs) == 0 {
		return out
	}
	o := c.anyObject()
	o.min, o.max = c.counts(p, "minProperties", "maxProperties")
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

// withNames is the objects all of whose members' names are in s.
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

// partition is the classes of names that patterns make: a name has the values of all patterns that it matches, and of
// others where it matches none.
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
			c.exceed(p, "patternProperties", "the patterns make more than %d classes of names (Limits.Alternatives)", c.limits.Alternatives)
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
