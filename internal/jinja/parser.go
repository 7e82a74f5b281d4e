package jinja

import (
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
	filters map[string]filter
	tests   map[string]test
	inLoop  int
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

// parseError travels by panic from deep in the parser to Compile.
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
			list = append(list, &outputNode{pos{t.line}, p.tuple(true)})
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
			if n := p.statement(t.line); n != nil {
				list = append(list, n)
			}
		}
	}
}

func (p *parser) blockEnd() {
	if p.peek().kind != kindBlockEnd {
		p.fail("expected %%}, found %s", p.peek())
	}
	p.next()
}

// body parses up to {% end %}.
func (p *parser) body(end string) []node {
	p.blockEnd()
	list := p.nodes(end)
	p.name()
	p.blockEnd()
	return list
}

func (p *parser) statement(line int) node {
	at := pos{line}
	switch name := p.name(); name {
	case "if":
		return p.ifStatement(at)
	case "for":
		return p.forStatement(at)
	case "set":
		return p.setStatement(at)
	case "macro":
		m := &macroNode{pos: at, name: p.name()}
		m.params = p.params()
		m.body = p.macroBody("endmacro")
		return m
	case "call":
		m := &macroNode{pos: at, name: "caller"}
		if p.is(kindOp, "(") {
			m.params = p.params()
		}
		call := p.expression()
		if _, ok := call.(*callExpr); !ok {
			p.fail("{%% call %%} wants a call")
		}
		m.body = p.macroBody("endcall")
		return &callNode{at, call, m}
	case "filter":
		n := &filterNode{pos: at, filters: []filterCall{p.filter()}}
		for p.accept(kindOp, "|") {
			n.filters = append(n.filters, p.filter())
		}
		n.body = p.body("endfilter")
		return n
	case "with":
		n := &withNode{pos: at}
		for p.peek().kind == kindName {
			n.names = append(n.names, p.target())
			p.expect(kindOp, "=")
			n.values = append(n.values, p.expression())
			if !p.accept(kindOp, ",") {
				break
			}
		}
		n.body = p.body("endwith")
		return n
	case "generation":
		return &generationNode{p.body("endgeneration")}
	case "break", "continue":
		if p.inLoop == 0 {
			p.fail("{%% %s %%} outside a loop", name)
		}
		p.blockEnd()
		return &loopControl{at, name == "break"}
	case "extends", "include", "import", "from", "block":
		p.fail("{%% %s %%} is not supported: a chat template is a single file", name)
	default:
		p.fail("unknown tag {%% %s %%}", name)
	}
	return nil
}

// macroBody parses a body that loop controls cannot leave.
func (p *parser) macroBody(end string) []node {
	loops := p.inLoop
	p.inLoop = 0
	defer func() { p.inLoop = loops }()
	return p.body(end)
}

func (p *parser) ifStatement(at pos) node {
	n := &ifNode{pos: at}
	for {
		n.conds = append(n.conds, p.tuple(true))
		p.blockEnd()
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

func (p *parser) forStatement(at pos) node {
	n := &forNode{pos: at, target: p.target()}
	p.expect(kindName, "in")
	n.iter = p.tuple(false)
	if p.accept(kindName, "if") {
		n.filter = p.expression()
	}
	n.recursive = p.accept(kindName, "recursive")
	p.blockEnd()
	p.inLoop++
	n.body = p.nodes("else", "endfor")
	p.inLoop--
	if p.name() == "else" {
		n.elseBody = p.body("endfor")
	} else {
		p.blockEnd()
	}
	return n
}

func (p *parser) setStatement(at pos) node {
	n := &setNode{pos: at, target: p.target()}
	if p.accept(kindOp, "=") {
		n.value = p.tuple(true)
		p.blockEnd()
		return n
	}
	for p.accept(kindOp, "|") {
		n.filters = append(n.filters, p.filter())
	}
	n.body = p.body("endset")
	return n
}

// target parses what is assigned to: a, ns.a, or a, b.
func (p *parser) target() target {
	defer p.nest()()
	var list []target
	tuple := false
	for {
		if p.accept(kindOp, "(") {
			list = append(list, p.target())
			p.expect(kindOp, ")")
		} else {
			t := target{name: p.name()}
			if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, t.name) {
				p.fail("cannot assign to %s", t.name)
			}
			if p.accept(kindOp, ".") {
				t.attr = p.name()
			}
			list = append(list, t)
		}
		if !p.accept(kindOp, ",") {
			break
		}
		tuple = true
		if p.peek().kind != kindName && !p.is(kindOp, "(") || p.is(kindName, "in") {
			break
		}
	}
	if len(list) == 1 && !tuple {
		return list[0]
	}
	return target{tuple: list}
}

func (p *parser) params() (list []param) {
	p.expect(kindOp, "(")
	for !p.accept(kindOp, ")") {
		if len(list) > 0 {
			p.expect(kindOp, ",")
			if p.accept(kindOp, ")") {
				break
			}
		}
		q := param{name: p.name()}
		if p.accept(kindOp, "=") {
			q.value = p.expression()
		} else if len(list) > 0 && list[len(list)-1].value != nil {
			p.fail("parameter %s without a default after one with", q.name)
		}
		list = append(list, q)
	}
	return list
}

// tuple parses an expression, or several separated by commas. cond says whether "a if b" may stand there: in a
// loop head the "if" belongs to the loop.
func (p *parser) tuple(cond bool) expr {
	one := p.or
	if cond {
		one = p.expression
	}
	at := p.here()
	e := one()
	if !p.is(kindOp, ",") {
		return e
	}
	list := &listExpr{pos: at, items: []expr{e}, tuple: true}
	for p.accept(kindOp, ",") {
		switch t := p.peek(); {
		case t.kind == kindVarEnd, t.kind == kindBlockEnd, t.kind == kindOp && t.text == ")":
			return list
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
func (p *parser) sum() expr    { return p.binary(p.concat, "+", "-") }
func (p *parser) concat() expr { return p.binary(p.product, "~") }
func (p *parser) product() expr {
	return p.binary(p.power, "*", "/", "//", "%")
}
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
		return &nameExpr{pos{t.line}, t.text}
	case kindString:
		for p.peek().kind == kindString {
			t.text += p.next().text
		}
		return &literal{t.text}
	case kindInt:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			p.at--
			p.fail("number %s is too large", t.text)
		}
		return &literal{n}
	case kindFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.at--
			p.fail("number %s is too large", t.text)
		}
		return &literal{f}
	case kindOp:
		defer p.nest()()
		switch t.text {
		case "(":
			if p.accept(kindOp, ")") {
				return &listExpr{pos: pos{t.line}, tuple: true}
			}
			e := p.tuple(true)
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
				i, _ := strconv.ParseInt(n.text, 10, 64)
				e = &itemExpr{pos{t.line}, e, &literal{i}}
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

func (p *parser) subscript(line int, of expr) expr {
	defer p.nest()()
	var parts [3]expr
	n, colons := 0, 0
	for !p.accept(kindOp, "]") {
		if p.accept(kindOp, ":") {
			if colons++; colons > 2 {
				p.fail("a slice has at most two colons")
			}
			continue
		}
		if n > colons {
			p.fail("expected ], found %s", p.peek())
		}
		parts[colons] = p.expression()
		n = colons + 1
	}
	switch {
	case colons > 0:
		return &sliceExpr{pos{line}, of, parts[0], parts[1], parts[2]}
	case parts[0] == nil:
		p.fail("expected an index between [ and ]")
	}
	return &itemExpr{pos{line}, of, parts[0]}
}

func (p *parser) args() (a args) {
	defer p.nest()()
	p.expect(kindOp, "(")
	for i := 0; !p.accept(kindOp, ")"); i++ {
		if i > 0 {
			p.expect(kindOp, ",")
			if p.accept(kindOp, ")") {
				break
			}
		}
		switch t := p.peek(); {
		case t.kind == kindOp && t.text == "*":
			p.next()
			a.star = p.expression()
		case t.kind == kindOp && t.text == "**":
			p.next()
			a.starStar = p.expression()
		case t.kind == kindName && p.tokens[p.at+1].kind == kindOp && p.tokens[p.at+1].text == "=":
			p.at += 2
			a.names = append(a.names, t.text)
			a.values = append(a.values, p.expression())
		default:
			if a.names != nil {
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
	name := p.name()
	for p.accept(kindOp, ".") {
		name += "." + p.name()
	}
	return name
}

func (p *parser) filter() filterCall {
	f := filterCall{pos: p.here(), name: p.dotted()}
	if _, ok := p.filters[f.name]; !ok {
		p.at--
		p.fail("unknown filter %q", f.name)
	}
	if p.is(kindOp, "(") {
		f.args = p.args()
	}
	return f
}

func (p *parser) test(of expr) expr {
	t := &testExpr{pos: p.here(), of: of}
	p.next()
	t.negate = p.accept(kindName, "not")
	if t.name = p.dotted(); p.tests[t.name] == nil {
		p.at--
		p.fail("unknown test %q", t.name)
	}
	switch next := p.peek(); {
	case next.kind == kindOp && next.text == "(":
		t.args = p.args()
	case next.kind == kindName && slices.Contains([]string{"else", "or", "and", "is", "if", "in", "not"}, next.text):
	case next.kind == kindName, next.kind == kindString, next.kind == kindInt, next.kind == kindFloat,
		next.kind == kindOp && strings.Contains("[{", next.text):
		t.args.list = []expr{p.postfix(p.primary())}
	}
	return t
}
