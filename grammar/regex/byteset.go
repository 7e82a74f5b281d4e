package regex

import "math/bits"

// ByteSet is a set of bytes, one bit a byte.
type ByteSet [4]uint64

// ByteRange returns the bytes lo to hi, both included.
func ByteRange(lo, hi byte) ByteSet {
	var s ByteSet
	for b := int(lo); b <= int(hi); b++ {
		s.Add(byte(b))
	}
	return s
}

// ByteOf returns the set of the bytes of text.
func ByteOf(text string) ByteSet {
	var s ByteSet
	for i := 0; i < len(text); i++ {
		s.Add(text[i])
	}
	return s
}

// Add adds b.
func (s *ByteSet) Add(b byte) { s[b>>6] |= 1 << (b & 63) }

// Has reports whether b is in the set.
func (s ByteSet) Has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// Union returns the bytes of either set.
func (s ByteSet) Union(o ByteSet) ByteSet {
	return ByteSet{s[0] | o[0], s[1] | o[1], s[2] | o[2], s[3] | o[3]}
}

// Intersect returns the bytes of both sets.
func (s ByteSet) Intersect(o ByteSet) ByteSet {
	return ByteSet{s[0] & o[0], s[1] & o[1], s[2] & o[2], s[3] & o[3]}
}

// Minus returns the bytes of s that are not in o.
func (s ByteSet) Minus(o ByteSet) ByteSet {
	return ByteSet{s[0] &^ o[0], s[1] &^ o[1], s[2] &^ o[2], s[3] &^ o[3]}
}

// Empty reports whether the set has no byte.
func (s ByteSet) Empty() bool { return s == ByteSet{} }

// Len returns the number of bytes in the set.
func (s ByteSet) Len() int {
	return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) + bits.OnesCount64(s[2]) + bits.OnesCount64(s[3])
}

// Only returns the byte of a set that has exactly one.
func (s ByteSet) Only() (byte, bool) {
	if s.Len() != 1 {
		return 0, false
	}
	return s.first(), true
}

// first returns the smallest byte of a set that is not empty.
func (s ByteSet) first() byte {
	for i, w := range s {
		if w != 0 {
			return byte(i<<6 + bits.TrailingZeros64(w))
		}
	}
	return 0
}
