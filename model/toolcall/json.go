package toolcall

import "unicode/utf8"

// scanner follows one JSON value (RFC 8259), byte by byte.
type scanner struct {
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

// maxNesting bounds nested containers of arguments.
const maxNesting = 128

// verdict is the effect of a byte on the value that is read.
type verdict uint8

const (
	more   verdict = iota
	done           // the value ended with this byte
	before         // the value, a number, ended before this byte
	bad
)

func (j *scanner) reset() {
	j.state, j.stack, j.key = scanValue, j.stack[:0], false
}

func (j *scanner) ended() verdict {
	if len(j.stack) == 0 {
		return done
	}
	j.state = scanNext
	return more
}

func (j *scanner) push(c byte, next scanState) verdict {
	if len(j.stack) == maxNesting {
		return bad
	}
	j.stack = append(j.stack, c)
	j.state = next
	return more
}

func (j *scanner) pop(open byte) verdict {
	if n := len(j.stack); n == 0 || j.stack[n-1] != open {
		return bad
	}
	j.stack = j.stack[:len(j.stack)-1]
	return j.ended()
}

func (j *scanner) step(c byte) verdict {
	switch j.state {
	case scanValue, scanFirst:
		switch {
		case isSpace(c):
			return more
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
			return bad
		}
	case scanKey, scanKeyFirst:
		switch {
		case isSpace(c):
		case c == '"':
			j.state, j.key = scanString, true
		case c == '}' && j.state == scanKeyFirst:
			return j.pop('{')
		default:
			return bad
		}
	case scanColon:
		if c == ':' {
			j.state = scanValue
		} else if !isSpace(c) {
			return bad
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
			return bad
		}
	case scanString:
		switch c {
		case '\\':
			j.state = scanEscape
		case '"':
			if j.key {
				j.state = scanColon
				return more
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
			return bad
		}
	case scanHex:
		if !isHex(c) {
			return bad
		}
		if j.hex--; j.hex == 0 {
			j.state = scanString
		}
	case scanWord:
		if c != j.word[0] {
			return bad
		}
		if j.word = j.word[1:]; j.word == "" {
			return j.ended()
		}
	default:
		return j.number(c)
	}
	return more
}

// number is step within a number.
func (j *scanner) number(c byte) verdict {
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
			return before
		}
		j.state = scanNext
		return j.step(c)
	default:
		return bad
	}
	return more
}

// atEnd reports whether the value is complete where the text ends: a number is.
func (j *scanner) atEnd() bool {
	return len(j.stack) == 0 && (j.state == scanZero || j.state == scanInt || j.state == scanFrac || j.state == scanExp)
}

// copyValue scans a value in text and appends it to out. It reads n bytes. Control characters in strings, which models
// write and JSON forbids, are escaped, and bytes that are not UTF-8 become U+FFFD. final says that no text follows.
func (j *scanner) copyValue(out, text []byte, final bool) (_ []byte, n int, v verdict) {
	for n < len(text) {
		c := text[n]
		size := 1
		if c >= utf8.RuneSelf {
			if isFence(c) {
				n++
				continue
			}
			if !utf8.FullRune(text[n:]) && !final {
				return out, n, more
			}
			_, size = utf8.DecodeRune(text[n:])
		}
		inside := j.state == scanString
		if v = j.step(c); v == bad || v == before {
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
		if n += size; v == done {
			return out, n, v
		}
	}
	return out, n, more
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

// appendString appends text to an open JSON string. It leaves off a character that is incomplete at the end, unless
// final, and returns the bytes of text that it read.
func appendString(out, text []byte, final bool) (_ []byte, n int) {
	for n < len(text) {
		c := text[n]
		switch {
		case c == '"' || c == '\\' || c < 0x20:
			out = appendEscaped(out, c)
		case c < utf8.RuneSelf:
			out = append(out, c)
		case isFence(c):
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

// appendQuoted appends text as a JSON string.
func appendQuoted[T string | []byte](out []byte, text T) []byte {
	out = append(out, '"')
	out, _ = appendString(out, []byte(text), true)
	return append(out, '"')
}

// validJSON returns the first byte of a text that is one JSON value; 0 for any other text.
func validJSON(text []byte) byte {
	var j scanner
	first := byte(0)
	for i, c := range text {
		if first == 0 && !isSpace(c) {
			first = c
		}
		switch v := j.step(c); {
		case v == done:
			for _, c := range text[i+1:] {
				if !isSpace(c) {
					return 0
				}
			}
			return first
		case v != more:
			return 0
		}
	}
	if !j.atEnd() {
		return 0
	}
	return first
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
