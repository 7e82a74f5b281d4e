// Package gbnf reads GBNF, the grammar notation of llama.cpp, as llama.cpp's own parser does
// (src/llama-grammar.cpp).
//
// Rules are `name ::= alternatives`, one a line, a line end being allowed behind ::=, behind | and inside parentheses;
// names are letters, digits and hyphens; # begins a comment. Items are "literal", [class], [^class], . (any code
// point), rule names and (groups), each with *, +, ?, {m}, {m,} or {m,n} behind it. Escapes are \xHH, \uHHHH,
// \UHHHHHHHH, \t, \r, \n, \\, \", \[ and \]. A rule that is defined twice has its last definition. The text of the
// grammar is the rule root.
//
// Differences: repetitions have no bound of 2,000, since they are counted and not expanded; direct left recursion is
// rewritten; {m,n} with n below m is refused; the token forms <[id]>, <text> and !<…> are refused, because the grammar
// is one of bytes and a token is not told by its text.
package gbnf

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

var (
	// ErrSyntax is wrapped by the error of a text that is not GBNF; its message says where.
	ErrSyntax = errors.New("gbnf: syntax error")
	// ErrUnsupported wraps a form that is GBNF and is not implemented.
	ErrUnsupported = errors.New("gbnf: not supported")
)

const (
	maxBytes = 1 << 20 // of a grammar's text
	maxDepth = 200     // of parentheses
)

// Parse adds the rules of text to b and returns the rule root. Errors wrap ErrSyntax, ErrUnsupported,
// grammar.ErrUndefined or grammar.ErrLimit. Whether the grammar can be matched is Build's to say.
func Parse(b *grammar.Builder, text string) (grammar.Node, error) {
	if len(text) > maxBytes {
		return 0, fmt.Errorf("%w: a grammar of %d bytes, more than %d", grammar.ErrLimit, len(text), maxBytes)
	}
	if !utf8.ValidString(text) {
		return 0, fmt.Errorf("%w: the text is not UTF-8", ErrSyntax)
	}
	p := &parser{b: b, text: text, rules: map[string]grammar.Node{}, defined: map[string]bool{}}
	p.space(true)
	for p.pos < len(text) {
		if err := p.rule(); err != nil {
			return 0, err
		}
	}
	for _, name := range p.used {
		if !p.defined[name] {
			return 0, fmt.Errorf("%w: %q", grammar.ErrUndefined, name)
		}
	}
	if !p.defined["root"] {
		return 0, fmt.Errorf("%w: %q", grammar.ErrUndefined, "root")
	}
	return p.rules["root"], b.Err()
}

type parser struct {
	b       *grammar.Builder
	text    string
	pos     int
	depth   int
	rules   map[string]grammar.Node
	used    []string // in order, for errors
	defined map[string]bool
}

func (p *parser) fail(wrapped error, format string, a ...any) error {
	line, column := 1, 1
	for _, r := range p.text[:min(p.pos, len(p.text))] {
		if column++; r == '\n' {
			line, column = line+1, 1
		}
	}
	return fmt.Errorf("%w: %s at line %d, column %d", wrapped, fmt.Sprintf(format, a...), line, column)
}

// peek returns the byte at the position, 0 at the end. A NUL in the text is no part of any form, so it ends nothing
// early.
func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// space skips blanks and comments, and line ends where they may be.
func (p *parser) space(lines bool) {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == ' ' || c == '\t' || lines && (c == '\r' || c == '\n'):
			p.pos++
		case c == '#':
			for p.pos < len(p.text) && p.text[p.pos] != '\r' && p.text[p.pos] != '\n' {
				p.pos++
			}
		default:
			return
		}
	}
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || '0' <= c && c <= '9'
}

func (p *parser) name() (string, error) {
	from := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	if p.pos == from {
		return "", p.fail(ErrSyntax, "a rule's name is expected")
	}
	return p.text[from:p.pos], nil
}

// ref returns the rule of a name, which may be defined later.
func (p *parser) ref(name string) grammar.Node {
	n, ok := p.rules[name]
	if !ok {
		n = p.b.Rule(name)
		p.rules[name] = n
		p.used = append(p.used, name)
	}
	return n
}

func (p *parser) rule() error {
	name, err := p.name()
	if err != nil {
		return err
	}
	p.space(false)
	if len(p.text)-p.pos < 3 || p.text[p.pos:p.pos+3] != "::=" {
		return p.fail(ErrSyntax, "::= is expected behind %q", name)
	}
	p.pos += 3
	p.space(true)
	body, err := p.alternatives(false)
	if err != nil {
		return err
	}
	p.b.Define(p.ref(name), body)
	p.defined[name] = true
	if c := p.peek(); p.pos < len(p.text) && c != '\r' && c != '\n' {
		return p.fail(ErrSyntax, "%q: a line end is expected", name)
	}
	p.space(true)
	return nil
}

func (p *parser) alternatives(nested bool) (grammar.Node, error) {
	if p.depth++; p.depth > maxDepth {
		return 0, p.fail(grammar.ErrLimit, "parentheses nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	var alts []grammar.Node
	for {
		n, err := p.sequence(nested)
		if err != nil {
			return 0, err
		}
		alts = append(alts, n)
		if p.peek() != '|' {
			return p.b.Alt(alts...), nil
		}
		p.pos++
		p.space(true)
	}
}

func (p *parser) sequence(nested bool) (grammar.Node, error) {
	var items []grammar.Node
	repeatable := false // the last item is one that a repetition may follow
	for p.pos < len(p.text) {
		if min, max, ok, err := p.repetition(nested); err != nil {
			return 0, err
		} else if ok {
			if !repeatable {
				return 0, p.fail(ErrSyntax, "a repetition of nothing")
			}
			last := len(items) - 1
			items[last] = p.b.Repeat(items[last], min, max)
			repeatable = max != 0
			continue
		}
		n, ok, empty, err := p.item()
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		p.space(nested)
		if repeatable = !empty; repeatable {
			items = append(items, n)
		}
	}
	return p.b.Seq(items...), nil
}

// item reads one item; ok is false when none begins here, empty says that it has no element ("" or []).
func (p *parser) item() (n grammar.Node, ok, empty bool, err error) {
	switch c := p.peek(); {
	case c == '"':
		p.pos++
		var chars []regex.Expr
		for p.peek() != '"' {
			r, err := p.char()
			if err != nil {
				return 0, false, false, err
			}
			chars = append(chars, p.b.Regex().Runes(regex.RuneRange{Lo: r, Hi: r}))
		}
		p.pos++
		return p.b.Terminal(p.b.Regex().Concat(chars...)), true, len(chars) == 0, nil
	case c == '[':
		p.pos++
		e, empty, err := p.class()
		return p.b.Terminal(e), true, empty, err
	case c == '<' || c == '!':
		return 0, false, false, p.fail(ErrUnsupported, "a token (<[id]>, <text>, !<…>)")
	case isWord(c):
		name, err := p.name()
		return p.ref(name), true, false, err
	case c == '(':
		p.pos++
		p.space(true)
		n, err := p.alternatives(true)
		if err == nil && p.peek() != ')' {
			err = p.fail(ErrSyntax, ") is expected")
		}
		p.pos++
		return n, true, false, err
	case c == '.':
		p.pos++
		return p.b.Terminal(p.b.Regex().AnyRune()), true, false, nil
	}
	return 0, false, false, nil
}

// class reads a class behind its bracket.
func (p *parser) class() (regex.Expr, bool, error) {
	negated := p.peek() == '^'
	if negated {
		p.pos++
	}
	var ranges []regex.RuneRange
	for p.peek() != ']' {
		lo, err := p.char()
		if err != nil {
			return 0, false, err
		}
		hi := lo
		if p.peek() == '-' && p.pos+1 < len(p.text) && p.text[p.pos+1] != ']' {
			p.pos++
			if hi, err = p.char(); err != nil {
				return 0, false, err
			}
		}
		ranges = append(ranges, regex.RuneRange{Lo: lo, Hi: hi})
	}
	p.pos++
	switch set := p.b.Regex(); {
	case len(ranges) == 0:
		return set.Empty(), true, nil // no element, as in llama.cpp, whether negated or not
	case negated:
		return set.NotRunes(ranges...), false, nil
	default:
		return set.Runes(ranges...), false, nil
	}
}

// char reads one code point of a literal or class.
func (p *parser) char() (rune, error) {
	if p.pos >= len(p.text) {
		return 0, p.fail(ErrSyntax, "the text ends inside a literal or class")
	}
	if p.text[p.pos] != '\\' {
		r, n := utf8.DecodeRuneInString(p.text[p.pos:])
		p.pos += n
		return r, nil
	}
	if p.pos++; p.pos >= len(p.text) {
		return 0, p.fail(ErrSyntax, "the text ends inside an escape")
	}
	c := p.text[p.pos]
	p.pos++
	switch c {
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case 'n':
		return '\n', nil
	case '\\', '"', '[', ']':
		return rune(c), nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits == 0 {
		return 0, p.fail(ErrSyntax, "the escape \\%c is not one", c)
	}
	if p.pos+digits > len(p.text) {
		return 0, p.fail(ErrSyntax, "%d hexadecimal digits are expected", digits)
	}
	v, err := strconv.ParseUint(p.text[p.pos:p.pos+digits], 16, 32)
	if err != nil {
		return 0, p.fail(ErrSyntax, "%d hexadecimal digits are expected", digits)
	}
	if v > utf8.MaxRune {
		return 0, p.fail(ErrSyntax, "U+%X is no code point", v)
	}
	p.pos += digits
	return rune(v), nil
}

// repetition reads *, +, ? or a count.
func (p *parser) repetition(nested bool) (min, max int, ok bool, err error) {
	max = grammar.Unbounded
	switch p.peek() {
	case '*':
	case '+':
		min = 1
	case '?':
		max = 1
	case '{':
		min, max, err = p.count(nested)
		return min, max, err == nil, err
	default:
		return 0, 0, false, nil
	}
	p.pos++
	p.space(nested)
	return min, max, true, nil
}

func (p *parser) count(nested bool) (min, max int, err error) {
	p.pos++
	p.space(nested)
	if min, err = p.number(); err != nil {
		return 0, 0, err
	}
	p.space(nested)
	max = min
	if p.peek() == ',' {
		p.pos++
		p.space(nested)
		max = grammar.Unbounded
		if c := p.peek(); '0' <= c && c <= '9' {
			if max, err = p.number(); err != nil {
				return 0, 0, err
			}
			p.space(nested)
		}
	}
	if p.peek() != '}' {
		return 0, 0, p.fail(ErrSyntax, "} is expected")
	}
	if max >= 0 && max < min {
		return 0, 0, p.fail(ErrSyntax, "a repetition {%d,%d}", min, max)
	}
	p.pos++
	p.space(nested)
	return min, max, nil
}

func (p *parser) number() (int, error) {
	from := p.pos
	for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
		p.pos++
	}
	n, err := strconv.ParseInt(p.text[from:p.pos], 10, 32)
	if err != nil {
		return 0, p.fail(ErrSyntax, "a count is expected")
	}
	return int(n), nil
}
