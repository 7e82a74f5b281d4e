package syntax

import (
	"maps"
	"slices"
)

func (p *parser) statement(list []Node, line int) []Node {
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
			list = append(list, &OutputNode{p.here(), p.expression()})
			if p.peek().kind != kindBlockEnd {
				p.expect(kindOp, ",")
			}
		}
		p.blockEnd()
		return list
	case "macro":
		m := p.macro(at, p.name())
		m.Slot = p.scope.slot(m.Name)
		p.params(m)
		p.macroBody(m, "endmacro")
		return append(list, m)
	case "call":
		m := p.macro(at, "")
		if p.is(kindOp, "(") {
			p.params(m)
		}
		call, ok := p.expression().(*CallExpr)
		if !ok {
			p.fail("{%% call %%} wants a call")
		}
		p.macroBody(m, "endcall")
		return append(list, &CallNode{at, call, m})
	case "generation": // Hugging Face's: a call block around the text of an answer
		m := p.macro(at, "")
		p.macroBody(m, "endgeneration")
		return append(list, &CallNode{at, nil, m})
	case "autoescape":
		n := &AutoescapeNode{pos: at, Value: p.expression(), Scope: newScope(p.scope)}
		p.within(n.Scope, func() { n.Body = p.body("endautoescape") })
		return append(list, n)
	case "filter":
		n := &FilterNode{pos: at, Filters: []FilterCall{p.filter()}, Scope: newScope(p.scope)}
		for p.accept(kindOp, "|") {
			n.Filters = append(n.Filters, p.filter())
		}
		p.within(n.Scope, func() { n.Body = p.body("endfilter") })
		return append(list, n)
	case "with":
		n := &WithNode{pos: at, Scope: newScope(p.scope)}
		for p.peek().kind != kindBlockEnd && !p.is(kindOp, ":") {
			if n.Targets != nil {
				p.expect(kindOp, ",")
			}
			p.within(n.Scope, func() { n.Targets = append(n.Targets, p.target("", false)) })
			p.expect(kindOp, "=")
			n.Values = append(n.Values, p.expression())
		}
		p.within(n.Scope, func() { n.Body = p.body("endwith") })
		return append(list, n)
	case "block":
		return append(list, p.block(at))
	case "break", "continue":
		if p.inLoop == 0 {
			p.fail("{%% %s %%} outside a loop", name)
		}
		p.blockEnd()
		return append(list, &LoopControl{name == "break"})
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

func (p *parser) block(at pos) Node {
	n := &BlockNode{pos: at, name: p.name()}
	n.Scoped = p.accept(kindName, "scoped")
	required := p.accept(kindName, "required")
	if p.blocks[n.name] != nil {
		p.fail("{%% block %s %%} is there twice", n.name)
	}
	p.blocks[n.name] = n
	// A block's names are the template's own, not those of the loop it is in, unless it says scoped.
	n.Scope = newScope(p.root)
	if n.Scoped {
		n.Scope.parent = p.scope
	}
	p.within(n.Scope, func() {
		p.outsideLoops(func() {
			p.head()
			n.Body = p.nodes("endblock")
		})
	})
	p.name()
	p.accept(kindName, n.name)
	p.blockEnd()
	if required {
		return &OtherFile{at, "block " + n.name + " required"}
	}
	return n
}

// OtherFile parses a statement that needs a second file. Jinja2 loads such templates and fails when it gets there.
func (p *parser) otherFile(at pos, name string) Node {
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
	return &OtherFile{at, name}
}

// contextRule parses "with context" and "without context".
func (p *parser) contextRule() bool {
	if !p.is(kindName, "with") && !p.is(kindName, "without") || p.tokens[p.at+1].text != "context" {
		return false
	}
	p.at += 2
	return true
}

func (p *parser) ifStatement(at pos) Node {
	n := &IfNode{pos: at}
	for {
		n.Conds = append(n.Conds, p.tuple(false, ""))
		p.head()
		n.Bodies = append(n.Bodies, p.nodes("elif", "else", "endif"))
		switch p.name() {
		case "elif":
			continue
		case "else":
			n.Bodies = append(n.Bodies, p.body("endif"))
		default:
			p.blockEnd()
		}
		return n
	}
}

// The slot of "loop" in every loop's scope.
const LoopSlot = 0

func (p *parser) forStatement(at pos) Node {
	n := &ForNode{pos: at, Scope: newScope(p.scope), ElseScope: newScope(p.scope)}
	p.loops++
	n.Scope.slot("loop")
	p.within(n.Scope, func() { n.Target = p.target("in", false) })
	n.Test = &Scope{parent: p.scope, Slots: maps.Clone(n.Scope.Slots), Size: n.Scope.Size}
	delete(n.Test.Slots, "loop")
	p.expect(kindName, "in")
	n.Iter = p.tuple(false, "recursive")
	if p.accept(kindName, "if") {
		p.within(n.Test, func() { n.Filter = p.expression() })
	}
	if n.Recursive = p.accept(kindName, "recursive"); n.Recursive {
		n.Scope.capture()
	}
	p.head()
	p.inLoop++
	p.within(n.Scope, func() { n.Body = p.nodes("else", "endfor") })
	p.inLoop--
	if p.name() == "else" {
		p.within(n.ElseScope, func() { n.ElseBody = p.body("endfor") })
	} else {
		p.blockEnd()
	}
	p.loops--
	n.Settles = settles(n)
	return n
}

// settles finds loops that look for something and cannot stop looking, such as
//
//	{% for m in messages %}{% if not ns.found %}…{% endif %}{% endfor %}
//
// whose body is one if. A branch that is empty, reached by conditions that hold nothing the loop itself sets, is
// taken by every later pass too, so that the loop may end there. Without this, a template that looks back from each
// message takes time with the square of their number.
func settles(n *ForNode) []bool {
	if len(n.Body) != 1 || n.Filter != nil {
		return nil
	}
	test, ok := n.Body[0].(*IfNode)
	if !ok {
		return nil
	}
	list := make([]bool, len(test.Conds)+1)
	for i := range list {
		if i < len(test.Conds) && !constantIn(n.Scope, test.Conds[i], 0) {
			break
		}
		list[i] = i == len(test.Bodies) || len(test.Bodies[i]) == 0
	}
	return list
}

// constantIn reports whether e has the same value whenever it is evaluated in a pass of sc's loop that does nothing
// else, and has no effect.
func constantIn(sc *Scope, e Expr, depth int) bool {
	if depth > 20 {
		return false
	}
	all := func(list ...Expr) bool {
		return !slices.ContainsFunc(list, func(x Expr) bool { return !constantIn(sc, x, depth+1) })
	}
	switch e := e.(type) {
	case *Literal:
		return true
	case *NameExpr:
		_, own := sc.Slots[e.Name]
		return !own
	case *AttrExpr:
		return all(e.Of)
	case *ItemExpr:
		return all(e.Of, e.Key)
	case *NotExpr:
		return all(e.Of)
	case *LogicExpr:
		return all(e.Left, e.Right)
	case *CompareExpr: // "in" may read a generator
		return all(e.First) && all(e.Rest...) && !slices.Contains(e.Ops, "in") && !slices.Contains(e.Ops, "not in")
	}
	return false
}

func (p *parser) setStatement(at pos) Node {
	n := &SetNode{pos: at, Scope: newScope(p.scope)}
	n.Target = p.target("", true)
	if p.accept(kindOp, "=") {
		n.Value = p.tuple(true, "")
		p.blockEnd()
		return n
	}
	for p.accept(kindOp, "|") {
		n.Filters = append(n.Filters, p.filter())
	}
	p.within(n.Scope, func() { n.Body = p.body("endset") })
	return n
}

// target parses the target of an assignment: a, or a, b, or (where spaces may stand) ns.a.
func (p *parser) target(end string, spaces bool) Target {
	defer p.nest()()
	var list []Target
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
				list = append(list, Target{Space: p.load(line, name), Attr: p.name()})
			case name == "loop" && p.loops > 0:
				p.fail("cannot assign to loop")
			default:
				list = append(list, Target{Slot: p.scope.slot(name)})
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
	return Target{Tuple: list}
}

func (p *parser) macro(at pos, name string) *MacroNode {
	p.scope.capture()
	return &MacroNode{pos: at, Name: name, Scope: newScope(p.scope), Caller: -1, Kwargs: -1, Varargs: -1}
}

func (p *parser) params(m *MacroNode) {
	p.expect(kindOp, "(")
	for !p.accept(kindOp, ")") {
		if len(m.Params) > 0 {
			p.expect(kindOp, ",")
		}
		q := param{Name: p.name()}
		if _, twice := m.Scope.Slots[q.Name]; twice {
			p.fail("parameter %s is there twice", q.Name)
		}
		q.Slot = m.Scope.slot(q.Name)
		if p.accept(kindOp, "=") {
			p.within(m.Scope, func() { q.Value = p.expression() })
		} else if len(m.Params) > 0 && m.Params[len(m.Params)-1].Value != nil {
			p.fail("parameter %s without a default after one with", q.Name)
		}
		m.Params = append(m.Params, q)
	}
}

func (p *parser) macroBody(m *MacroNode, end string) {
	m.Scope.macro = m
	p.within(m.Scope, func() { p.outsideLoops(func() { m.Body = p.body(end) }) })
}
