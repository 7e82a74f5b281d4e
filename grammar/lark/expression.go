package lark

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

// alternatives reads what | separates. An alternative may begin the next line.
func (p *parser) alternatives() (grammar.Node, error) {
	if p.depth++; p.depth > maxDepth {
		return 0, p.fail(grammar.ErrLimit, "parentheses nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	var alts []grammar.Node
	for {
		n, err := p.sequence()
		if err != nil {
			return 0, err
		}
		alts = append(alts, n)
		before := p.pos
		if p.space(true); p.peek() != '|' {
			if p.depth == 1 {
				p.pos = before // the end of the line ends the rule
			}
			return p.b.Alt(alts...), nil
		}
		p.pos++
	}
}

func (p *parser) sequence() (grammar.Node, error) {
	var items []grammar.Node
	for {
		if p.space(p.depth > 1); p.ahead("->") {
			p.pos += 2
			p.space(false)
			if _, err := p.name(); err != nil {
				return 0, err
			}
			continue
		}
		n, ok, err := p.item()
		if err != nil {
			return 0, err
		}
		if !ok {
			return p.b.Seq(items...), nil
		}
		if n, err = p.repeated(n); err != nil {
			return 0, err
		}
		items = append(items, n)
	}
}

// token returns a terminal of a rule, with ignored texts behind it.
func (p *parser) token(n grammar.Node) grammar.Node {
	if p.terminal {
		return n
	}
	return p.b.Seq(n, p.ignore)
}

// item reads one item; ok is false where none begins.
func (p *parser) item() (n grammar.Node, ok bool, err error) {
	switch c := p.peek(); {
	case c == '"':
		n, err = p.literal()
		return p.token(n), true, err
	case c == '/':
		n, err = p.pattern()
		return p.token(n), true, err
	case c == '(' || c == '[':
		p.pos++
		if n, err = p.alternatives(); err != nil {
			return 0, false, err
		}
		end := map[byte]byte{'(': ')', '[': ']'}[c]
		if p.peek() != end {
			return 0, false, p.fail(ErrSyntax, "%c is expected", end)
		}
		if p.pos++; c == '[' {
			n = p.b.Optional(n)
		}
		return n, true, nil
	case c == '<':
		return 0, false, p.fail(ErrUnsupported, "a token (<…>)")
	case c == '@':
		return 0, false, p.fail(ErrUnsupported, "another grammar (@…)")
	case c == '&' || c == '~':
		return 0, false, p.fail(ErrUnsupported, "an intersection or negation (%c)", c)
	case c == '%':
		p.pos++
		word, err := p.name()
		if err == nil && word != "json" {
			err = p.fail(ErrUnsupported, "%%%s within a rule", word)
		}
		if err != nil {
			return 0, false, err
		}
		p.space(true)
		raw, err := p.json()
		if err != nil {
			return 0, false, err
		}
		n, err = jsonschema.Add(p.b, raw, jsonschema.Options{}, p.limits)
		return p.token(n), true, err
	case isLetter(c):
		name, err := p.name()
		if n = p.ref(name); isTerminal(name) {
			n = p.token(n)
		}
		return n, true, err
	}
	return 0, false, nil
}

// str reads a literal and whether it ends in i.
func (p *parser) str() (text string, fold bool, err error) {
	from := p.pos
	if p.peek() != '"' {
		return "", false, p.fail(ErrSyntax, "a literal is expected")
	}
	for p.pos++; p.peek() != '"'; p.pos++ {
		if c := p.peek(); p.pos >= len(p.text) || c == '\n' {
			return "", false, p.fail(ErrSyntax, "the literal does not end")
		} else if c == '\\' {
			p.pos++
		}
		if p.pos >= len(p.text) {
			return "", false, p.fail(ErrSyntax, "the literal does not end")
		}
	}
	p.pos++
	// llguidance reads JSON, Lark Python: what JSON does not have, as \x41, is read as Go's.
	if json.Unmarshal([]byte(p.text[from:p.pos]), &text) != nil {
		text, err = strconv.Unquote(p.text[from:p.pos])
	}
	if err != nil || !utf8.ValidString(text) {
		return "", false, p.fail(ErrSyntax, "%s is no literal", p.text[from:p.pos])
	}
	if fold = p.peek() == 'i'; fold {
		p.pos++
	}
	return text, fold, nil
}

// literal reads a literal, or the range that it begins.
func (p *parser) literal() (grammar.Node, error) {
	lo, fold, err := p.str()
	if err != nil {
		return 0, err
	}
	before := p.pos
	if p.space(false); !p.ahead("..") {
		p.pos = before
		if fold {
			return p.b.Pattern("(?i)" + regexp.QuoteMeta(lo))
		}
		return p.b.Literal(lo), nil
	}
	p.pos += 2
	p.space(false)
	hi, _, err := p.str()
	if err != nil {
		return 0, err
	}
	from, to := []rune(lo), []rune(hi)
	if len(from) != 1 || len(to) != 1 || from[0] > to[0] || fold {
		return 0, p.fail(ErrSyntax, "%q..%q is no range of characters", lo, hi)
	}
	return p.b.Terminal(p.b.Regex().Runes(regex.RuneRange{Lo: from[0], Hi: to[0]})), nil
}

// pattern reads a regular expression with its flags.
func (p *parser) pattern() (grammar.Node, error) {
	from := p.pos + 1
	for p.pos++; p.peek() != '/'; p.pos++ {
		if p.peek() == '\\' {
			p.pos++
		}
		if p.pos >= len(p.text) || p.peek() == '\n' {
			return 0, p.fail(ErrSyntax, "the regular expression does not end")
		}
	}
	text, flags := strings.ReplaceAll(p.text[from:p.pos], `\/`, "/"), ""
	for p.pos++; p.peek() >= 'a' && p.peek() <= 'z'; p.pos++ {
		switch c := p.peek(); c {
		case 'u':
		case 'i', 's':
			flags += string(c)
		default:
			return 0, p.fail(ErrUnsupported, "the flag %c of a regular expression", c)
		}
	}
	if flags != "" {
		text = "(?" + flags + ")" + text
	}
	n, err := p.b.Pattern(text)
	if err != nil {
		return 0, fmt.Errorf("lark: /%.100s/: %w", text, err)
	}
	return n, nil
}

// repeated reads the repetitions behind n.
func (p *parser) repeated(n grammar.Node) (grammar.Node, error) {
	for {
		least, most := 0, grammar.Unbounded
		before := p.pos
		p.space(false)
		switch p.peek() {
		case '*':
		case '+':
			least = 1
		case '?':
			most = 1
		case '~', '{':
			return p.counted(n)
		default:
			p.pos = before
			return n, nil
		}
		p.pos++
		n = p.b.Repeat(n, least, most)
	}
}

// counted reads ~n, ~n..m, {n}, {n,} or {n,m}.
func (p *parser) counted(n grammar.Node) (grammar.Node, error) {
	open := p.peek()
	p.pos++
	p.space(false)
	least, err := p.number()
	if err != nil && !(open == '{' && p.peek() == ',') { // {,m}
		return 0, err
	}
	most := least
	p.space(false)
	between := map[byte]string{'~': "..", '{': ","}[open]
	if p.ahead(between) {
		p.pos += len(between)
		p.space(false)
		if most = grammar.Unbounded; open == '~' || p.peek() != '}' {
			if most, err = p.number(); err != nil {
				return 0, err
			}
		}
	}
	if open == '{' {
		if p.space(false); p.peek() != '}' {
			return 0, p.fail(ErrSyntax, "} is expected")
		}
		p.pos++
	}
	if most != grammar.Unbounded && most < least {
		return 0, p.fail(ErrSyntax, "a repetition of %d to %d", least, most)
	}
	return p.b.Repeat(n, least, most), nil
}

func (p *parser) number() (int, error) {
	from := p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	n, err := strconv.ParseInt(p.text[from:p.pos], 10, 32)
	if err != nil {
		return 0, p.fail(ErrSyntax, "a number is expected")
	}
	return int(n), nil
}
