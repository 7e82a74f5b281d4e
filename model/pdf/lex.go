package pdf

import (
	"bytes"
	"strconv"
	"strings"
)

// kind is a token's kind.
type kind byte

const (
	end kind = iota
	number
	text // the bytes of a string
	name
	list
	operator
	other // a dictionary, or an end that nothing has opened
)

// token is a value or an operator.
type token struct {
	kind kind
	num  float64
	str  string
	list []token
}

// lexer reads the tokens of a page, or of a table of characters. It accepts all bytes: malformed parts are left out.
type lexer struct {
	b  []byte
	at int
}

const maxNested = 32 // lists and dictionaries

func space(c byte) bool {
	return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\f' || c == 0
}

func delimiter(c byte) bool { return strings.IndexByte("()<>[]{}/%", c) >= 0 }

// next returns the next token.
func (l *lexer) next(depth int) token {
	for l.at < len(l.b) {
		switch c := l.b[l.at]; {
		case space(c):
			l.at++
			continue
		case c == '%':
			if n := bytes.IndexAny(l.b[l.at:], "\r\n"); n >= 0 {
				l.at += n
			} else {
				l.at = len(l.b)
			}
			continue
		case c == '(':
			return token{kind: text, str: l.literal()}
		case c == '<' && !l.double('<'):
			return token{kind: text, str: l.hex()}
		case c == '/':
			l.at++
			return token{kind: name, str: l.word()}
		case c == '[':
			l.at++
			return l.list(depth, ']')
		case c == '<':
			l.at += 2
			l.list(depth, '>')
			return token{kind: other}
		case c == '>' && l.double('>'):
			l.at += 2
			return token{kind: other, str: ">"}
		case delimiter(c):
			l.at++
			return token{kind: other, str: string(c)}
		}
		word := l.word()
		if n, err := strconv.ParseFloat(word, 64); err == nil && n > -1e9 && n < 1e9 { // a NaN is none
			return token{kind: number, num: n}
		}
		return token{kind: operator, str: word}
	}
	return token{}
}

func (l *lexer) double(c byte) bool { return l.at+1 < len(l.b) && l.b[l.at+1] == c }

func (l *lexer) word() string {
	from := l.at
	for l.at < len(l.b) && !space(l.b[l.at]) && !delimiter(l.b[l.at]) {
		l.at++
	}
	return string(l.b[from:l.at])
}

// list reads values up to their end.
func (l *lexer) list(depth int, shut byte) token {
	t := token{kind: list}
	if depth >= maxNested {
		return t
	}
	for {
		v := l.next(depth + 1)
		if v.kind == end || v.kind == other && v.str == string(shut) {
			return t
		}
		t.list = append(t.list, v)
	}
}

var escapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f'}

// literal reads a string in parentheses.
func (l *lexer) literal() string {
	var out []byte
	depth := 0
	for l.at < len(l.b) {
		c := l.b[l.at]
		l.at++
		switch c {
		case '(':
			if depth++; depth == 1 {
				continue
			}
		case ')':
			if depth--; depth == 0 {
				return string(out)
			}
		case '\\':
			if l.at == len(l.b) {
				return string(out)
			}
			c = l.b[l.at]
			l.at++
			switch e, ok := escapes[c]; {
			case ok:
				c = e
			case c == '\r' && l.at < len(l.b) && l.b[l.at] == '\n':
				l.at++
				continue
			case c == '\r' || c == '\n':
				continue
			case c >= '0' && c <= '7':
				n := int(c - '0')
				for k := 0; k < 2 && l.at < len(l.b) && l.b[l.at] >= '0' && l.b[l.at] <= '7'; k++ {
					n = n*8 + int(l.b[l.at]-'0')
					l.at++
				}
				c = byte(n)
			}
		}
		out = append(out, c)
	}
	return string(out)
}

// hex reads a string in angle brackets.
func (l *lexer) hex() string {
	l.at++
	var out []byte
	high := -1
	for l.at < len(l.b) {
		c := l.b[l.at]
		l.at++
		if c == '>' {
			break
		}
		n := strings.IndexByte("0123456789abcdef", c|0x20)
		if n < 0 {
			continue
		}
		if high < 0 {
			high = n
			continue
		}
		out = append(out, byte(high<<4|n))
		high = -1
	}
	if high >= 0 {
		out = append(out, byte(high<<4))
	}
	return string(out)
}

// skipImage passes over the bytes of an image within a page, behind its operator ID.
func (l *lexer) skipImage() {
	for at := l.at; ; {
		n := bytes.Index(l.b[at:], []byte("EI"))
		if n < 0 {
			l.at = len(l.b)
			return
		}
		at += n + 2
		if space(l.b[at-3]) && (at == len(l.b) || space(l.b[at])) {
			l.at = at
			return
		}
	}
}
