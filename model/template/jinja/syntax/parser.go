package syntax

import "slices"

// maxNesting bounds how deep brackets and blocks may nest in a template's source.
const maxNesting = 200

// MaxSource is the largest template that Parse accepts, in bytes. The longest ones in use have about 20,000.
const MaxSource = 1 << 20

// Tree is a parsed template. It is immutable.
type Tree struct {
	Body    []Node
	Scope   *Scope
	Globals map[string]int // the names that may be global, numbered from 0
	Blocks  map[string]*BlockNode
}

// Parse reads a template. The error is an *Error that names the line.
func Parse(src string) (t *Tree, err error) {
	if len(src) > MaxSource {
		return nil, ErrorAt(1, "the template has %d bytes, the limit is %d", len(src), MaxSource)
	}
	tokens, err := lex(src)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e, ok := recover().(*Error); ok {
			t, err = nil, e
		} else if e != nil {
			panic(e)
		}
	}()
	root := newScope(nil)
	p := &parser{tokens: tokens, scope: root, root: root, globals: map[string]int{}, blocks: map[string]*BlockNode{}}
	t = &Tree{Body: p.nodes(), Scope: root, Globals: p.globals, Blocks: p.blocks}
	p.resolve()
	return t, nil
}

type parser struct {
	tokens  []token
	at      int
	depth   int
	scope   *Scope
	root    *Scope
	names   []*NameExpr
	globals map[string]int // names that no scope may have, by the order of their first use
	blocks  map[string]*BlockNode
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
	panic(ErrorAt(p.peek().line, format, a...))
}

func (p *parser) expect(k kind, text string) {
	if !p.is(k, text) {
		p.fail("expected %q, found %s", text, p.peek())
	}
	p.next()
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
func (p *parser) within(sc *Scope, parse func()) {
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
			if slot, ok := sc.Slots[n.Name]; ok {
				n.Places = append(n.Places, place{hops, slot})
			}
			hops++
		}
	}
}

// nodes parses statements until a block whose name is among ends (left for the caller) or the template's end.
func (p *parser) nodes(ends ...string) []Node {
	defer p.nest()()
	var list []Node
	for {
		switch t := p.peek(); t.kind {
		case kindEOF:
			if len(ends) > 0 {
				p.fail("missing {%% %s %%}", ends[len(ends)-1])
			}
			return list
		case kindText:
			p.next()
			list = append(list, &TextNode{t.text})
		case kindVarBegin:
			p.next()
			list = append(list, &OutputNode{pos{t.line}, p.tuple(true, "")})
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

// head ends a statement that has a body. A colon may be there, as in Python.
func (p *parser) head() {
	p.accept(kindOp, ":")
	p.blockEnd()
}

// body parses up to {% end %}.
func (p *parser) body(end string) []Node {
	p.head()
	list := p.nodes(end)
	p.name()
	p.blockEnd()
	return list
}
