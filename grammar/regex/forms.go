package regex

// Forms that are more than an operator: characters, JSON strings, multiples. Each is evaluated lazily, one derivative a
// byte.

// RuneRange is a range of code points, both ends included.
type RuneRange struct{ Lo, Hi rune }

// Runes returns the UTF-8 encoding of one code point of ranges. Surrogates, which UTF-8 cannot encode, are left out.
func (s *Set) Runes(ranges ...RuneRange) Expr {
	var alts []Expr
	for _, r := range ranges {
		alts = s.utf8Range(alts, r)
	}
	e := s.or(alts)
	if s.runes == nil {
		s.runes = map[Expr]bool{}
	}
	s.runes[e] = true
	return e
}

// NotRunes returns the UTF-8 encoding of one code point that is in none of ranges.
func (s *Set) NotRunes(ranges ...RuneRange) Expr { return s.Runes(complement(ranges)...) }

// AnyRune returns the UTF-8 encoding of any one code point, line ends and NUL included.
func (s *Set) AnyRune() Expr {
	if s.anyRune == 0 {
		s.anyRune = s.Runes(RuneRange{0, 0x10ffff})
	}
	return s.anyRune
}

// AnyText returns every UTF-8 text, the empty one included.
func (s *Set) AnyText() Expr {
	if s.anyText == 0 {
		s.anyText = s.Star(s.AnyRune())
	}
	return s.anyText
}

// JSONString returns the contents of JSON strings, without the quotes, whose decoded text e matches. Every escape of
// RFC 8259 is read: \n is U+000A, an escaped surrogate pair one code point; a \u escape of half a surrogate pair
// decodes to nothing that UTF-8 can hold and is not part of the language. Counts of runes in e so count decoded
// characters, as minLength does. JSONString(AnyText()) is any string's contents.
func (s *Set) JSONString(e Expr) Expr { return s.quote(e, quoteText, 0) }

// MultipleOf returns the decimal numerals without sign and exponent (digits, and optionally a point and more digits;
// leading and trailing zeros allowed) whose value is a multiple of n/10^scale: MultipleOf(5, 2) is multiples of 0.05.
// n is at least 1 and below 2^60; scale is 0 to 18. Intersect it with what else a numeral must be.
func (s *Set) MultipleOf(n uint64, scale int) Expr {
	if n == 0 || n >= 1<<60 || scale < 0 || scale > 18 {
		return s.fail("a multiple of %d/10^%d", n, scale)
	}
	return s.multiple(multiple{n: n, scale: int8(scale), phase: multipleStart})
}
