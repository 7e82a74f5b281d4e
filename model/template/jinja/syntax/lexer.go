package syntax

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
)

// MaxDigits is the limit on decimal digits of an integer that is read or printed; Python's own limit.
const MaxDigits = 4300

// Error is a mistake in a template, found when it is compiled or run.
type Error struct {
	Line int // of the template, from 1
	Msg  string
	Err  error // the cause, when it has an identity (ErrLimit, *Raised)
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrorAt returns an Error at a line.
func ErrorAt(line int, format string, a ...any) *Error {
	return &Error{Line: line, Msg: fmt.Sprintf(format, a...)}
}

type kind uint8

const (
	kindEOF kind = iota
	kindText
	kindVarBegin
	kindVarEnd
	kindBlockBegin
	kindBlockEnd
	kindName
	kindString
	kindInt
	kindFloat
	kindOp
)

type token struct {
	kind kind
	text string // decoded for strings
	line int
}

func (t token) String() string {
	switch t.kind {
	case kindEOF:
		return "the end of the template"
	case kindVarEnd:
		return "}}"
	case kindBlockEnd:
		return "%}"
	case kindString:
		return strconv.Quote(t.text)
	}
	return t.text
}

// lexer splits a template into tokens the way jinja2.lexer does with trim_blocks and lstrip_blocks.
type lexer struct {
	src    string
	at     int
	line   int
	tokens []token
	// lineStart: what was consumed last ended in a newline, so blanks before the next block are indentation.
	lineStart bool
}

func lex(src string) ([]token, error) {
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	src = strings.TrimSuffix(src, "\n") // Jinja's keep_trailing_newline is off
	l := &lexer{src: src, line: 1, lineStart: true}
	for l.at < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.emit(kindEOF, "")
	return l.tokens, nil
}

func (l *lexer) emit(k kind, text string) { l.tokens = append(l.tokens, token{k, text, l.line}) }

// advance consumes n bytes.
func (l *lexer) advance(n int) {
	s := l.src[l.at : l.at+n]
	l.at += n
	l.line += strings.Count(s, "\n")
	if n > 0 {
		l.lineStart = s[n-1] == '\n'
	}
}

// next lexes text up to the next tag, and the tag.
func (l *lexer) next() error {
	open := len(l.src)
	for i := l.at; ; i++ {
		j := strings.IndexByte(l.src[i:], '{')
		if j < 0 || i+j+1 >= len(l.src) {
			break
		}
		i += j
		if c := l.src[i+1]; c == '{' || c == '%' || c == '#' {
			open = i
			break
		}
	}
	if open == len(l.src) {
		l.emit(kindText, l.src[l.at:])
		l.advance(len(l.src) - l.at)
		return nil
	}
	tag := l.src[open+1]
	var sign byte
	if open+2 < len(l.src) && (l.src[open+2] == '-' || l.src[open+2] == '+') {
		sign = l.src[open+2]
	}
	text := l.src[l.at:open]
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, letters.IsSpace)
	case sign != '+' && tag != '{':
		// lstrip_blocks: blanks between the start of the line and a block or comment go.
		if i := strings.LastIndexByte(text, '\n') + 1; (i > 0 || l.lineStart) &&
			strings.TrimFunc(text[i:], letters.IsSpace) == "" {
			text = text[:i]
		}
	}
	if text != "" {
		l.emit(kindText, text)
	}
	l.advance(open - l.at)
	begin := 2
	if sign != 0 {
		begin = 3
	}
	switch tag {
	case '#':
		return l.comment(begin)
	case '%':
		if n, trim := l.rawTag("raw", l.src[l.at:]); n > 0 {
			return l.raw(n, trim)
		}
		l.advance(begin)
		l.emit(kindBlockBegin, "{%")
		return l.expression("%}", kindBlockEnd)
	}
	l.advance(begin)
	l.emit(kindVarBegin, "{{")
	return l.expression("}}", kindVarEnd)
}

func (l *lexer) comment(begin int) error {
	start := l.line
	end := strings.Index(l.src[l.at+begin:], "#}")
	if end < 0 {
		return ErrorAt(start, "comment {# is never closed with #}")
	}
	end += l.at + begin
	minus, plus := l.src[end-1] == '-' && end-1 >= l.at+begin, l.src[end-1] == '+' && end-1 >= l.at+begin
	l.advance(end + 2 - l.at)
	l.trimAfter(minus, plus, true)
	return nil
}

// trimAfter consumes what a tag's end swallows: all blanks after a "-", one newline after a block or comment
// (trim_blocks), nothing after a "+".
func (l *lexer) trimAfter(minus, plus, block bool) {
	rest := l.src[l.at:]
	switch {
	case minus:
		l.advance(len(rest) - len(strings.TrimLeftFunc(rest, letters.IsSpace)))
	case block && !plus && strings.HasPrefix(rest, "\n"):
		l.advance(1)
	}
}

// rawTag measures {% raw %} or {% endraw %} at the start of s; n is 0 when s begins with something else. end is
// the byte before "%}".
func (l *lexer) rawTag(name, s string) (n int, end byte) {
	rest := strings.TrimPrefix(s, "{%")
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		rest = rest[1:]
	}
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(rest, letters.IsSpace), name)
	if !ok {
		return 0, 0
	}
	rest = strings.TrimLeftFunc(rest, letters.IsSpace)
	if rest != "" && (rest[0] == '-' || rest[0] == '+' && name == "endraw") {
		end, rest = rest[0], rest[1:]
	}
	if rest, ok = strings.CutPrefix(rest, "%}"); !ok {
		return 0, 0
	}
	return len(s) - len(rest), end
}

func (l *lexer) raw(n int, end byte) error {
	start := l.line
	l.advance(n)
	l.trimAfter(end == '-', false, false)
	body := l.src[l.at:]
	if body == "" { // Jinja2 forgives this one
		return nil
	}
	for i := 0; ; i += 2 {
		j := strings.Index(body[i:], "{%")
		if j < 0 {
			return ErrorAt(start, "{%% raw %%} is never closed with {%% endraw %%}")
		}
		i += j
		n, end := l.rawTag("endraw", body[i:])
		if n == 0 {
			continue
		}
		text := body[:i]
		if body[i+2] == '-' {
			text = strings.TrimRightFunc(text, letters.IsSpace)
		} else if k := strings.LastIndexByte(text, '\n') + 1; body[i+2] != '+' && (k > 0 || l.lineStart) &&
			strings.TrimFunc(text[k:], letters.IsSpace) == "" {
			text = text[:k]
		}
		if text != "" {
			l.emit(kindText, text)
		}
		l.advance(i + n)
		l.trimAfter(end == '-', end == '+', true)
		return nil
	}
}

// operators, longest first.
var operators = []string{"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[",
	"]", "{", "}", ".", ",", ":", "|"}

// expression lexes up to the tag's end.
func (l *lexer) expression(closing string, k kind) error {
	start := l.line
	var open []byte // brackets: inside one, "}}" closes two dicts
	for l.at < len(l.src) {
		rest := l.src[l.at:]
		if trimmed := strings.TrimLeftFunc(rest, letters.IsSpace); len(trimmed) < len(rest) {
			l.advance(len(rest) - len(trimmed))
			continue
		}
		if len(open) == 0 {
			minus, plus := strings.HasPrefix(rest, "-"+closing), k == kindBlockEnd &&
				strings.HasPrefix(rest, "+"+closing)
			if minus || plus || strings.HasPrefix(rest, closing) {
				l.emit(k, closing)
				n := len(closing)
				if minus || plus {
					n++
				}
				l.advance(n)
				l.trimAfter(minus, plus, k == kindBlockEnd)
				return nil
			}
		}
		switch c := rest[0]; {
		case c == '\'' || c == '"':
			if err := l.str(c); err != nil {
				return err
			}
		case Decimal(c):
			l.number(rest)
		case c == '_' || unicode.IsLetter(first(rest)):
			n := strings.IndexFunc(rest, func(r rune) bool {
				return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r)
			})
			if n < 0 {
				n = len(rest)
			}
			l.emit(kindName, rest[:n])
			l.advance(n)
		default:
			op := ""
			for _, o := range operators {
				if strings.HasPrefix(rest, o) {
					op = o
					break
				}
			}
			if op == "" {
				return ErrorAt(l.line, "unexpected character %q", first(rest))
			}
			switch op {
			case "(", "[", "{":
				open = append(open, op[0])
			case ")", "]", "}":
				want := map[string]byte{")": '(', "]": '[', "}": '{'}[op]
				if len(open) == 0 || open[len(open)-1] != want {
					return ErrorAt(l.line, "%q closes nothing", op)
				}
				open = open[:len(open)-1]
			}
			l.emit(kindOp, op)
			l.advance(len(op))
		}
	}
	return ErrorAt(start, "the tag is never closed with %s", closing)
}

func first(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// Digits measures a run of digits that ok accepts, in which single underscores may be between two digits.
func Digits(s string, ok func(c byte) bool) int {
	n := 0
	for n < len(s) && (ok(s[n]) || n > 0 && s[n] == '_' && n+1 < len(s) && ok(s[n+1])) {
		n++
	}
	return n
}

// Decimal reports whether c is 0 to 9.
func Decimal(c byte) bool { return c >= '0' && c <= '9' }

// bases are the prefixes of integers that are not decimal.
var bases = map[byte]func(c byte) bool{
	'b': func(c byte) bool { return c == '0' || c == '1' },
	'o': func(c byte) bool { return c >= '0' && c <= '7' },
	'x': func(c byte) bool { return Decimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' },
}

func (l *lexer) number(rest string) {
	if len(rest) > 2 && rest[0] == '0' {
		if ok := bases[rest[1]|0x20]; ok != nil {
			if n := Digits(strings.TrimPrefix(rest[2:], "_"), ok); n > 0 {
				n = 2 + len(rest[2:]) - len(strings.TrimPrefix(rest[2:], "_")) + n
				l.emit(kindInt, strings.ReplaceAll(rest[:n], "_", ""))
				l.advance(n)
				return
			}
		}
	}
	n, k := Digits(rest, Decimal), kindInt
	// After a dot stands an index: a.0.1 is a[0][1].
	if t := l.tokens[len(l.tokens)-1]; t.kind != kindOp || t.text != "." {
		if n+1 < len(rest) && rest[n] == '.' && Decimal(rest[n+1]) {
			n, k = n+1+Digits(rest[n+1:], Decimal), kindFloat
		}
		if n < len(rest) && rest[n]|0x20 == 'e' {
			m := n + 1
			if m < len(rest) && (rest[m] == '+' || rest[m] == '-') {
				m++
			}
			if d := Digits(rest[m:], Decimal); d > 0 {
				n, k = m+d, kindFloat
			}
		}
	}
	if k == kindInt && rest[0] == '0' { // 007 is 00 and then 7
		n = Digits(rest, func(c byte) bool { return c == '0' })
	}
	l.emit(k, strings.ReplaceAll(rest[:n], "_", ""))
	l.advance(n)
}

// str lexes a string literal with Python's escapes.
func (l *lexer) str(quote byte) error {
	start, body := l.line, l.src[l.at+1:]
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == quote:
			l.tokens = append(l.tokens, token{kindString, b.String(), start})
			l.advance(i + 2)
			return nil
		case c != '\\' || i+1 == len(body):
			b.WriteByte(c)
		default:
			i++
			if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[body[i]]; digits > 0 {
				if i+digits < len(body) {
					if r, err := strconv.ParseUint(body[i+1:i+1+digits], 16, 32); err == nil {
						b.WriteRune(rune(r))
						i += digits
						continue
					}
				}
				return ErrorAt(start, `bad escape \%c in a string`, body[i])
			}
			if body[i] >= '0' && body[i] <= '7' {
				n := 0
				j := i
				for ; j < len(body) && j < i+3 && body[j] >= '0' && body[j] <= '7'; j++ {
					n = n*8 + int(body[j]-'0')
				}
				b.WriteRune(rune(n))
				i = j - 1
				continue
			}
			if body[i] == 'N' {
				return ErrorAt(start, `\N{…} in a string is not supported: write the character`)
			}
			if s, ok := escapes[body[i]]; ok {
				b.WriteString(s)
			} else {
				b.WriteByte('\\')
				b.WriteByte(body[i])
			}
		}
	}
	return ErrorAt(start, "a string is never closed with %c", quote)
}

var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b",
	'f': "\f", 'v': "\v", '\n': ""}
