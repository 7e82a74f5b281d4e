// Package lark reads the Lark notation of grammars as in llguidance, which guidance and vLLM's structured_outputs
// send: the part that maps onto package grammar. The rest is refused by name.
//
// Read are rules `name: …` and terminals `NAME: …`, with ?, ! and _ before a name, a priority behind it, and aliases
// (-> name), none of which changes the texts; alternatives over several lines; "literals" and "literals"i, ranges
// ("a".."z"), /regular expressions/ with the flags i and s; groups ( ), optional groups [ ]; the repetitions *, +, ?,
// ~n, ~n..m and {m,n}; %import of the terminals of `common`; %ignore of terminals between those of rules; %json with a
// schema; comments with // and #; the head %llguidance {…}. The attribute `capture` changes nothing. The text is the
// rule start.
//
// Differences: a terminal is any of its texts, not the longest one, and priorities decide nothing.
package lark

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
)

var (
	// ErrSyntax is wrapped by the error of a text that is not Lark; its message says where.
	ErrSyntax = errors.New("lark: syntax error")
	// ErrUnsupported wraps a form that llguidance has and this package has not.
	ErrUnsupported = errors.New("lark: not supported")
)

const (
	maxBytes = 1 << 20 // of a grammar's text
	maxDepth = 200     // of parentheses
)

var (
	larkRule = regexp.MustCompile(`(?m)^[ \t]*[?!]?[A-Za-z_][\w-]*(?:\.-?[0-9]+)?(?:\[[^\]\n]*\])?[ \t]*:(?:[^:]|$)`)
	gbnfRule = regexp.MustCompile(`(?m)^[ \t]*[A-Za-z0-9_-]+[ \t]*::=`)
)

// Is reports whether a grammar's text is Lark, and not GBNF.
func Is(text string) bool {
	return !gbnfRule.MatchString(text) && (strings.HasPrefix(text, "%llguidance") || larkRule.MatchString(text))
}

// common are the terminals of the library that %import names.
var common = map[string]string{
	"DIGIT": `[0-9]`, "HEXDIGIT": `[0-9a-fA-F]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL":       `[0-9]+\.[0-9]*|\.[0-9]+`,
	"FLOAT":         `[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?`,
	"SIGNED_FLOAT":  `[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)`,
	"NUMBER":        `(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?`,
	"SIGNED_NUMBER": `[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?`,
	"LCASE_LETTER":  `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[A-Za-z]`, "WORD": `[A-Za-z]+`,
	"CNAME": `[A-Za-z_][A-Za-z0-9_]*`, "WS_INLINE": `[ \t]+`, "WS": `[ \t\f\r\n]+`, "CR": `\r`, "LF": `\n`,
	"NEWLINE": `(?:\r?\n)+`, "ESCAPED_STRING": `"(?:[^"\\\n]|\\.)*"`, "SH_COMMENT": `#[^\n]*`,
	"CPP_COMMENT": `//[^\n]*`,
}

// Parse adds the rules of text to b and returns the rule start. Errors wrap ErrSyntax, ErrUnsupported,
// grammar.ErrUndefined or grammar.ErrLimit, or are a regular expression's or a schema's.
func Parse(b *grammar.Builder, text string, limits jsonschema.Limits) (grammar.Node, error) {
	if len(text) > maxBytes {
		return 0, fmt.Errorf("%w: a grammar of %d bytes, more than %d", grammar.ErrLimit, len(text), maxBytes)
	}
	if !utf8.ValidString(text) {
		return 0, fmt.Errorf("%w: the text is not UTF-8", ErrSyntax)
	}
	p := &parser{b: b, limits: limits, text: text, rules: map[string]grammar.Node{}, defined: map[string]bool{},
		ignore: b.Rule("%ignore")}
	for p.space(true); p.pos < len(text); p.space(true) {
		if err := p.statement(); err != nil {
			return 0, err
		}
	}
	for _, name := range p.used {
		if !p.defined[name] {
			return 0, fmt.Errorf("%w: %q", grammar.ErrUndefined, name)
		}
	}
	if !p.defined["start"] {
		return 0, fmt.Errorf("%w: %q", grammar.ErrUndefined, "start")
	}
	if p.ignored == nil {
		b.Define(p.ignore, b.Empty())
		return p.rules["start"], b.Err()
	}
	b.Define(p.ignore, b.Repeat(b.Alt(p.ignored...), 0, grammar.Unbounded))
	return b.Seq(p.ignore, p.rules["start"]), b.Err()
}

type parser struct {
	b        *grammar.Builder
	limits   jsonschema.Limits
	text     string
	pos      int
	depth    int
	terminal bool // within a terminal's definition: nothing is ignored there
	rules    map[string]grammar.Node
	used     []string // in order, for errors
	defined  map[string]bool
	ignore   grammar.Node // what may be behind each terminal of a rule
	ignored  []grammar.Node
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

func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *parser) ahead(s string) bool { return strings.HasPrefix(p.text[p.pos:], s) }

// space skips blanks and comments, and line ends where they may be.
func (p *parser) space(lines bool) {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || lines && c == '\n':
			p.pos++
		case c == '#' || p.ahead("//"):
			for p.pos < len(p.text) && p.text[p.pos] != '\n' {
				p.pos++
			}
		default:
			return
		}
	}
}

func isLetter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func (p *parser) name() (string, error) {
	from := p.pos
	for isLetter(p.peek()) || p.pos > from &&
		(p.peek() >= '0' && p.peek() <= '9' || p.peek() == '-' && !p.ahead("->")) {
		p.pos++
	}
	if p.pos == from {
		return "", p.fail(ErrSyntax, "a name is expected")
	}
	return p.text[from:p.pos], nil
}

// isTerminal reports whether a name names a terminal.
func isTerminal(name string) bool {
	name = strings.TrimLeft(name, "_")
	return name != "" && name[0] >= 'A' && name[0] <= 'Z'
}

// statement reads a rule, a terminal or a directive.
func (p *parser) statement() error {
	if p.peek() == '%' {
		return p.directive()
	}
	if c := p.peek(); c == '?' || c == '!' {
		p.pos++
	}
	name, err := p.name()
	if err != nil {
		return err
	}
	if p.peek() == '.' {
		p.pos++
		if p.peek() == '-' {
			p.pos++
		}
		if _, err := p.number(); err != nil {
			return err
		}
	}
	if err := p.attributes(); err != nil {
		return err
	}
	if p.peek() == '{' {
		return p.fail(ErrUnsupported, "a template (%s{…})", name)
	}
	if p.space(false); p.peek() != ':' {
		return p.fail(ErrSyntax, ": is expected behind %q", name)
	}
	if p.defined[name] {
		return p.fail(ErrSyntax, "%q is defined twice", name)
	}
	p.pos++
	p.terminal = isTerminal(name)
	body, err := p.alternatives()
	if err != nil {
		return err
	}
	p.b.Define(p.ref(name), body)
	p.defined[name] = true
	if p.pos < len(p.text) && p.peek() != '\n' {
		return p.fail(ErrSyntax, "%q: a line end is expected", name)
	}
	return nil
}

// attributes reads the attributes in brackets behind a rule's name.
func (p *parser) attributes() error {
	if p.peek() != '[' {
		return nil
	}
	for p.pos++; ; p.pos++ {
		p.space(false)
		name, err := p.name()
		if err != nil {
			return err
		}
		if name != "capture" {
			return p.fail(ErrUnsupported, "the attribute %s", name)
		}
		if p.space(false); p.peek() == '=' {
			p.pos++
			p.space(false)
			if _, _, err := p.str(); err != nil {
				return err
			}
			p.space(false)
		}
		switch p.peek() {
		case ']':
			p.pos++
			return nil
		case ',':
		default:
			return p.fail(ErrSyntax, "] is expected")
		}
	}
}

// directive reads a statement that begins with %.
func (p *parser) directive() error {
	p.pos++
	word, err := p.name()
	if err != nil {
		return err
	}
	p.space(false)
	switch word {
	case "llguidance":
		_, err := p.json()
		return err
	case "import":
		return p.imports()
	case "ignore":
		p.terminal = true
		n, err := p.alternatives()
		p.ignored = append(p.ignored, n)
		return err
	}
	return p.fail(ErrUnsupported, "%%%s", word)
}

// imports reads what follows %import: common.NAME, common.NAME -> OTHER, or common (NAME, …).
func (p *parser) imports() error {
	library, err := p.name()
	if err != nil {
		return err
	}
	if library != "common" {
		return p.fail(ErrUnsupported, "%%import of %s: there is common alone", library)
	}
	define := func(name, as string) error {
		if p.defined[as] {
			return p.fail(ErrSyntax, "%q is defined twice", as)
		}
		pattern, ok := common[name]
		if !ok {
			return p.fail(ErrUnsupported, "the terminal common.%s", name)
		}
		n, err := p.b.Pattern("(?:" + pattern + ")")
		p.b.Define(p.ref(as), n)
		p.defined[as] = true
		return err
	}
	if p.space(false); p.peek() == '.' {
		p.pos++
		name, err := p.name()
		if err != nil {
			return err
		}
		as := name
		if p.space(false); p.ahead("->") {
			p.pos += 2
			p.space(false)
			if as, err = p.name(); err != nil {
				return err
			}
		}
		return define(name, as)
	}
	if p.peek() != '(' {
		return p.fail(ErrSyntax, ". or ( is expected behind common")
	}
	for p.peek() != ')' {
		p.pos++ // ( or ,
		p.space(true)
		name, err := p.name()
		if err == nil {
			err = define(name, name)
		}
		if err != nil {
			return err
		}
		if p.space(true); p.peek() != ',' && p.peek() != ')' {
			return p.fail(ErrSyntax, ") is expected")
		}
	}
	p.pos++
	return nil
}

// json reads a JSON value.
func (p *parser) json() (json.RawMessage, error) {
	var raw json.RawMessage
	in := json.NewDecoder(strings.NewReader(p.text[p.pos:]))
	if err := in.Decode(&raw); err != nil || len(raw) == 0 || raw[0] != '{' {
		return nil, p.fail(ErrSyntax, "a JSON object is expected")
	}
	p.pos += int(in.InputOffset())
	return raw, nil
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
