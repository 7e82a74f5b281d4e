package jinja

import (
	"maps"
	"slices"
)

func (p *parser) statement(list []node, line int) []node {
	at := pos{line}
	switch name := p.name(); name {
	case "if":
		return append(list, p.ifStatement(at))
	case "for":
		return append(list, p.forStatement(at))
	case "set":
		return append(list, p.setStatement(at))
	case "print":
		for p.peek().kind != kindBlockEnd {
			list = append(list, &outputNode{p.here(), p.expression()})
			if p.peek().kind != kindBlockEnd {
				p.expect(kindOp, ",")
			}
		}
		p.blockEnd()
		return list
	case "macro":
		m := p.macro(at, p.name())
		m.slot = p.scope.slot(m.name)
		p.params(m)
		p.macroBody(m, "endmacro")
		return append(list, m)
	case "call":
		m := p.macro(at, "")
		if p.is(kindOp, "(") {
			p.params(m)
		}
		call, ok := p.expression().(*callExpr)
		if !ok {
			p.fail("{%% call %%} wants a call")
		}
		p.macroBody(m, "endcall")
		return append(list, &callNode{at, call, m})
	case "generation": // Hugging Face's: a call block around the text of an answer
		m := p.macro(at, "")
		p.macroBody(m, "endgeneration")
		return append(list, &callNode{at, nil, m})
	case "autoescape":
		n := &autoescapeNode{pos: at, value: p.expression(), scope: newScope(p.scope)}
		p.within(n.scope, func() { n.body = p.body("endautoescape") })
		return append(list, n)
	case "filter":
		n := &filterNode{pos: at, filters: []filterCall{p.filter()}, scope: newScope(p.scope)}
		for p.accept(kindOp, "|") {
			n.filters = append(n.filters, p.filter())
		}
		p.within(n.scope, func() { n.body = p.body("endfilter") })
		return append(list, n)
	case "with":
		n := &withNode{pos: at, scope: newScope(p.scope)}
		for p.peek().kind != kindBlockEnd && !p.is(kindOp, ":") {
			if n.targets != nil {
				p.expect(kindOp, ",")
			}
			p.within(n.scope, func() { n.targets = append(n.targets, p.target("", false)) })
			p.expect(kindOp, "=")
			n.values = append(n.values, p.expression())
		}
		p.within(n.scope, func() { n.body = p.body("endwith") })
		return append(list, n)
	case "block":
		return append(list, p.block(at))
	case "break", "continue":
		if p.inLoop == 0 {
			p.fail("{%% %s %%} outside a loop", name)
		}
		p.blockEnd()
		return append(list, &loopControl{name == "break"})
	case "extends", "include", "import", "from":
		return append(list, p.otherFile(at, name))
	default:
		p.fail("unknown tag {%% %s %%}", name)
	}
	return nil
}

// outsideLoops parses what loop controls cannot leave.
func (p *parser) outsideLoops(parse func()) {
	loops := p.inLoop
	p.inLoop = 0
	parse()
	p.inLoop = loops
}

func (p *parser) block(at pos) node {
	n := &blockNode{pos: at, name: p.name()}
	n.scoped = p.accept(kindName, "scoped")
	required := p.accept(kindName, "required")
	if p.blocks[n.name] != nil {
		p.fail("{%% block %s %%} is there twice", n.name)
	}
	p.blocks[n.name] = n
	// A block's names are the template's own, not those of the loop it stands in, unless it says scoped.
	n.scope = newScope(p.root)
	if n.scoped {
		n.scope.parent = p.scope
	}
	p.within(n.scope, func() {
		p.outsideLoops(func() {
			p.head()
			n.body = p.nodes("endblock")
		})
	})
	p.name()
	p.accept(kindName, n.name)
	p.blockEnd()
	if required {
		return &otherFile{at, "block " + n.name + " required"}
	}
	return n
}

// otherFile parses a statement that needs a second file. Jinja2 loads such templates and fails when it gets there.
func (p *parser) otherFile(at pos, name string) node {
	p.expression()
	switch name {
	case "import":
		p.expect(kindName, "as")
		p.scope.slot(p.name())
	case "from":
		p.expect(kindName, "import")
		for p.peek().kind == kindName && !p.contextRule() {
			alias := p.name()
			if p.accept(kindName, "as") {
				alias = p.name()
			}
			p.scope.slot(alias)
			if !p.accept(kindOp, ",") {
				break
			}
		}
	case "include":
		if p.accept(kindName, "ignore") {
			p.expect(kindName, "missing")
		}
	}
	if name != "extends" {
		p.contextRule()
	}
	p.blockEnd()
	return &otherFile{at, name}
}

// contextRule parses "with context" and "without context".
func (p *parser) contextRule() bool {
	if !p.is(kindName, "with") && !p.is(kindName, "without") || p.tokens[p.at+1].text != "context" {
		return false
	}
	p.at += 2
	return true
}

func (p *parser) ifStatement(at pos) node {
	n := &ifNode{pos: at}
	for {
		n.conds = append(n.conds, p.tuple(false, ""))
		p.head()
		n.bodies = append(n.bodies, p.nodes("elif", "else", "endif"))
		switch p.name() {
		case "elif":
			continue
		case "else":
			n.bodies = append(n.bodies, p.body("endif"))
		default:
			p.blockEnd()
		}
		return n
	}
}

// The slot of "loop" in every loop's scope.
const loopSlot = 0

func (p *parser) forStatement(at pos) node {
	n := &forNode{pos: at, scope: newScope(p.scope), elseScope: newScope(p.scope)}
	p.loops++
	n.scope.slot("loop")
	p.within(n.scope, func() { n.target = p.target("in", false) })
	n.test = &scope{parent: p.scope, slots: maps.Clone(n.scope.slots), size: n.scope.size}
	delete(n.test.slots, "loop")
	p.expect(kindName, "in")
	n.iter = p.tuple(false, "recursive")
	if p.accept(kindName, "if") {
		p.within(n.test, func() { n.filter = p.expression() })
	}
	if n.recursive = p.accept(kindName, "recursive"); n.recursive {
		n.scope.hold()
	}
	p.head()
	p.inLoop++
	p.within(n.scope, func() { n.body = p.nodes("else", "endfor") })
	p.inLoop--
	if p.name() == "else" {
		p.within(n.elseScope, func() { n.elseBody = p.body("endfor") })
	} else {
		p.blockEnd()
	}
	p.loops--
	n.settles = settles(n)
	return n
}

// settles finds loops that look for something and cannot stop looking, such as
//
//	{% for m in messages %}{% if not ns.found %}…{% endif %}{% endfor %}
//
// whose body is one if. A branch that is empty, reached by conditions that hold nothing the loop itself sets, is
// taken by every later pass too, so that the loop may end there. Without this, a template that looks back from each
// message takes time with the square of their number.
func settles(n *forNode) []bool {
	if len(n.body) != 1 || n.filter != nil {
		return nil
	}
	test, ok := n.body[0].(*ifNode)
	if !ok {
		return nil
	}
	list := make([]bool, len(test.conds)+1)
	for i := range list {
		if i < len(test.conds) && !constantIn(n.scope, test.conds[i], 0) {
			break
		}
		list[i] = i == len(test.bodies) || len(test.bodies[i]) == 0
	}
	return list
}

// constantIn reports whether e has the same value whenever it is evaluated in a pass of sc's loop that does nothing
// else, and has no effect.
func constantIn(sc *scope, e expr, depth int) bool {
	if depth > 20 {
		return false
	}
	all := func(list ...expr) bool {
		return !slices.ContainsFunc(list, func(x expr) bool { return !constantIn(sc, x, depth+1) })
	}
	switch e := e.(type) {
	case *literal:
		return true
	case *nameExpr:
		_, own := sc.slots[e.name]
		return !own
	case *attrExpr:
		return all(e.of)
	case *itemExpr:
		return all(e.of, e.key)
	case *notExpr:
		return all(e.of)
	case *logicExpr:
		return all(e.left, e.right)
	case *compareExpr: // "in" may read a generator
		return all(e.first) && all(e.rest...) && !slices.Contains(e.ops, "in") && !slices.Contains(e.ops, "not in")
	}
	return false
}

func (p *parser) setStatement(at pos) node {
	n := &setNode{pos: at, scope: newScope(p.scope)}
	n.target = p.target("", true)
	if p.accept(kindOp, "=") {
		n.value = p.tuple(true, "")
		p.blockEnd()
		return n
	}
	for p.accept(kindOp, "|") {
		n.filters = append(n.filters, p.filter())
	}
	p.within(n.scope, func() { n.body = p.body("endset") })
	return n
}

// target parses what is assigned to: a, or a, b, or (where spaces may stand) ns.a.
func (p *parser) target(end string, spaces bool) target {
	defer p.nest()()
	var list []target
	tuple := false
	for {
		if p.accept(kindOp, "(") {
			list = append(list, p.target("", spaces))
			p.expect(kindOp, ")")
		} else {
			line, name := p.here(), p.name()
			switch {
			case slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name):
				p.fail("cannot assign to %s", name)
			case spaces && p.accept(kindOp, "."):
				list = append(list, target{space: p.load(line, name), attr: p.name()})
			case name == "loop" && p.loops > 0:
				p.fail("cannot assign to loop")
			default:
				list = append(list, target{slot: p.scope.slot(name)})
			}
		}
		if !p.accept(kindOp, ",") {
			break
		}
		tuple = true
		if p.peek().kind == kindBlockEnd || p.is(kindOp, ")") || end != "" && p.is(kindName, end) {
			break
		}
	}
	if len(list) == 1 && !tuple {
		return list[0]
	}
	return target{tuple: list}
}

func (p *parser) macro(at pos, name string) *macroNode {
	p.scope.hold()
	return &macroNode{pos: at, name: name, scope: newScope(p.scope), caller: -1, kwargs: -1, varargs: -1}
}

func (p *parser) params(m *macroNode) {
	p.expect(kindOp, "(")
	for !p.accept(kindOp, ")") {
		if len(m.params) > 0 {
			p.expect(kindOp, ",")
		}
		q := param{name: p.name()}
		if _, twice := m.scope.slots[q.name]; twice {
			p.fail("parameter %s is there twice", q.name)
		}
		q.slot = m.scope.slot(q.name)
		if p.accept(kindOp, "=") {
			p.within(m.scope, func() { q.value = p.expression() })
		} else if len(m.params) > 0 && m.params[len(m.params)-1].value != nil {
			p.fail("parameter %s without a default after one with", q.name)
		}
		m.params = append(m.params, q)
	}
}

func (p *parser) macroBody(m *macroNode, end string) {
	m.scope.macro = m
	p.within(m.scope, func() { p.outsideLoops(func() { m.body = p.body(end) }) })
}
