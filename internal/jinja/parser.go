package jinja

import (
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// maxNesting bounds how deep brackets and blocks may nest in a template's source.
const maxNesting = 200

// maxSource is the largest template Compile accepts, in bytes. The longest ones in use have about 20,000.
const maxSource = 1 << 20

type parser struct {
	tokens  []token
	at      int
	depth   int
	scope   *scope
	root    *scope
	names   []*nameExpr
	globals map[string]int // names that no scope may have, by the order of their first use
	blocks  map[string]*blockNode
	inLoop  int // loops that break may leave
	loops   int // loops around, macros or not
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != kindEOF {
		p.at++
	}
	return t
}

func (p *parser) here() pos { return pos{p.peek().line} }

func (p *parser) is(k kind, text string) bool { t := p.peek(); return t.kind == k && t.text == text }

func (p *parser) accept(k kind, text string) bool {
	if p.is(k, text) {
		p.at++
		return true
	}
	return false
}

// fail sends an error by panic from deep in the parser to Compile.
func (p *parser) fail(format string, a ...any) {
	panic(errorAt(p.peek().line, format, a...))
}

func (p *parser) expect(k kind, text string) token {
	if !p.is(k, text) {
		p.fail("expected %q, found %s", text, p.peek())
	}
	return p.next()
}

func (p *parser) name() string {
	if p.peek().kind != kindName {
		p.fail("expected a name, found %s", p.peek())
	}
	return p.next().text
}

func (p *parser) nest() func() {
	if p.depth++; p.depth > maxNesting {
		p.fail("nested deeper than %d levels", maxNesting)
	}
	return func() { p.depth-- }
}

// within parses with sc as the innermost scope.
func (p *parser) within(sc *scope, parse func()) {
	outer := p.scope
	p.scope = sc
	parse()
	p.scope = outer
}

// resolve finds, once all assignments are known, where each name's value may be.
func (p *parser) resolve() {
	for _, n := range p.names {
		hops := 0
		for sc := n.scope; sc != nil; sc = sc.parent {
			if slot, ok := sc.slots[n.name]; ok {
				n.places = append(n.places, place{hops, slot})
			}
			hops++
		}
	}
}

// nodes parses statements until a block whose name is among ends (left for the caller) or the template's end.
func (p *parser) nodes(ends ...string) []node {
	defer p.nest()()
	var list []node
	for {
		switch t := p.peek(); t.kind {
		case kindEOF:
			if len(ends) > 0 {
				p.fail("missing {%% %s %%}", ends[len(ends)-1])
			}
			return list
		case kindText:
			p.next()
			list = append(list, &textNode{t.text})
		case kindVarBegin:
			p.next()
			list = append(list, &outputNode{pos{t.line}, p.tuple(true, "")})
			if p.next().kind != kindVarEnd {
				p.at--
				p.fail("expected }}, found %s", p.peek())
			}
		default: // kindBlockBegin
			if n := p.tokens[p.at+1]; n.kind == kindName && slices.Contains(ends, n.text) {
				p.next()
				return list
			}
			p.next()
			list = p.statement(list, t.line)
		}
	}
}

func (p *parser) blockEnd() {
	if p.peek().kind != kindBlockEnd {
		p.fail("expected %%}, found %s", p.peek())
	}
	p.next()
}

// head ends a statement that has a body. A colon may stand there, as in Python.
func (p *parser) head() {
	p.accept(kindOp, ":")
	p.blockEnd()
}

// body parses up to {% end %}.
func (p *parser) body(end string) []node {
	p.head()
	list := p.nodes(end)
	p.name()
	p.blockEnd()
	return list
}

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

// load is a name that is read. caller, kwargs and varargs make every macro around take such arguments.
func (p *parser) load(at pos, name string) *nameExpr {
	if name == "caller" || name == "kwargs" || name == "varargs" {
		for sc := p.scope; sc != nil; sc = sc.parent {
			if _, own := sc.slots[name]; own || sc.macro == nil {
				continue
			}
			*map[string]*int{"caller": &sc.macro.caller, "kwargs": &sc.macro.kwargs, "varargs": &sc.macro.varargs}[name] = sc.slot(name)
		}
	}
	if name == "loop" {
		p.scope.hold()
	}
	global, ok := p.globals[name]
	if !ok {
		global = len(p.globals)
		p.globals[name] = global
	}
	n := &nameExpr{pos: at, name: name, scope: p.scope, global: global}
	p.names = append(p.names, n)
	return n
}

// tuple parses an expression, or several separated by commas, up to end where that is a name. cond says whether
// "a if b" may stand there: in a loop head the "if" belongs to the loop.
func (p *parser) tuple(cond bool, end string) expr {
	one := p.or
	if cond {
		one = p.expression
	}
	list := &listExpr{pos: p.here(), tuple: true}
	list.items = append(list.items, one())
	if !p.is(kindOp, ",") {
		return list.items[0]
	}
	for p.accept(kindOp, ",") {
		t := p.peek()
		if t.kind == kindVarEnd || t.kind == kindBlockEnd || t.kind == kindOp && t.text == ")" || end != "" && p.is(kindName, end) {
			break
		}
		list.items = append(list.items, one())
	}
	return list
}

// expression is the grammar's top: a if b else c.
func (p *parser) expression() expr {
	defer p.nest()()
	e := p.or()
	for p.accept(kindName, "if") {
		c := &condExpr{cond: p.or(), then: e}
		if p.accept(kindName, "else") {
			c.other = p.expression()
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.accept(kindName, "or") {
		e = &logicExpr{e, p.and(), true}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.accept(kindName, "and") {
		e = &logicExpr{e, p.not(), false}
	}
	return e
}

func (p *parser) not() expr {
	if p.is(kindName, "not") {
		defer p.nest()()
		p.next()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	c := &compareExpr{pos: p.here(), first: p.sum()}
	for {
		t := p.peek()
		switch {
		case t.kind == kindOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text), t.kind == kindName && t.text == "in":
			p.next()
			c.ops = append(c.ops, t.text)
		case t.kind == kindName && t.text == "not" && p.tokens[p.at+1].kind == kindName && p.tokens[p.at+1].text == "in":
			p.at += 2
			c.ops = append(c.ops, "not in")
		default:
			if c.ops == nil {
				return c.first
			}
			return c
		}
		c.rest = append(c.rest, p.sum())
	}
}

// binary parses a left-associative level of operators.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	e := operand()
	for {
		t := p.peek()
		if t.kind != kindOp || !slices.Contains(ops, t.text) {
			return e
		}
		p.next()
		e = &binaryExpr{pos{t.line}, t.text, e, operand()}
	}
}

// From loosest to tightest: + -, ~, * / // %, **, sign.
func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	c := &concatExpr{pos: p.here(), items: []expr{p.product()}}
	for p.accept(kindOp, "~") {
		c.items = append(c.items, p.product())
	}
	if len(c.items) == 1 {
		return c.items[0]
	}
	return c
}

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr { return p.binary(func() expr { return p.unary(true) }, "**") }

func (p *parser) unary(filters bool) expr {
	var e expr
	if t := p.peek(); t.kind == kindOp && (t.text == "-" || t.text == "+") {
		defer p.nest()()
		p.next()
		e = &signExpr{pos{t.line}, p.unary(false), t.text == "-"}
	} else {
		e = p.postfix(p.primary())
	}
	if filters {
		e = p.filtered(e)
	}
	return e
}

// number is an integer or float literal's value.
func (p *parser) number(t token) any {
	if t.kind == kindInt {
		digits, base := t.text, 10
		if len(digits) > 2 && digits[0] == '0' && !decimal(digits[1]) {
			digits, base = digits[2:], map[byte]int{'b': 2, 'o': 8, 'x': 16}[digits[1]|0x20]
		}
		if n, err := strconv.ParseInt(digits, base, 64); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(digits[:min(len(digits), maxDigits)], base); ok && len(digits) <= maxDigits {
			return n
		}
		p.at--
		p.fail("a number has %d digits, the limit is %d", len(digits), maxDigits)
	}
	f, _ := strconv.ParseFloat(t.text, 64) // out of range is inf, as in Python
	return f
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case kindName:
		switch t.text {
		case "true", "True":
			return &literal{true}
		case "false", "False":
			return &literal{false}
		case "none", "None":
			return &literal{nil}
		}
		return p.load(pos{t.line}, t.text)
	case kindString:
		var b strings.Builder
		b.WriteString(t.text)
		for p.peek().kind == kindString {
			b.WriteString(p.next().text)
		}
		return &literal{b.String()}
	case kindInt, kindFloat:
		return &literal{p.number(t)}
	case kindOp:
		defer p.nest()()
		switch t.text {
		case "(":
			if p.accept(kindOp, ")") {
				return &listExpr{pos: pos{t.line}, tuple: true}
			}
			e := p.tuple(true, "")
			p.expect(kindOp, ")")
			return e
		case "[":
			l := &listExpr{pos: pos{t.line}}
			for !p.accept(kindOp, "]") {
				if len(l.items) > 0 {
					p.expect(kindOp, ",")
					if p.accept(kindOp, "]") {
						break
					}
				}
				l.items = append(l.items, p.expression())
			}
			return l
		case "{":
			d := &dictExpr{pos: pos{t.line}}
			for !p.accept(kindOp, "}") {
				if len(d.keys) > 0 {
					p.expect(kindOp, ",")
					if p.accept(kindOp, "}") {
						break
					}
				}
				d.keys = append(d.keys, p.expression())
				p.expect(kindOp, ":")
				d.values = append(d.values, p.expression())
			}
			return d
		}
	}
	if t.kind != kindEOF {
		p.at--
	}
	p.fail("expected a value, found %s", t)
	return nil
}

func (p *parser) postfix(e expr) expr {
	for {
		t := p.peek()
		switch {
		case t.kind != kindOp:
			return e
		case t.text == ".":
			p.next()
			switch n := p.next(); n.kind {
			case kindName:
				e = &attrExpr{pos{t.line}, e, n.text}
			case kindInt:
				e = &itemExpr{pos{t.line}, e, &literal{p.number(n)}}
			default:
				p.fail("expected a name after the dot")
			}
		case t.text == "[":
			p.next()
			e = p.subscript(t.line, e)
		case t.text == "(":
			e = &callExpr{pos{t.line}, e, p.args()}
		default:
			return e
		}
	}
}

// subscript parses a[b], a[b:c:d] and a[b, c], whose key is a tuple.
func (p *parser) subscript(line int, of expr) expr {
	defer p.nest()()
	var keys []expr
	for !p.accept(kindOp, "]") {
		if len(keys) > 0 {
			p.expect(kindOp, ",")
		}
		var parts [3]expr
		colons := 0
		for !p.is(kindOp, "]") && !p.is(kindOp, ",") {
			if p.accept(kindOp, ":") {
				if colons++; colons > 2 {
					p.fail("a slice has at most two colons")
				}
				continue
			}
			if parts[colons] != nil {
				p.fail("expected ], found %s", p.peek())
			}
			parts[colons] = p.expression()
		}
		if colons > 0 {
			if p.is(kindOp, ",") || len(keys) > 0 {
				p.fail("a slice cannot be part of a tuple")
			}
			p.expect(kindOp, "]")
			return &sliceExpr{pos{line}, of, parts[0], parts[1], parts[2]}
		}
		if parts[0] == nil {
			p.fail("expected an index, found %s", p.peek())
		}
		keys = append(keys, parts[0])
	}
	if len(keys) == 1 {
		return &itemExpr{pos{line}, of, keys[0]}
	}
	return &itemExpr{pos{line}, of, &listExpr{pos: pos{line}, items: keys, tuple: true}}
}

func (p *parser) args() (a args) {
	defer p.nest()()
	p.expect(kindOp, "(")
	var seen map[string]bool
	for i := 0; !p.accept(kindOp, ")"); i++ {
		if i > 0 {
			p.expect(kindOp, ",")
			if p.accept(kindOp, ")") {
				break
			}
		}
		switch t := p.peek(); {
		case t.kind == kindOp && t.text == "*":
			if p.next(); a.star != nil || a.starStar != nil {
				p.fail("* after another * or **")
			}
			a.star = p.expression()
		case t.kind == kindOp && t.text == "**":
			if p.next(); a.starStar != nil {
				p.fail("** is there twice")
			}
			a.starStar = p.expression()
		case t.kind == kindName && p.tokens[p.at+1].kind == kindOp && p.tokens[p.at+1].text == "=":
			if a.starStar != nil || seen[t.text] {
				p.fail("argument %s is there twice or follows **", t.text)
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[t.text] = true
			p.at += 2
			a.names = append(a.names, t.text)
			a.values = append(a.values, p.expression())
		default:
			if a.names != nil || a.star != nil || a.starStar != nil {
				p.fail("a positional argument after a named one")
			}
			a.list = append(a.list, p.expression())
		}
	}
	return a
}

// filtered parses what may follow a value: |filters, is tests, and calls of a filter's result.
func (p *parser) filtered(e expr) expr {
	for {
		switch {
		case p.accept(kindOp, "|"):
			e = &filterExpr{e, p.filter()}
		case p.is(kindName, "is"):
			e = p.test(e)
		case p.is(kindOp, "("):
			e = &callExpr{p.here(), e, p.args()}
		default:
			return e
		}
	}
}

func (p *parser) dotted() string {
	parts := []string{p.name()}
	for p.accept(kindOp, ".") {
		parts = append(parts, p.name())
	}
	return strings.Join(parts, ".")
}

func (p *parser) filter() filterCall {
	f := filterCall{pos: p.here(), name: p.dotted()}
	f.filter = filters[f.name]
	if p.is(kindOp, "(") {
		f.args = p.args()
	}
	return f
}

func (p *parser) test(of expr) expr {
	t := &testExpr{pos: p.here(), of: of}
	p.next()
	t.negate = p.accept(kindName, "not")
	t.name = p.dotted()
	t.test = tests[t.name]
	switch next := p.peek(); {
	case next.kind == kindOp && next.text == "(":
		t.args = p.args()
	case next.kind == kindName && slices.Contains([]string{"else", "or", "and"}, next.text):
	case next.kind == kindName && next.text == "is":
		p.fail("tests cannot be chained with is")
	case next.kind == kindName, next.kind == kindString, next.kind == kindInt, next.kind == kindFloat,
		next.kind == kindOp && strings.Contains("[{", next.text):
		t.args.list = []expr{p.postfix(p.primary())}
	}
	return t
}
