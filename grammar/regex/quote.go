package regex

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

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

// charStart are the bytes that characters begin with.
var charStart = ByteRange(0, 0x7f).Union(ByteRange(0xc2, 0xf4))

// escapable reports whether an escape that has come to mode and y can stand for a character that texts of e begin with.
func (s *Set) escapable(e Expr, mode, y int32) bool {
	lo, hi := rune(0), rune(0x10ffff)
	switch {
	case mode >= quoteHex && mode < quoteHex+4:
		shift := 4 * (quoteHex + 4 - mode)
		lo, hi = y<<shift, (y+1)<<shift-1
		if lo <= 0xdbff && hi >= 0xd800 && s.startsWith(e, 0x10000+max(lo-0xd800, 0)<<10, 0x10000+(min(hi, 0xdbff)-0xd800)<<10+0x3ff) {
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
	return s.startsWith(e, lo, hi)
}

// startsWith reports whether some text of e begins with a code point from lo to hi.
func (s *Set) startsWith(e Expr, lo, hi rune) bool {
	rs := s.starts(e)
	i, _ := slices.BinarySearchFunc(rs, lo, func(r RuneRange, lo rune) int { return cmp.Compare(r.Hi, lo) })
	return i < len(rs) && rs[i].Lo <= hi
}

// starts returns the code points that texts of e begin with, in order.
func (s *Set) starts(e Expr) []RuneRange {
	if rs, ok := s.begin[e]; ok {
		return rs
	}
	var rs []RuneRange
	class, next := s.Row(e)
	tails := map[tail][]RuneRange{}
	for b := range 0xf5 {
		t := next[class[b]]
		switch {
		case t == 0 || 0x80 <= b && b < 0xc2:
		case b < 0x80:
			rs = appendRange(rs, RuneRange{rune(b), rune(b)})
		case b < 0xe0:
			rs = s.appendTails(rs, tails, t, rune(b&0x1f)<<6, 1, 0x80)
		case b < 0xf0:
			rs = s.appendTails(rs, tails, t, rune(b&0xf)<<12, 2, 0x800)
		default:
			rs = s.appendTails(rs, tails, t, rune(b&7)<<18, 3, 0x10000)
		}
	}
	s.begin[e] = rs
	return rs
}

// tail is an expression that the rest of a character, n bytes, is read in.
type tail struct {
	e Expr
	n int
}

// appendTails adds the code points from base on whose last n bytes e can begin with; shorter encodings exist for those
// below least.
func (s *Set) appendTails(rs []RuneRange, memo map[tail][]RuneRange, e Expr, base rune, n int, least rune) []RuneRange {
	for _, r := range s.tails(memo, tail{e, n}) {
		r = RuneRange{max(base+r.Lo, least), min(base+r.Hi, 0x10ffff)}
		for _, r := range []RuneRange{{r.Lo, min(r.Hi, 0xd7ff)}, {max(r.Lo, 0xe000), r.Hi}} { // without surrogates
			if r.Lo <= r.Hi {
				rs = appendRange(rs, r)
			}
		}
	}
	return rs
}

func (s *Set) tails(memo map[tail][]RuneRange, t tail) []RuneRange {
	if rs, ok := memo[t]; ok {
		return rs
	}
	var rs []RuneRange
	class, next := s.Row(t.e)
	for b := 0x80; b < 0xc0; b++ {
		to, base := next[class[b]], rune(b&0x3f)<<(6*(t.n-1))
		switch {
		case to == 0:
		case t.n == 1:
			rs = appendRange(rs, RuneRange{base, base})
		default:
			for _, r := range s.tails(memo, tail{to, t.n - 1}) {
				rs = appendRange(rs, RuneRange{base + r.Lo, base + r.Hi})
			}
		}
	}
	memo[t] = rs
	return rs
}

// appendRange adds r, which lies behind rs, and joins what touches.
func appendRange(rs []RuneRange, r RuneRange) []RuneRange {
	if n := len(rs); n > 0 && rs[n-1].Hi+1 == r.Lo {
		rs[n-1].Hi = r.Hi
		return rs
	}
	return append(rs, r)
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
