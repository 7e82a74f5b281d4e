package regex

import "math/bits"

// partition divides the bytes into classes. The zero value is not ready: call reset.
type partition struct {
	class [256]byte
	size  [256]int16
	n     int
}

func (p *partition) reset() {
	p.class = [256]byte{}
	p.size[0], p.n = 256, 1
}

// split makes every class lie inside or outside of set.
func (p *partition) split(set ByteSet) {
	var in [256]int16 // bytes of set by class
	var to [256]int16 // the new class of a class's bytes in set; 0 is none yet
	n := p.n
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			in[p.class[i<<6+bits.TrailingZeros64(w)]]++
		}
	}
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			b := i<<6 + bits.TrailingZeros64(w)
			c := p.class[b]
			if int(c) >= n || in[c] == p.size[c] {
				continue
			}
			if to[c] == 0 {
				to[c] = int16(p.n)
				p.size[p.n] = 0
				p.n++
			}
			p.class[b] = byte(to[c])
			p.size[to[c]]++
		}
	}
	for c := range n {
		if to[c] != 0 {
			p.size[c] -= in[c]
		}
	}
}

// each gives every byte of set a class to itself.
func (p *partition) each(set ByteSet) {
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			var one ByteSet
			one.Add(byte(i<<6 + bits.TrailingZeros64(w)))
			p.split(one)
		}
	}
}

// representatives renumbers the classes by their first byte, so that equal partitions are equal, and returns those
// bytes.
func (p *partition) representatives() []byte {
	var reps []byte
	var renumbered [256]int16
	for b := range 256 {
		c := p.class[b]
		if renumbered[c] == 0 {
			reps = append(reps, byte(b))
			renumbered[c] = int16(len(reps))
		}
		p.class[b] = byte(renumbered[c] - 1)
	}
	return reps
}
