package regex

import "math/bits"

// multiple is the state of reading a numeral that must be a multiple of n/10^scale. rem is the value of the digits read
// so far, the point left out, modulo n; frac counts the digits after the point.
type multiple struct {
	n, rem      uint64
	scale, frac int8
	phase       multiplePhase
}

type multiplePhase uint8

const (
	multipleStart multiplePhase = iota // a digit must come
	multipleWhole                      // digits, a point, or the end
	multiplePoint                      // a digit must come
	multipleFrac                       // digits or the end
)

// short returns -rem·10^(scale-frac) modulo n: what the digits that are still worth something must add.
func (m multiple) short() uint64 {
	hi, lo := bits.Mul64(m.rem, pow10(int(m.scale-m.frac)))
	r := bits.Rem64(hi, lo, m.n)
	if r == 0 {
		return 0
	}
	return m.n - r
}

func pow10(n int) uint64 {
	p := uint64(1)
	for ; n > 0; n-- {
		p *= 10
	}
	return p
}

func (m multiple) nullable() bool {
	return (m.phase == multipleWhole || m.phase == multipleFrac) && m.short() == 0
}

// live reports whether any numeral follows: before the point always, since enough digits reach every remainder; after
// it when the digits that are left can add what is short.
func (m multiple) live() bool {
	return m.phase == multipleStart || m.phase == multipleWhole || m.short() < pow10(int(m.scale-m.frac))
}

func (m multiple) derive(b byte) (multiple, bool) {
	switch {
	case b == '.' && m.phase == multipleWhole:
		m.phase = multiplePoint
	case b < '0' || b > '9':
		return m, false
	case m.phase == multipleStart || m.phase == multipleWhole:
		m.rem, m.phase = (m.rem*10+uint64(b-'0'))%m.n, multipleWhole
	case m.frac < m.scale:
		m.rem, m.phase = (m.rem*10+uint64(b-'0'))%m.n, multipleFrac
		m.frac++
	case b != '0':
		return m, false
	default:
		m.phase = multipleFrac
	}
	return m, m.live()
}

func (s *Set) multiple(m multiple) Expr {
	i, ok := s.byMult[m]
	if !ok {
		i = int32(len(s.mults))
		s.mults = append(s.mults, m)
		s.byMult[m] = i
	}
	first := ByteRange('0', '9')
	if m.phase == multipleWhole {
		first.Add('.')
	}
	return s.intern(node{kind: kMultiple, x: i, nullable: m.nullable(), first: first})
}
