package jsonschema

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// decimal is an exact decimal number: neg, then whole.frac. whole has no leading zero and is empty for 0; frac has no
// trailing zero. Invariant: equal numbers are equal values; zero is not neg.
type decimal struct {
	neg         bool
	whole, frac string
}

const (
	// maxDigits are those of the largest integer of 64 bits; a double has 17.
	maxDigits = 20
	// maxExponent bounds the exponent of a number in a schema: its digits are written out.
	maxExponent = 400
	// maxMultiple bounds the digits of multipleOf, read as an integer: the automaton has a state for each remainder.
	maxMultiple = 10_000
	// maxCount is the largest length or count that a schema may set.
	maxCount = 1<<31 - 1
)

// parseDecimal reads a JSON number.
func parseDecimal(text string) (decimal, error) {
	var d decimal
	rest, neg := strings.CutPrefix(text, "-")
	mantissa, exponent := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		e, err := strconv.Atoi(strings.TrimPrefix(rest[i+1:], "+"))
		if err != nil || e > maxExponent || e < -maxExponent {
			return d, fmt.Errorf("the exponent of %.40s is outside ±%d", text, maxExponent)
		}
		mantissa, exponent = rest[:i], e
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	for ; exponent > 0; exponent-- {
		if frac == "" {
			frac = "0"
		}
		whole, frac = whole+frac[:1], frac[1:]
	}
	for ; exponent < 0; exponent++ {
		if whole == "" {
			whole = "0"
		}
		whole, frac = whole[:len(whole)-1], whole[len(whole)-1:]+frac
	}
	d.whole, d.frac = strings.TrimLeft(whole, "0"), strings.TrimRight(frac, "0")
	d.neg = neg && d.whole+d.frac != ""
	return d, nil
}

func (d decimal) isZero() bool { return d.whole == "" && d.frac == "" }

func (d decimal) isInt() bool { return d.frac == "" }

// int returns d where it is an integer of at most maxCount.
func (d decimal) int() (int, bool) {
	if d.frac != "" || len(d.whole) > 10 {
		return 0, false
	}
	if d.whole == "" {
		return 0, true
	}
	n, err := strconv.Atoi(d.whole)
	if d.neg {
		n = -n
	}
	return n, err == nil && n <= maxCount
}

// cmp compares two decimals.
func (d decimal) cmp(o decimal) int {
	if d.neg != o.neg {
		if d.neg {
			return -1
		}
		return 1
	}
	c := len(d.whole) - len(o.whole)
	if c == 0 {
		c = strings.Compare(d.whole, o.whole)
	}
	if c == 0 {
		c = strings.Compare(d.frac, o.frac) // without trailing zeros, fractions compare as texts
	}
	if d.neg {
		return -c
	}
	return c
}

func (d decimal) digits() string {
	if d.whole == "" {
		return "0"
	}
	return d.whole
}

// String writes d as a JSON number without an exponent.
func (d decimal) String() string {
	s := d.digits()
	if d.frac != "" {
		s += "." + d.frac
	}
	if d.neg {
		s = "-" + s
	}
	return s
}

// bound is one end of a range of numbers.
type bound struct {
	set       bool
	exclusive bool
	at        decimal
}

// numbers builds expressions over the texts of numbers. Bounded numbers are plain decimals; the forms with an exponent
// are added only where their sign and the sign of the exponent decide, so that an expression never holds a text whose
// value is outside. Invariant: of each value the expression holds all plain texts or none, so that complements taken
// within plain are exact.
type numbers struct {
	s               *regex.Set
	digit, digits   regex.Expr // one digit; any number of them
	nonzero, zeros  regex.Expr // 1 to 9; any number of zeros
	whole, fraction regex.Expr // 0 or digits without a leading zero; nothing or a point and digits
	plain           regex.Expr // every decimal without an exponent
	integer         regex.Expr // plain texts of integers, 1.0 among them
	short           regex.Expr // integers without a point
	any             regex.Expr // every JSON number; exponents to 299, or of three digits in any form
	exponent        regex.Expr
	minus           regex.Expr
	ending          regex.Expr // texts with at most maxDigits before the point and behind it
}

func newNumbers(s *regex.Set, anyForm bool) *numbers {
	n := &numbers{s: s}
	n.digit = s.Bytes(regex.ByteRange('0', '9'))
	n.digits = s.Star(n.digit)
	n.nonzero = s.Bytes(regex.ByteRange('1', '9'))
	n.zeros = s.Star(s.Byte('0'))
	n.minus = s.Byte('-')
	n.whole = s.Or(s.Byte('0'), s.Concat(n.nonzero, n.digits))
	n.fraction = s.Optional(s.Concat(s.Byte('.'), n.digit, n.digits))
	n.plain = s.Concat(s.Optional(n.minus), n.whole, n.fraction)
	n.short = s.Concat(s.Optional(n.minus), n.whole)
	n.integer = s.Concat(n.short, n.zeroFraction())
	// Doubles end near 1e308; three digits from 300 on are left out so that readers get a finite number.
	n.exponent = s.Or(s.Concat(n.digit, s.Optional(n.digit)), s.Concat(s.Bytes(regex.ByteOf("12")), n.digit, n.digit))
	if anyForm {
		n.exponent = s.Repeat(n.digit, 1, 3)
		n.integer = s.Or(n.integer, n.largeIntegers())
	}
	e := s.Concat(s.Bytes(regex.ByteOf("eE")), s.Optional(s.Bytes(regex.ByteOf("+-"))), n.exponent)
	n.any = s.Concat(n.plain, s.Optional(e))
	n.ending = s.Concat(s.Optional(n.minus), s.Repeat(n.digit, 1, maxDigits),
		s.Optional(s.Concat(s.Byte('.'), s.Repeat(n.digit, 1, maxDigits))), s.Optional(e))
	return n
}

// largeIntegers are integers with an exponent that is not negative.
func (n *numbers) largeIntegers() regex.Expr {
	s := n.s
	return s.Concat(s.Optional(n.minus), n.nonzero, n.digits, s.Bytes(regex.ByteOf("eE")), s.Optional(s.Byte('+')),
		n.exponent)
}

// zeroFraction returns the optional fraction of an integer: a point and zeros.
func (n *numbers) zeroFraction() regex.Expr {
	return n.s.Optional(n.s.Concat(n.s.Byte('.'), n.s.Byte('0'), n.zeros))
}

func (n *numbers) equal(d decimal) regex.Expr {
	s := n.s
	tail := n.zeroFraction()
	if d.frac != "" {
		tail = s.Concat(s.Byte('.'), s.Literal(d.frac), n.zeros)
	}
	e := s.Concat(s.Literal(d.digits()), tail)
	if d.isZero() {
		return s.Concat(s.Optional(n.minus), e)
	}
	if d.neg {
		return s.Concat(n.minus, e)
	}
	return e
}

// between returns every number from lo to hi.
func (n *numbers) between(lo, hi bound) regex.Expr {
	s := n.s
	if !lo.set && !hi.set {
		return n.any
	}
	out := n.plain
	if lo.set {
		out = s.And(out, n.above(lo))
	}
	if hi.set {
		out = s.And(out, n.below(hi))
	}
	return s.Or(out, n.exponents(lo, hi))
}

// exponents are texts with an exponent whose values are surely within the bounds: all positive or negative ones, or
// those below 1 in magnitude.
func (n *numbers) exponents(lo, hi bound) regex.Expr {
	s := n.s
	one, minusOne := decimal{whole: "1"}, decimal{neg: true, whole: "1"}
	mantissa := s.Concat(n.nonzero, n.fraction)
	e := s.Bytes(regex.ByteOf("eE"))
	all := s.Concat(mantissa, e, s.Optional(s.Bytes(regex.ByteOf("+-"))), n.exponent)
	small := s.Concat(mantissa, e, n.minus, s.Optional(s.Byte('0')), n.nonzero, s.Optional(n.digit))
	var out []regex.Expr
	if !lo.set || lo.at.cmp(decimal{}) <= 0 {
		if !hi.set {
			out = append(out, all)
		} else if hi.at.cmp(one) >= 0 {
			out = append(out, small)
		}
	}
	if !hi.set || hi.at.cmp(decimal{}) >= 0 {
		if !lo.set {
			out = append(out, s.Concat(n.minus, all))
		} else if lo.at.cmp(minusOne) <= 0 {
			out = append(out, s.Concat(n.minus, small))
		}
	}
	return s.Or(out...)
}

func (n *numbers) above(b bound) regex.Expr {
	s := n.s
	positive := s.Concat(n.whole, n.fraction)
	switch {
	case b.at.neg:
		return s.Or(positive, s.Concat(n.minus, n.most(b.at, b.exclusive)))
	case b.at.isZero() && !b.exclusive:
		return s.Or(positive, n.equal(decimal{}))
	}
	return n.least(b.at, b.exclusive)
}

func (n *numbers) below(b bound) regex.Expr {
	s := n.s
	negative := s.Concat(n.minus, n.whole, n.fraction)
	switch {
	case b.at.neg:
		return s.Concat(n.minus, n.least(b.at, b.exclusive))
	case b.at.isZero() && b.exclusive:
		return s.Concat(n.minus, n.least(decimal{}, true))
	case b.at.isZero():
		return s.Or(negative, n.equal(decimal{}))
	}
	return s.Or(negative, n.most(b.at, b.exclusive))
}

// least returns every unsigned text of at least the magnitude of d, most of at most that.
func (n *numbers) least(d decimal, strict bool) regex.Expr {
	s, w := n.s, d.digits()
	whole := []regex.Expr{s.Concat(n.nonzero, s.Repeat(n.digit, len(w), regex.Unbounded))}
	for i := range len(w) {
		whole = append(whole, s.Concat(s.Literal(w[:i]), n.range_(w[i]+1, '9'),
			s.Repeat(n.digit, len(w)-i-1, len(w)-i-1)))
	}
	var frac []regex.Expr
	for i := range len(d.frac) {
		frac = append(frac, s.Concat(s.Byte('.'), s.Literal(d.frac[:i]), n.range_(d.frac[i]+1, '9'), n.digits))
	}
	switch {
	case strict:
		frac = append(frac, s.Concat(s.Byte('.'), s.Literal(d.frac), n.zeros, n.nonzero, n.digits))
	case d.frac == "":
		frac = append(frac, n.fraction)
	default:
		frac = append(frac, s.Concat(s.Byte('.'), s.Literal(d.frac), n.digits))
	}
	return s.Or(s.Concat(s.Or(whole...), n.fraction), s.Concat(s.Literal(w), s.Or(frac...)))
}

func (n *numbers) most(d decimal, strict bool) regex.Expr {
	s, w := n.s, d.digits()
	var whole []regex.Expr
	if len(w) > 1 {
		whole = append(whole, s.Byte('0'), s.Concat(n.nonzero, s.Repeat(n.digit, 0, len(w)-2)))
	}
	for i := range len(w) {
		lo := byte('0')
		if i == 0 && len(w) > 1 {
			lo = '1'
		}
		whole = append(whole, s.Concat(s.Literal(w[:i]), n.range_(lo, w[i]-1),
			s.Repeat(n.digit, len(w)-i-1, len(w)-i-1)))
	}
	var frac []regex.Expr
	for i := range len(d.frac) {
		if i == 0 {
			frac = append(frac, s.Empty())
		} else {
			frac = append(frac, s.Concat(s.Byte('.'), s.Literal(d.frac[:i])))
		}
		frac = append(frac, s.Concat(s.Byte('.'), s.Literal(d.frac[:i]), n.range_('0', d.frac[i]-1), n.digits))
	}
	switch {
	case strict:
	case d.frac == "":
		frac = append(frac, n.zeroFraction())
	default:
		frac = append(frac, s.Concat(s.Byte('.'), s.Literal(d.frac), n.zeros))
	}
	return s.Or(s.Concat(s.Or(whole...), n.fraction), s.Concat(s.Literal(w), s.Or(frac...)))
}

func (n *numbers) range_(lo, hi byte) regex.Expr {
	if lo > hi || hi < '0' || lo > '9' {
		return n.s.Nothing()
	}
	return n.s.Bytes(regex.ByteRange(lo, hi))
}

// multipleOf returns every plain text of a multiple of d.
func (n *numbers) multipleOf(d decimal) (regex.Expr, error) {
	if d.neg || d.isZero() {
		return 0, fmt.Errorf("want a number above 0, have %s", d)
	}
	u, err := strconv.ParseUint(d.whole+d.frac, 10, 60)
	if err != nil || u > maxMultiple || len(d.frac) > 18 {
		return 0, fmt.Errorf("%.40s: the digits, as an integer, are above %d", d, maxMultiple)
	}
	e := n.s.And(n.plain, n.s.Concat(n.s.Optional(n.minus), n.s.MultipleOf(u, len(d.frac))))
	if one, ok := pow10(len(d.frac)); ok && one%u == 0 { // integers are multiples
		e = n.s.Or(e, n.largeIntegers())
	}
	return e, nil
}

// pow10 is 10^n.
func pow10(n int) (uint64, bool) {
	out := uint64(1)
	for range n {
		out *= 10
	}
	return out, n <= 18
}
