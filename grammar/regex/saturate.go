package regex

// Saturate returns an expression that agrees with e on which texts of at most n bytes begin one of its texts, and on
// whether the empty text is one: repetitions that n bytes can neither fill nor satisfy are counted to n+1. Places deep in
// a string of bounded length become one place. Inside And and Not, where counts decide more than that, nothing changes.
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
