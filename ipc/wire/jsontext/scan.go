package jsontext

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

const (
	// MaxDepth is the deepest nesting of a message; a request needs 5.
	MaxDepth = 64
	// MaxValues is the most JSON values of a message, one for each token id of a prompt; it bounds the tree of a
	// hostile one to some 10 MB.
	MaxValues = 1 << 17
)

// Span is a part of a payload; the zero Span is none.
type Span struct{ Start, End int }

// Scan checks that a payload is one JSON text, without recursion and, unless it has to mend a text, without
// allocating. It also records the positions of some top-level values: the id, to answer even a message that cannot be
// parsed, and those that are kept as the peer wrote them.
type Scan struct {
	Bytes  []byte // the payload
	i      int
	values int
	depth  int
	object [MaxDepth]bool // is the container at depth d an object

	ID, Metadata, TemplateArgs, Report Span

	Mended []byte // Bytes with each half of a surrogate pair replaced by U+FFFD; nil = there is none
	soft   string // the first defect that leaves the structure readable
}

// Check returns "", or the defect of b and its position.
func (s *Scan) Check(b []byte) string {
	*s = Scan{Bytes: b}
	if !utf8.Valid(b) {
		s.soft = fmt.Sprintf("the message is not valid UTF-8, from byte %d on", InvalidUTF8(b))
	}
	if bad := s.structure(); bad != "" {
		return bad
	}
	return s.soft
}

// structure walks the text. want is the set of tokens that may come next.
func (s *Scan) structure() string {
	const (
		value = iota
		firstValueOrEnd
		key
		firstKeyOrEnd
		commaOrEnd
	)
	want := value
	var field *Span // the top-level value to note, if this is one of those; it begins at start
	var start int
	for {
		s.space()
		if s.i == len(s.Bytes) {
			if want == commaOrEnd && s.depth == 0 {
				return ""
			}
			return fmt.Sprintf("the JSON ends too early, after %d bytes", len(s.Bytes))
		}
		c := s.Bytes[s.i]
		switch want {
		case commaOrEnd:
			if s.depth == 1 && field != nil {
				*field, field = Span{start, s.valueEnd(start)}, nil
			}
			switch {
			case s.depth == 0:
				return s.unexpected("the end")
			case c == ',' && s.object[s.depth-1]:
				want = key
			case c == ',':
				want = value
			case c == '}' && s.object[s.depth-1], c == ']' && !s.object[s.depth-1]:
				s.depth--
			case s.object[s.depth-1]:
				return s.unexpected("a comma or }")
			default:
				return s.unexpected("a comma or ]")
			}
			s.i++
			continue
		case firstKeyOrEnd, key:
			if c == '}' && want == firstKeyOrEnd {
				s.i++
				s.depth--
				want = commaOrEnd
				continue
			}
			if c != '"' {
				return s.unexpected("a key in double quotes")
			}
			quote := s.i
			if bad := s.str(); bad != "" {
				return bad
			}
			name := s.Bytes[quote+1 : s.i-1]
			s.space()
			if s.i == len(s.Bytes) || s.Bytes[s.i] != ':' {
				return s.unexpected("a colon")
			}
			s.i++
			s.space()
			if s.depth == 1 {
				switch string(name) {
				case "id":
					field = &s.ID
				case "metadata":
					field = &s.Metadata
				case "chat_template_kwargs":
					field = &s.TemplateArgs
				case "metrics", "health", "info", "why", "kv":
					field = &s.Report
				}
				start = s.i
			}
			want = value
			continue
		case firstValueOrEnd:
			if c == ']' {
				s.i++
				s.depth--
				want = commaOrEnd
				continue
			}
		}
		if s.values++; s.values > MaxValues {
			return fmt.Sprintf("the message holds more than %d JSON values", MaxValues)
		}
		switch {
		case c == '{' || c == '[':
			if s.depth == MaxDepth {
				return fmt.Sprintf("byte %d: JSON nested deeper than %d levels", s.i, MaxDepth)
			}
			s.object[s.depth] = c == '{'
			s.depth++
			s.i++
			want = firstValueOrEnd
			if c == '{' {
				want = firstKeyOrEnd
			}
			continue
		case c == '"':
			if bad := s.str(); bad != "" {
				return bad
			}
		case c == '-' || c >= '0' && c <= '9':
			if bad := s.number(); bad != "" {
				return bad
			}
		case !s.literal("true") && !s.literal("false") && !s.literal("null"):
			return s.unexpected("a value")
		}
		want = commaOrEnd
	}
}

// valueEnd returns the end of the value that begins at start: the white space before s.i is not part of it.
func (s *Scan) valueEnd(start int) int {
	e := s.i
	for e > start && isSpace(s.Bytes[e-1]) {
		e--
	}
	return e
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func (s *Scan) space() {
	for s.i < len(s.Bytes) && isSpace(s.Bytes[s.i]) {
		s.i++
	}
}

func (s *Scan) literal(w string) bool {
	if len(s.Bytes)-s.i < len(w) || string(s.Bytes[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

func (s *Scan) digits() bool {
	start := s.i
	for s.i < len(s.Bytes) && s.Bytes[s.i] >= '0' && s.Bytes[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

func (s *Scan) number() string {
	start := s.i
	if s.Bytes[s.i] == '-' {
		s.i++
	}
	leading := s.i
	ok := s.digits() && (s.Bytes[leading] != '0' || s.i == leading+1)
	if ok && s.i < len(s.Bytes) && s.Bytes[s.i] == '.' {
		s.i++
		ok = s.digits()
	}
	if ok && s.i < len(s.Bytes) && (s.Bytes[s.i] == 'e' || s.Bytes[s.i] == 'E') {
		if s.i++; s.i < len(s.Bytes) && (s.Bytes[s.i] == '+' || s.Bytes[s.i] == '-') {
			s.i++
		}
		ok = s.digits()
	}
	if !ok {
		return fmt.Sprintf("byte %d: not a JSON number", start)
	}
	return ""
}

// plain returns how many of the first bytes of b stand for themselves in a JSON string: the first control character,
// quote or backslash ends them. (UTF-8 is checked for the whole text.)
func plain(b []byte) (n int) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(b)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, escape := w^ones*'"', w^ones*'\\'
		// The lowest bit that is set is in the first such byte: a borrow goes to higher bytes alone.
		if found := ((w-ones*0x20)&^w | (quote-ones)&^quote | (escape-ones)&^escape) & highs; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(b) && b[n] >= 0x20 && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// str checks the string that begins at s.i and moves behind it.
func (s *Scan) str() string {
	start := s.i
	b, i := s.Bytes, s.i+1
	for i += plain(b[i:]); i < len(b); i += plain(b[i:]) {
		switch c := b[i]; c {
		case '"':
			s.i = i + 1
			return ""
		case '\\':
			n, half, bad := escape(b[i:])
			if bad != "" {
				return fmt.Sprintf("byte %d: %s", i, bad)
			}
			if half {
				s.mend(i)
			}
			i += n
		default:
			s.note(i, fmt.Sprintf("a raw control character 0x%02x in a string; write it as \\u%04x", c, c))
			i++
		}
	}
	return fmt.Sprintf("byte %d: the string has no end", start)
}

func (s *Scan) note(at int, bad string) {
	if s.soft == "" {
		s.soft = fmt.Sprintf("byte %d: %s", at, bad)
	}
}

// mend replaces the escape at s.b[at], half of a surrogate pair, by that of U+FFFD, as encoding/json and JavaScript's
// TextEncoder do: JSON allows it, programs that cut UTF-16 text send it, and UTF-8 cannot hold it.
func (s *Scan) mend(at int) {
	if s.Mended == nil {
		s.Mended = bytes.Clone(s.Bytes)
	}
	copy(s.Mended[at:], `\ufffd`)
}

// escape returns the length of the escape sequence at b[0] and whether it is half of a surrogate pair, or its defect.
func escape(b []byte) (n int, half bool, bad string) {
	if len(b) < 2 {
		return 0, false, "the string has no end"
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, false, ""
	case 'u':
		u, ok := hex4(b)
		switch {
		case !ok:
			return 0, false, `\u needs four hexadecimal digits`
		case u < 0xd800 || u > 0xdfff:
			return 6, false, ""
		case u < 0xdc00:
			if low, ok := hex4(b[6:]); ok && low >= 0xdc00 && low <= 0xdfff {
				return 12, false, ""
			}
		}
		return 6, true, ""
	}
	return 0, false, "an unknown escape in a string"
}

// hex4 reads \uXXXX at b[0].
func hex4(b []byte) (u uint32, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		u = u<<4 | uint32(c)
	}
	return u, true
}

func (s *Scan) unexpected(want string) string {
	if s.i >= len(s.Bytes) {
		return fmt.Sprintf("the JSON ends too early, after %d bytes", len(s.Bytes))
	}
	return fmt.Sprintf("byte %d: %s expected, not %q", s.i, want, s.Bytes[s.i:s.i+1])
}

// InvalidUTF8 returns the index of the first byte that is not part of valid UTF-8, len(b) if there is none.
func InvalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}
