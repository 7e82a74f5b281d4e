package regex

// Class is a set of characters whose texts a vocabulary has many tokens of.
type Class uint8

const (
	// Word is ASCII letters, digits, underscore and hyphen.
	Word Class = iota
	// Plain is every character that stands for itself in a JSON string, without DEL, U+2028 and U+2029, which the dot
	// of patterns leaves out too. It includes Word.
	Plain
	// NumClasses is the number of classes.
	NumClasses
)

var classASCII = [NumClasses]ByteSet{
	Word:  ByteRange('0', '9').Union(ByteRange('A', 'Z')).Union(ByteRange('a', 'z')).Union(ByteOf("_-")),
	Plain: ByteRange(0x20, 0x7e).Minus(ByteOf(`"\`)),
}

// Unlimited is more characters than any token has.
const Unlimited = 1 << 30

// Length returns the number of characters of p when all are of class c.
func (c Class) Length(p []byte) (int, bool) {
	n, u := 0, place(0)
	for _, b := range p {
		var ok bool
		if u, ok = u.next(c, b); !ok {
			return 0, false
		}
		if u == 0 {
			n++
		}
	}
	return n, u == 0
}

// place is a position within the UTF-8 encoding of a character; 0 is between two characters.
type place uint8

const (
	placeOne   place = iota + 1 // one more byte
	placeTwo                    // two more
	placeThree                  // three more
	placeE0                     // two more, the first at least A0
	placeE2                     // two more, and not 80 A8 or 80 A9
	placeE280                   // one more, neither A8 nor A9
	placeED                     // two more, the first at most 9F
	placeF0                     // three more, the first at least 90
	placeF4                     // three more, the first at most 8F
	numPlaces
)

// next returns the place after b; false when texts of c have no such byte there. The bounds are those of RFC 3629.
func (u place) next(c Class, b byte) (place, bool) {
	if u == 0 {
		switch {
		case b < 0x80:
			return 0, classASCII[c].Has(b)
		case c == Word || b < 0xc2 || b > 0xf4:
			return 0, false
		case b < 0xe0:
			return placeOne, true
		case b == 0xe0:
			return placeE0, true
		case b == 0xe2:
			return placeE2, true
		case b == 0xed:
			return placeED, true
		case b < 0xf0:
			return placeTwo, true
		case b == 0xf0:
			return placeF0, true
		case b == 0xf4:
			return placeF4, true
		}
		return placeThree, true
	}
	lo, hi, to := byte(0x80), byte(0xbf), place(0)
	switch u {
	case placeTwo:
		to = placeOne
	case placeThree:
		to = placeTwo
	case placeE0:
		lo, to = 0xa0, placeOne
	case placeE2:
		if to = placeOne; b == 0x80 {
			to = placeE280
		}
	case placeE280:
		if b == 0xa8 || b == 0xa9 {
			return 0, false
		}
	case placeED:
		hi, to = 0x9f, placeOne
	case placeF0:
		lo, to = 0x90, placeTwo
	case placeF4:
		hi, to = 0x8f, placeTwo
	}
	return to, lo <= b && b <= hi
}

// edge is a run of bytes that lead from one place to another.
type edge struct {
	lo, hi byte
	to     place
}

// edges are the runs of bytes that leave each place.
var edges = func() (out [NumClasses][numPlaces][]edge) {
	for c := range NumClasses {
		for u := range numPlaces {
			for b := range 256 {
				to, ok := u.next(c, byte(b))
				if !ok {
					continue
				}
				es := out[c][u]
				if n := len(es); n > 0 && es[n-1].to == to && int(es[n-1].hi)+1 == b {
					es[n-1].hi = byte(b)
				} else {
					es = append(es, edge{byte(b), byte(b), to})
				}
				out[c][u] = es
			}
		}
	}
	return out
}()

// Absorbs returns for how many characters e can be read whatever they are, as long as they are of class c: every text
// of so many of them is the beginning of a text of e. It is a lower bound, and Unlimited where there is none.
func (s *Set) Absorbs(e Expr, c Class) int {
	key := memoKey{e, c}
	if n, ok := s.absorbs[key]; ok {
		return n
	}
	n := s.formAbsorbs(e, c)
	if n == 0 && classASCII[c].Minus(s.nodes[e].first).Empty() {
		n = s.searchAbsorbs(e, c)
	}
	s.absorbs[key] = n
	return n
}

type memoKey struct {
	e Expr
	c Class
}

// formAbsorbs returns the part of Absorbs that follows from the kind of e and its parts, without a search.
func (s *Set) formAbsorbs(e Expr, c Class) int {
	switch n := s.nodes[e]; n.kind {
	case kConcat:
		return s.formAbsorbs(n.a, c)
	case kRepeat:
		switch {
		case !s.covers(n.a, c):
			return 0
		case n.y < 0:
			return Unlimited
		}
		return int(n.y)
	case kOr:
		most := 0
		for i := n.x; i < n.x+n.y; i++ {
			most = max(most, s.formAbsorbs(s.args[i], c))
		}
		return most
	case kQuote:
		if n.x == quoteText {
			return s.formAbsorbs(n.a, c)
		}
	case kNot:
		if s.MaxLen(n.a) >= 0 {
			return Unlimited // whatever was read, something longer than all that is excluded follows
		}
	case kAnd:
		// What absorbs n characters has texts of n and more, so a complement of shorter texts ends none of them early.
		out, longest, others := Unlimited, 0, 0
		for i := n.x; i < n.x+n.y; i++ {
			a := s.nodes[s.args[i]]
			if a.kind == kNot {
				l := s.MaxLen(a.a)
				if l < 0 {
					return 0
				}
				longest = max(longest, l)
				continue
			}
			if others++; others > 1 {
				return 0
			}
			out = s.formAbsorbs(s.args[i], c)
		}
		if out > longest {
			return out
		}
	}
	return 0
}

// covers reports whether e reads every single character of class c and may end behind it.
func (s *Set) covers(e Expr, c Class) bool {
	key := memoKey{e, c}
	if ok, known := s.covered[key]; known {
		return ok
	}
	after, ok := s.afterOne(e, c)
	for _, x := range after {
		ok = ok && s.nodes[x].nullable
	}
	s.covered[key] = ok
	return ok
}

// afterOne returns the expressions that one character of class c can lead to from e; false when some cannot be read.
func (s *Set) afterOne(e Expr, c Class) (after []Expr, ok bool) {
	type at struct {
		e Expr
		u place
	}
	var buf [16]at
	todo := append(buf[:0], at{e, 0})
	for i := 0; i < len(todo); i++ {
		p := todo[i]
		r := s.row(p.e)
		for _, run := range edges[c][p.u] {
			last := Expr(0)
			for b := int(run.lo); b <= int(run.hi); b++ {
				x := r.next[r.class[b]]
				switch {
				case x == 0:
					return nil, false
				case x == last:
					continue
				}
				last = x
				if run.to == 0 {
					if !contains(after, x) {
						after = append(after, x)
					}
				} else if !contains(todo, at{x, run.to}) {
					todo = append(todo, at{x, run.to})
				}
			}
		}
	}
	return after, true
}

func contains[T comparable](list []T, x T) bool {
	for i := range list {
		if list[i] == x {
			return true
		}
	}
	return false
}

const (
	searchChars  = 12 // how far searchAbsorbs looks ahead, in characters
	searchStates = 24 // and in states
)

// searchAbsorbs looks ahead, one character after the other.
func (s *Set) searchAbsorbs(e Expr, c Class) int {
	level, seen := []Expr{e}, []Expr{e}
	for n := range searchChars {
		var next []Expr
		for _, x := range level {
			after, ok := s.afterOne(x, c)
			if !ok {
				return n
			}
			for _, y := range after {
				if !contains(seen, y) {
					if len(seen) == searchStates {
						return n
					}
					seen, next = append(seen, y), append(next, y)
				}
			}
		}
		if level = next; len(level) == 0 {
			return Unlimited
		}
	}
	return searchChars
}
