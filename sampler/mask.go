package sampler

import "math/bits"

// Mask is the tokens that may be sampled, one bit a token: token t is bit t%32 of word t/32. Tokens behind its end may
// not.
type Mask []uint32

// Has reports whether token may be sampled.
func (m Mask) Has(token int32) bool {
	w := int(token >> 5)
	return token >= 0 && w < len(m) && m[w]>>(token&31)&1 != 0
}

// Restrict makes Sample choose among the tokens of mask only, from the next row on; nil takes that back. The mask is
// laid over the row as it is read: no logit is copied or changed, and every stage sees the allowed tokens alone. The
// caller keeps the mask unchanged while it is set.
func (c *Chain) Restrict(mask Mask) { c.mask = mask }

// runs passes the allowed tokens of logits[from:to] to scan, a run of neighbours at a time.
func (s *Scratch) runs(logits []float32, from, to int32, scan func(s *Scratch, part []float32, base int32)) {
	to = min(to, int32(min(len(logits), 32*len(s.mask))))
	for at := from; at < to; {
		// The bits of the word from at on: skip what may not come, then take what may.
		word := s.mask[at>>5] >> (at & 31)
		if word == 0 {
			at = at&^31 + 32
			continue
		}
		at += int32(bits.TrailingZeros32(word))
		end := at
		for end < to {
			stop := bits.TrailingZeros32(^(s.mask[end>>5] >> (end & 31)))
			// Shifting brings zeros in from above, so stop is at most what the word has left.
			left := 32 - int(end&31)
			end += int32(min(stop, left))
			if stop < left {
				break
			}
		}
		if end = min(end, to); at < end {
			scan(s, logits[at:end], at)
		}
		at = end
	}
}
