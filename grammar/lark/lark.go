// Package lark reads the Lark notation of grammars as llguidance has it, which guidance and vLLM's structured_outputs
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
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

var (
	// ErrSyntax wraps what is not Lark; the text says where.
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
	ignore   grammar.Node // what may stand behind each terminal of a rule
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

// isTerminal reports whether a name is that of a terminal.
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

// attributes reads what stands in brackets behind a rule's name.
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
