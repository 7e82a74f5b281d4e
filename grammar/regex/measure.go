package regex

// Chain reports whether e is one byte set after another: a literal, or a sequence that is read like one.
func (s *Set) Chain(e Expr) bool {
	for {
		switch n := &s.nodes[e]; {
		case n.kind == kBytes:
			return true
		case n.kind == kConcat && s.nodes[n.a].kind == kBytes:
			e = n.b
		default:
			return false
		}
	}
}

// NonEmpty returns the texts of e that are not empty.
func (s *Set) NonEmpty(e Expr) Expr {
	n := s.nodes[e]
	switch {
	case !n.nullable:
		return e
	case e == 1:
		return 0
	case n.kind == kRepeat && !s.nodes[n.a].nullable:
		return s.Repeat(n.a, 1, int(n.y))
	}
	return s.Minus(e, s.Empty())
}

// MaxLen returns the length in bytes of the longest text of e, or -1 when there is no bound or it is above a million.
// For intersections and multiples it is an upper bound.
func (s *Set) MaxLen(e Expr) int { return s.maxLen(e, map[Expr]int{}) }

func (s *Set) maxLen(e Expr, memo map[Expr]int) int {
	const most = 1_000_000
	if l, ok := memo[e]; ok {
		return l
	}
	l := 0
	switch n := s.nodes[e]; n.kind {
	case kNothing, kEmpty:
	case kBytes:
		l = 1
	case kConcat:
		a, b := s.maxLen(n.a, memo), s.maxLen(n.b, memo)
		if l = a + b; a < 0 || b < 0 || l > most {
			l = -1
		}
	case kOr:
		for _, a := range s.args[n.x : n.x+n.y] {
			k := s.maxLen(a, memo)
			if k < 0 {
				l = -1
				break
			}
			l = max(l, k)
		}
	case kAnd:
		l = -1
		for _, a := range s.args[n.x : n.x+n.y] {
			if k := s.maxLen(a, memo); k >= 0 && (l < 0 || k < l) {
				l = k
			}
		}
	case kRepeat:
		a := s.maxLen(n.a, memo)
		if l = a * int(n.y); n.y < 0 || a < 0 || a > 0 && int(n.y) > most/a {
			l = -1
		}
	case kQuote:
		if a := s.maxLen(n.a, memo); a < 0 || a > most/12 {
			l = -1
		} else {
			l = 12*a + 12
		}
	default:
		l = -1
	}
	memo[e] = l
	return l
}
