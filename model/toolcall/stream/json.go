package stream

import "unicode/utf8"

// JSON follows one JSON value (RFC 8259), byte by byte.
type JSON struct {
	state scanState
	key   bool   // the string is a member's name
	hex   uint8  // digits of \u that are missing
	word  string // rest of a literal
	stack []byte
}

type scanState uint8

const (
	scanValue scanState = iota
	scanFirst           // after [
	scanKeyFirst
	scanKey
	scanColon
	scanNext // after a value in a container
	scanString
	scanEscape
	scanHex
	scanMinus
	scanZero
	scanInt
	scanDot
	scanFrac
	scanE
	scanSign
	scanExp
	scanWord
)

// MaxNesting bounds nested containers of arguments.
const MaxNesting = 128

// Verdict is the effect of a byte on the value that is read.
type Verdict uint8

const (
	More   Verdict = iota
	Done           // the value ended with this byte
	Before         // the value, a number, ended before this byte
	Bad
)

// Reset prepares for another value.
func (j *JSON) Reset() {
	j.state, j.stack, j.key = scanValue, j.stack[:0], false
}

func (j *JSON) ended() Verdict {
	if len(j.stack) == 0 {
		return Done
	}
	j.state = scanNext
	return More
}

func (j *JSON) push(c byte, next scanState) Verdict {
	if len(j.stack) == MaxNesting {
		return Bad
	}
	j.stack = append(j.stack, c)
	j.state = next
	return More
}

func (j *JSON) pop(open byte) Verdict {
	if n := len(j.stack); n == 0 || j.stack[n-1] != open {
		return Bad
	}
	j.stack = j.stack[:len(j.stack)-1]
	return j.ended()
}

// Step reads one byte.
func (j *JSON) Step(c byte) Verdict {
	switch j.state {
	case scanValue, scanFirst:
		switch {
		case IsSpace(c):
			return More
		case c == ']' && j.state == scanFirst:
			return j.pop('[')
		case c == '{':
			return j.push(c, scanKeyFirst)
		case c == '[':
			return j.push(c, scanFirst)
		case c == '"':
			j.state, j.key = scanString, false
		case c == '-':
			j.state = scanMinus
		case c == '0':
			j.state = scanZero
		case c >= '1' && c <= '9':
			j.state = scanInt
		case c == 't':
			j.state, j.word = scanWord, "rue"
		case c == 'f':
			j.state, j.word = scanWord, "alse"
		case c == 'n':
			j.state, j.word = scanWord, "ull"
		default:
			return Bad
		}
	case scanKey, scanKeyFirst:
		switch {
		case IsSpace(c):
		case c == '"':
			j.state, j.key = scanString, true
		case c == '}' && j.state == scanKeyFirst:
			return j.pop('{')
		default:
			return Bad
		}
	case scanColon:
		if c == ':' {
			j.state = scanValue
		} else if !IsSpace(c) {
			return Bad
		}
	case scanNext:
		switch c {
		case ' ', '\n', '\t', '\r':
		case ',':
			if j.state = scanValue; j.stack[len(j.stack)-1] == '{' {
				j.state = scanKey
			}
		case '}':
			return j.pop('{')
		case ']':
			return j.pop('[')
		default:
			return Bad
		}
	case scanString:
		switch c {
		case '\\':
			j.state = scanEscape
		case '"':
			if j.key {
				j.state = scanColon
				return More
			}
			return j.ended()
		}
	case scanEscape:
		switch c {
		case 'u':
			j.state, j.hex = scanHex, 4
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			j.state = scanString
		default:
			return Bad
		}
	case scanHex:
		if !isHex(c) {
			return Bad
		}
		if j.hex--; j.hex == 0 {
			j.state = scanString
		}
	case scanWord:
		if c != j.word[0] {
			return Bad
		}
		if j.word = j.word[1:]; j.word == "" {
			return j.ended()
		}
	default:
		return j.number(c)
	}
	return More
}

// number is step within a number.
func (j *JSON) number(c byte) Verdict {
	digit := c >= '0' && c <= '9'
	switch s := j.state; {
	case digit && s == scanMinus:
		if j.state = scanInt; c == '0' {
			j.state = scanZero
		}
	case digit && s == scanDot:
		j.state = scanFrac
	case digit && (s == scanE || s == scanSign):
		j.state = scanExp
	case digit && s != scanZero:
	case c == '.' && (s == scanZero || s == scanInt):
		j.state = scanDot
	case (c == 'e' || c == 'E') && (s == scanZero || s == scanInt || s == scanFrac):
		j.state = scanE
	case (c == '+' || c == '-') && s == scanE:
		j.state = scanSign
	case s == scanZero || s == scanInt || s == scanFrac || s == scanExp:
		if len(j.stack) == 0 {
			return Before
		}
		j.state = scanNext
		return j.Step(c)
	default:
		return Bad
	}
	return More
}

// atEnd reports whether the value is complete where the text ends: a number is.
func (j *JSON) atEnd() bool {
	return len(j.stack) == 0 && (j.state == scanZero || j.state == scanInt || j.state == scanFrac || j.state == scanExp)
}

// CopyValue scans a value in text and appends it to out. It reads n bytes. Control characters in strings, which models
// write and JSON forbids, are escaped, and bytes that are not UTF-8 become U+FFFD. final says that no text follows.
func (j *JSON) CopyValue(out, text []byte, final bool) (_ []byte, n int, v Verdict) {
	for n < len(text) {
		c := text[n]
		size := 1
		if c >= utf8.RuneSelf {
			if IsFence(c) {
				n++
				continue
			}
			if !utf8.FullRune(text[n:]) && !final {
				return out, n, More
			}
			_, size = utf8.DecodeRune(text[n:])
		}
		inside := j.state == scanString
		if v = j.Step(c); v == Bad || v == Before {
			return out, n, v
		}
		switch {
		case !inside || c >= 0x20 && c < utf8.RuneSelf:
			out = append(out, c)
		case c < 0x20:
			out = appendEscaped(out, c)
		case size == 1:
			out = append(out, "\uFFFD"...)
		default:
			out = append(out, text[n:n+size]...)
		}
		if n += size; v == Done {
			return out, n, v
		}
	}
	return out, n, More
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends a character of a JSON string that needs an escape.
func appendEscaped(out []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(out, '\\', c)
	case '\n':
		return append(out, '\\', 'n')
	case '\r':
		return append(out, '\\', 'r')
	case '\t':
		return append(out, '\\', 't')
	}
	return append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// AppendString appends text to an open JSON string. It leaves off a character that is incomplete at the end, unless
// final, and returns the bytes of text that it read.
func AppendString(out, text []byte, final bool) (_ []byte, n int) {
	for n < len(text) {
		c := text[n]
		switch {
		case c == '"' || c == '\\' || c < 0x20:
			out = appendEscaped(out, c)
		case c < utf8.RuneSelf:
			out = append(out, c)
		case IsFence(c):
		default:
			if !utf8.FullRune(text[n:]) && !final {
				return out, n
			}
			r, size := utf8.DecodeRune(text[n:])
			out = utf8.AppendRune(out, r)
			n += size
			continue
		}
		n++
	}
	return out, n
}

// AppendQuoted appends text as a JSON string.
func AppendQuoted[T string | []byte](out []byte, text T) []byte {
	out = append(out, '"')
	out, _ = AppendString(out, []byte(text), true)
	return append(out, '"')
}

// ValidJSON returns the first byte of a text that is one JSON value; 0 for any other text.
func ValidJSON(text []byte) byte {
	var j JSON
	first := byte(0)
	for i, c := range text {
		if first == 0 && !IsSpace(c) {
			first = c
		}
		switch v := j.Step(c); {
		case v == Done:
			for _, c := range text[i+1:] {
				if !IsSpace(c) {
					return 0
				}
			}
			return first
		case v != More:
			return 0
		}
	}
	if !j.atEnd() {
		return 0
	}
	return first
}

// IsSpace reports whether c is white space in JSON.
func IsSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
