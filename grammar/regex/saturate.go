package regex

// Saturate returns an expression that agrees with e on which texts of at most n bytes begin one of its texts, and on
// whether the empty text is one: repetitions that n bytes can neither fill nor satisfy are counted to n+1. Places deep
// in a string of bounded length become one place. Inside And and Not, where counts decide more than that, nothing
// changes; but a bound of the length is left out where every beginning of n bytes can be completed within it.
func (s *Set) Saturate(e Expr, n int) Expr {
	if s.saturated == nil || s.saturatedTo != n {
		s.saturated, s.saturatedTo = map[Expr]Expr{}, n
	}
	return s.saturate(e, int32(n)+1)
}

func (s *Set) saturate(e Expr, most int32) Expr {
	if out, ok := s.saturated[e]; ok {
		return out
	}
	out := e
	switch n := s.nodes[e]; n.kind {
	case kConcat:
		if a, b := s.saturate(n.a, most), s.saturate(n.b, most); a != n.a || b != n.b {
			out = s.concat(a, b)
		}
	case kRepeat:
		if n.x > most || n.y > most {
			y := int(n.y)
			if y >= 0 {
				y = int(min(n.y, most))
			}
			out = s.Repeat(n.a, int(min(n.x, most)), y)
		}
	case kQuote:
		if a := s.saturate(n.a, most); a != n.a {
			out = s.quote(a, n.x, n.y)
		}
	case kAnd:
		if a := s.unbound(e, most); a != e {
			out = s.saturate(a, most)
		}
	case kOr:
		changed, args := false, make([]Expr, 0, n.y)
		for i := n.x; i < n.x+n.y; i++ {
			a := s.saturate(s.args[i], most)
			changed = changed || a != s.args[i]
			args = append(args, a)
		}
		if changed {
			out = s.or(args)
		}
	}
	if len(s.saturated) >= 1<<16 {
		clear(s.saturated)
	}
	s.saturated[e] = out
	return out
}

// unbound returns an intersection without the bound of its length, where the first most bytes cannot come to feel it;
// else e.
func (s *Set) unbound(e Expr, most int32) Expr {
	if other, bound := s.bounded(e); bound >= 0 {
		if end := s.span(other).ends; end >= 0 && bound >= int(most)+end {
			return other
		}
	}
	return e
}

// bounded returns e, the intersection of other and of every text of at most most characters, in its parts; most is -1
// for any other expression.
func (s *Set) bounded(e Expr) (other Expr, most int) {
	n := s.nodes[e]
	if n.kind != kAnd || n.y != 2 || s.anyRune == 0 {
		return 0, -1
	}
	for i := range int32(2) {
		if b := s.nodes[s.args[n.x+i]]; b.kind == kRepeat && b.a == s.anyRune && b.x == 0 {
			return s.args[n.x+1-i], int(b.y)
		}
	}
	return 0, -1
}

// span bounds the lengths of an expression's texts, in bytes; -1 is unknown.
type span struct {
	least int // at least the length of its shortest text
	ends  int // every beginning of a text can be completed with at most so many bytes
}

// span returns the span of e. Alternatives of a beginning may die; those that are left complete it.
func (s *Set) span(e Expr) span {
	if out, ok := s.spans[e]; ok {
		return out
	}
	if s.spans == nil || len(s.spans) >= 1<<16 {
		s.spans = map[Expr]span{}
	}
	const most = 1 << 20
	out := span{-1, -1}
	switch n := s.nodes[e]; n.kind {
	case kEmpty:
		out = span{0, 0}
	case kBytes:
		out = span{1, 1}
	case kConcat:
		if a, b := s.span(n.a), s.span(n.b); a.ends >= 0 && b.ends >= 0 {
			out = span{a.least + b.least, max(a.ends+b.least, b.ends)}
		}
	case kRepeat:
		if a := s.span(n.a); a.ends >= 0 && int(n.x) <= most/max(a.least, 1) {
			out = span{int(n.x) * a.least, a.ends + max(0, int(n.x)-1)*a.least}
		}
	case kOr:
		out = span{most, 0}
		for _, a := range s.args[n.x : n.x+n.y] {
			b := s.span(a)
			if b.ends < 0 {
				out = b
				break
			}
			out = span{min(out.least, b.least), max(out.ends, b.ends)}
		}
	}
	if out.ends > most {
		out = span{-1, -1}
	}
	s.spans[e] = out
	return out
}
