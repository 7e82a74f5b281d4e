package jinja

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// load is a name that is read. caller, kwargs and varargs make every macro around take such arguments.
func (p *parser) load(at pos, name string) *nameExpr {
	if name == "caller" || name == "kwargs" || name == "varargs" {
		for sc := p.scope; sc != nil; sc = sc.parent {
			if _, own := sc.slots[name]; own || sc.macro == nil {
				continue
			}
			*map[string]*int{"caller": &sc.macro.caller, "kwargs": &sc.macro.kwargs,
				"varargs": &sc.macro.varargs}[name] = sc.slot(name)
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
		if t.kind == kindVarEnd || t.kind == kindBlockEnd || t.kind == kindOp && t.text == ")" || end != "" &&
			p.is(kindName, end) {
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
		case t.kind == kindOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text),
			t.kind == kindName && t.text == "in":
			p.next()
			c.ops = append(c.ops, t.text)
		case t.kind == kindName && t.text == "not" && p.tokens[p.at+1].kind == kindName &&
			p.tokens[p.at+1].text == "in":
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
