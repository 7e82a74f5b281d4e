package regex

import "unicode/utf8"

// The modes of a Quote: where in an escape the JSON text is. In the modes of hex digits y holds the digits read; in those
// of a low surrogate the ten bits of the high one stand above them.
const (
	quoteText  = 0 // between characters
	quoteEsc   = 1 // after a backslash
	quoteHex   = 2 // to quoteHex+3: after \u and 0 to 3 digits
	quoteSlash = 6 // after a high surrogate: a backslash must come
	quoteU     = 7 // after that: u
	quoteLow   = 8 // to quoteLow+3: after that and 0 to 3 digits
)

// Raw are the bytes that stand for themselves inside a JSON string.
var quoteRaw = ByteRange(0x20, 0xff).Minus(ByteOf(`"\`))

var hexDigits = ByteOf("0123456789abcdefABCDEF")

// escapes are the one-letter escapes of RFC 8259 and what they stand for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (s *Set) quote(e Expr, mode, y int32) Expr {
	if e == 0 || e == 1 && mode != quoteText {
		return 0
	}
	if e == 1 {
		return 1
	}
	n := node{kind: kQuote, a: e, x: mode, y: y, search: true}
	switch {
	case mode == quoteText:
		n.nullable, n.search = s.nodes[e].nullable, s.nodes[e].search
		n.first = s.nodes[e].first.Intersect(quoteRaw)
		n.first.Add('\\')
	case mode == quoteEsc:
		n.first = ByteOf(`"\/bfnrtu`)
	case mode == quoteSlash:
		n.first = ByteOf(`\`)
	case mode == quoteU:
		n.first = ByteOf("u")
	default:
		n.first = hexDigits
	}
	return s.intern(n)
}

func (s *Set) deriveQuote(n node, b byte) Expr {
	switch n.x {
	case quoteText:
		if b == '\\' {
			return s.quote(n.a, quoteEsc, 0)
		}
		return s.quote(s.derive(n.a, b), quoteText, 0)
	case quoteEsc:
		if b == 'u' {
			return s.quote(n.a, quoteHex, 0)
		}
		return s.quote(s.derive(n.a, escapes[b]), quoteText, 0)
	case quoteSlash:
		return s.quote(n.a, quoteU, n.y)
	case quoteU:
		return s.quote(n.a, quoteLow, n.y<<16)
	}
	y := n.y<<4 | int32(hexValue(b))
	if n.x >= quoteLow {
		y = n.y&^0xffff | n.y<<4&0xffff | int32(hexValue(b))
	}
	if n.x != quoteHex+3 && n.x != quoteLow+3 {
		return s.quote(n.a, n.x+1, y)
	}
	r := rune(y)
	if n.x == quoteLow+3 {
		low := y & 0xffff
		if low < 0xdc00 || low > 0xdfff {
			return 0
		}
		r = rune(y>>16<<10|low-0xdc00) + 0x10000
	} else if 0xd800 <= y && y <= 0xdbff {
		return s.quote(n.a, quoteSlash, y-0xd800)
	} else if 0xdc00 <= y && y <= 0xdfff {
		return 0
	}
	var buf [4]byte
	e := n.a
	for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
		e = s.derive(e, c)
	}
	return s.quote(e, quoteText, 0)
}

func hexValue(b byte) byte {
	switch {
	case b <= '9':
		return b - '0'
	case b <= 'F':
		return b - 'A' + 10
	}
	return b - 'a' + 10
}
