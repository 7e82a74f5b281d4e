package regex

import (
	"cmp"
	"slices"
)

// utf8Range appends to alts the byte sequences that encode the code points of r: one Concat of byte ranges for every
// part of r whose encodings have the same length and vary independently in each byte.
func (s *Set) utf8Range(alts []Expr, r RuneRange) []Expr {
	if r.Lo < 0 {
		r.Lo = 0
	}
	if r.Hi > 0x10ffff {
		r.Hi = 0x10ffff
	}
	if r.Lo > r.Hi {
		return alts
	}
	for _, cut := range []rune{0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff} {
		if r.Lo <= cut && cut < r.Hi {
			return s.utf8Range(s.utf8Range(alts, RuneRange{r.Lo, cut}), RuneRange{cut + 1, r.Hi})
		}
	}
	if 0xd800 <= r.Lo && r.Hi <= 0xdfff {
		return alts
	}
	for shift := 6; shift <= 18; shift += 6 {
		m := rune(1)<<shift - 1
		if r.Lo&^m == r.Hi&^m {
			continue
		}
		if r.Lo&m != 0 {
			return s.utf8Range(s.utf8Range(alts, RuneRange{r.Lo, r.Lo | m}), RuneRange{(r.Lo | m) + 1, r.Hi})
		}
		if r.Hi&m != m {
			return s.utf8Range(s.utf8Range(alts, RuneRange{r.Lo, r.Hi&^m - 1}), RuneRange{r.Hi &^ m, r.Hi})
		}
	}
	lo, hi := string(r.Lo), string(r.Hi)
	e := s.Empty()
	for i := len(lo) - 1; i >= 0; i-- {
		e = s.concat(s.Bytes(ByteRange(lo[i], hi[i])), e)
	}
	return append(alts, e)
}

// normalize sorts ranges and joins those that touch.
func normalize(ranges []RuneRange) []RuneRange {
	rs := slices.Clone(ranges)
	slices.SortFunc(rs, func(a, b RuneRange) int { return cmp.Compare(a.Lo, b.Lo) })
	out := rs[:0]
	for _, r := range rs {
		switch {
		case r.Lo > r.Hi:
		case len(out) > 0 && r.Lo <= out[len(out)-1].Hi+1:
			out[len(out)-1].Hi = max(out[len(out)-1].Hi, r.Hi)
		default:
			out = append(out, r)
		}
	}
	return out
}

// complement returns the code points in none of ranges.
func complement(ranges []RuneRange) []RuneRange {
	var out []RuneRange
	next := rune(0)
	for _, r := range normalize(ranges) {
		if r.Lo > next {
			out = append(out, RuneRange{next, r.Lo - 1})
		}
		next = max(next, r.Hi+1)
	}
	if next <= 0x10ffff {
		out = append(out, RuneRange{next, 0x10ffff})
	}
	return out
}
