package syntax

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// load is a name that is read. caller, kwargs and varargs make every macro around take such arguments.
func (p *parser) load(at pos, name string) *NameExpr {
	if name == "caller" || name == "kwargs" || name == "varargs" {
		for sc := p.scope; sc != nil; sc = sc.parent {
			if _, own := sc.Slots[name]; own || sc.macro == nil {
				continue
			}
			*map[string]*int{"caller": &sc.macro.Caller, "kwargs": &sc.macro.Kwargs,
				"varargs": &sc.macro.Varargs}[name] = sc.slot(name)
		}
	}
	if name == "loop" {
		p.scope.capture()
	}
	global, ok := p.globals[name]
	if !ok {
		global = len(p.globals)
		p.globals[name] = global
	}
	n := &NameExpr{pos: at, Name: name, scope: p.scope, Global: global}
	p.names = append(p.names, n)
	return n
}

// tuple parses an expression, or several separated by commas, up to end where that is a name. cond says whether
// "a if b" may be there: in a loop head the "if" belongs to the loop.
func (p *parser) tuple(cond bool, end string) Expr {
	one := p.or
	if cond {
		one = p.expression
	}
	list := &ListExpr{pos: p.here(), Tuple: true}
	list.Items = append(list.Items, one())
	if !p.is(kindOp, ",") {
		return list.Items[0]
	}
	for p.accept(kindOp, ",") {
		t := p.peek()
		if t.kind == kindVarEnd || t.kind == kindBlockEnd || t.kind == kindOp && t.text == ")" || end != "" &&
			p.is(kindName, end) {
			break
		}
		list.Items = append(list.Items, one())
	}
	return list
}

// expression is the grammar's top: a if b else c.
func (p *parser) expression() Expr {
	defer p.nest()()
	e := p.or()
	for p.accept(kindName, "if") {
		c := &CondExpr{Cond: p.or(), Then: e}
		if p.accept(kindName, "else") {
			c.Other = p.expression()
		}
		e = c
	}
	return e
}

func (p *parser) or() Expr {
	e := p.and()
	for p.accept(kindName, "or") {
		e = &LogicExpr{e, p.and(), true}
	}
	return e
}

func (p *parser) and() Expr {
	e := p.not()
	for p.accept(kindName, "and") {
		e = &LogicExpr{e, p.not(), false}
	}
	return e
}

func (p *parser) not() Expr {
	if p.is(kindName, "not") {
		defer p.nest()()
		p.next()
		return &NotExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() Expr {
	c := &CompareExpr{pos: p.here(), First: p.sum()}
	for {
		t := p.peek()
		switch {
		case t.kind == kindOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text),
			t.kind == kindName && t.text == "in":
			p.next()
			c.Ops = append(c.Ops, t.text)
		case t.kind == kindName && t.text == "not" && p.tokens[p.at+1].kind == kindName &&
			p.tokens[p.at+1].text == "in":
			p.at += 2
			c.Ops = append(c.Ops, "not in")
		default:
			if c.Ops == nil {
				return c.First
			}
			return c
		}
		c.Rest = append(c.Rest, p.sum())
	}
}

// binary parses a left-associative level of operators.
func (p *parser) binary(operand func() Expr, ops ...string) Expr {
	e := operand()
	for {
		t := p.peek()
		if t.kind != kindOp || !slices.Contains(ops, t.text) {
			return e
		}
		p.next()
		e = &BinaryExpr{pos{t.line}, t.text, e, operand()}
	}
}

// From loosest to tightest: + -, ~, * / // %, **, sign.
func (p *parser) sum() Expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() Expr {
	c := &ConcatExpr{pos: p.here(), Items: []Expr{p.product()}}
	for p.accept(kindOp, "~") {
		c.Items = append(c.Items, p.product())
	}
	if len(c.Items) == 1 {
		return c.Items[0]
	}
	return c
}

func (p *parser) product() Expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() Expr { return p.binary(func() Expr { return p.unary(true) }, "**") }

func (p *parser) unary(filters bool) Expr {
	var e Expr
	if t := p.peek(); t.kind == kindOp && (t.text == "-" || t.text == "+") {
		defer p.nest()()
		p.next()
		e = &SignExpr{pos{t.line}, p.unary(false), t.text == "-"}
	} else {
		e = p.postfix(p.primary())
	}
	if filters {
		e = p.filtered(e)
	}
	return e
}

// number returns an integer or float literal's value.
func (p *parser) number(t token) any {
	if t.kind == kindInt {
		digits, base := t.text, 10
		if len(digits) > 2 && digits[0] == '0' && !Decimal(digits[1]) {
			digits, base = digits[2:], map[byte]int{'b': 2, 'o': 8, 'x': 16}[digits[1]|0x20]
		}
		if n, err := strconv.ParseInt(digits, base, 64); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(digits[:min(len(digits), MaxDigits)], base); ok && len(digits) <= MaxDigits {
			return n
		}
		p.at--
		p.fail("a number has %d digits, the limit is %d", len(digits), MaxDigits)
	}
	f, _ := strconv.ParseFloat(t.text, 64) // out of range is inf, as in Python
	return f
}

func (p *parser) primary() Expr {
	t := p.next()
	switch t.kind {
	case kindName:
		switch t.text {
		case "true", "True":
			return &Literal{true}
		case "false", "False":
			return &Literal{false}
		case "none", "None":
			return &Literal{nil}
		}
		return p.load(pos{t.line}, t.text)
	case kindString:
		var b strings.Builder
		b.WriteString(t.text)
		for p.peek().kind == kindString {
			b.WriteString(p.next().text)
		}
		return &Literal{b.String()}
	case kindInt, kindFloat:
		return &Literal{p.number(t)}
	case kindOp:
		defer p.nest()()
		switch t.text {
		case "(":
			if p.accept(kindOp, ")") {
				return &ListExpr{pos: pos{t.line}, Tuple: true}
			}
			e := p.tuple(true, "")
			p.expect(kindOp, ")")
			return e
		case "[":
			l := &ListExpr{pos: pos{t.line}}
			for !p.accept(kindOp, "]") {
				if len(l.Items) > 0 {
					p.expect(kindOp, ",")
					if p.accept(kindOp, "]") {
						break
					}
				}
				l.Items = append(l.Items, p.expression())
			}
			return l
		case "{":
			d := &DictExpr{pos: pos{t.line}}
			for !p.accept(kindOp, "}") {
				if len(d.Keys) > 0 {
					p.expect(kindOp, ",")
					if p.accept(kindOp, "}") {
						break
					}
				}
				d.Keys = append(d.Keys, p.expression())
				p.expect(kindOp, ":")
				d.Values = append(d.Values, p.expression())
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

func (p *parser) postfix(e Expr) Expr {
	for {
		t := p.peek()
		switch {
		case t.kind != kindOp:
			return e
		case t.text == ".":
			p.next()
			switch n := p.next(); n.kind {
			case kindName:
				e = &AttrExpr{pos{t.line}, e, n.text}
			case kindInt:
				e = &ItemExpr{pos{t.line}, e, &Literal{p.number(n)}}
			default:
				p.fail("expected a name after the dot")
			}
		case t.text == "[":
			p.next()
			e = p.subscript(t.line, e)
		case t.text == "(":
			e = &CallExpr{pos{t.line}, e, p.args()}
		default:
			return e
		}
	}
}

// subscript parses a[b], a[b:c:d] and a[b, c], whose key is a tuple.
func (p *parser) subscript(line int, of Expr) Expr {
	defer p.nest()()
	var keys []Expr
	for !p.accept(kindOp, "]") {
		if len(keys) > 0 {
			p.expect(kindOp, ",")
		}
		var parts [3]Expr
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
			return &SliceExpr{pos{line}, of, parts[0], parts[1], parts[2]}
		}
		if parts[0] == nil {
			p.fail("expected an index, found %s", p.peek())
		}
		keys = append(keys, parts[0])
	}
	if len(keys) == 1 {
		return &ItemExpr{pos{line}, of, keys[0]}
	}
	return &ItemExpr{pos{line}, of, &ListExpr{pos: pos{line}, Items: keys, Tuple: true}}
}

func (p *parser) args() (a Args) {
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
			if p.next(); a.Star != nil || a.StarStar != nil {
				p.fail("* after another * or **")
			}
			a.Star = p.expression()
		case t.kind == kindOp && t.text == "**":
			if p.next(); a.StarStar != nil {
				p.fail("** is there twice")
			}
			a.StarStar = p.expression()
		case t.kind == kindName && p.tokens[p.at+1].kind == kindOp && p.tokens[p.at+1].text == "=":
			if a.StarStar != nil || seen[t.text] {
				p.fail("argument %s is there twice or follows **", t.text)
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[t.text] = true
			p.at += 2
			a.Names = append(a.Names, t.text)
			a.Values = append(a.Values, p.expression())
		default:
			if a.Names != nil || a.Star != nil || a.StarStar != nil {
				p.fail("a positional argument after a named one")
			}
			a.List = append(a.List, p.expression())
		}
	}
	return a
}

// filtered parses what may follow a value: |filters, is tests, and calls of a filter's result.
func (p *parser) filtered(e Expr) Expr {
	for {
		switch {
		case p.accept(kindOp, "|"):
			e = &FilterExpr{e, p.filter()}
		case p.is(kindName, "is"):
			e = p.test(e)
		case p.is(kindOp, "("):
			e = &CallExpr{p.here(), e, p.args()}
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

func (p *parser) filter() FilterCall {
	f := FilterCall{pos: p.here(), Name: p.dotted()}
	if p.is(kindOp, "(") {
		f.Args = p.args()
	}
	return f
}

func (p *parser) test(of Expr) Expr {
	t := &TestExpr{pos: p.here(), Of: of}
	p.next()
	t.Negate = p.accept(kindName, "not")
	t.Name = p.dotted()
	switch next := p.peek(); {
	case next.kind == kindOp && next.text == "(":
		t.Args = p.args()
	case next.kind == kindName && slices.Contains([]string{"else", "or", "and"}, next.text):
	case next.kind == kindName && next.text == "is":
		p.fail("tests cannot be chained with is")
	case next.kind == kindName, next.kind == kindString, next.kind == kindInt, next.kind == kindFloat,
		next.kind == kindOp && strings.Contains("[{", next.text):
		t.Args.List = []Expr{p.postfix(p.primary())}
	}
	return t
}
