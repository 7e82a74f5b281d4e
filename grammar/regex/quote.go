package regex

import "unicode/utf8"

// The modes of a Quote: where in an escape the JSON text is. In the modes of hex digits y holds the digits read; in
// those of a low surrogate the ten bits of the high one stand above them.
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
	// The escapes that nothing of e begins with are left out here, so that only e itself can make a Quote empty.
	if mode != quoteText && !s.escapable(e, mode, y) {
		return 0
	}
	n := node{kind: kQuote, a: e, x: mode, y: y}
	switch {
	case mode == quoteText:
		n.nullable, n.search = s.nodes[e].nullable, s.nodes[e].search
		n.first = s.nodes[e].first.Intersect(quoteRaw)
		if !s.nodes[e].first.Intersect(charStart).Empty() {
			n.first.Add('\\')
		}
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
		r = 0x10000 + y>>16<<10 + low - 0xdc00
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

// charStart are the bytes that characters begin with.
var charStart = ByteRange(0, 0x7f).Union(ByteRange(0xc2, 0xf4))

// escapable reports whether an escape that has come to mode and y can stand for a character that texts of e begin with.
func (s *Set) escapable(e Expr, mode, y int32) bool {
	lo, hi := rune(0), rune(0x10ffff)
	switch {
	case mode >= quoteHex && mode < quoteHex+4:
		shift := 4 * (quoteHex + 4 - mode)
		lo, hi = y<<shift, (y+1)<<shift-1
		if lo <= 0xdbff && hi >= 0xd800 && s.startsWith(e, 0x10000+max(lo-0xd800, 0)<<10,
			0x10000+(min(hi, 0xdbff)-0xd800)<<10+0x3ff) {
			return true
		}
	case mode == quoteSlash || mode == quoteU:
		lo = 0x10000 + y<<10
		hi = lo + 0x3ff
	case mode >= quoteLow:
		shift := 4 * (quoteLow + 4 - mode)
		low := (y & 0xffff) << shift
		last := low + 1<<shift - 1
		if low > 0xdfff || last < 0xdc00 {
			return false
		}
		lo = 0x10000 + y>>16<<10
		lo, hi = lo+max(low-0xdc00, 0), lo+min(last, 0xdfff)-0xdc00
	}
	if hi-lo >= 15 && hi >= 0x2f && (lo < 0xd800 || hi > 0xdfff) && s.Absorbs(e, Plain) > 0 {
		return true // every sixteen in a row but the first ones and surrogates have plain text among them
	}
	return s.startsWith(e, lo, hi)
}

// startsWith reports whether some text of e begins with a code point from lo to hi.
func (s *Set) startsWith(e Expr, lo, hi rune) bool {
	for _, form := range [...]struct {
		lo, hi rune
		lead   byte
		n      int // bytes behind the first
	}{{0, 0x7f, 0, 0}, {0x80, 0x7ff, 0xc0, 1}, {0x800, 0xd7ff, 0xe0, 2}, {0xe000, 0xffff, 0xe0, 2},
		{0x10000, 0x10ffff, 0xf0, 3}} {
		if lo, hi := max(lo, form.lo), min(hi, form.hi); lo <= hi && s.reads(e, form.lead, form.n, lo, hi) {
			return true
		}
	}
	return false
}

// reads reports whether e can begin with a code point from lo to hi, or with the rest of one: a byte of lead and the
// upper bits, and n bytes of six bits each.
func (s *Set) reads(e Expr, lead byte, n int, lo, hi rune) bool {
	r, shift := s.row(e), 6*n
	last := Expr(0) // was tried with all that can follow
	for v := lo >> shift; v <= hi>>shift; v++ {
		t := r.next[r.class[lead|byte(v)]]
		if t == 0 || t == last {
			continue
		}
		if n == 0 {
			return true
		}
		from, to := v<<shift, v<<shift|(1<<shift-1)
		if s.reads(t, 0x80, n-1, max(lo, from)-from, min(hi, to)-from) {
			return true
		}
		if lo <= from && to <= hi {
			last = t
		}
	}
	return false
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
