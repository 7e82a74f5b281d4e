package regex

import (
	"cmp"
	"slices"
)

func (s *Set) concat(a, b Expr) Expr {
	switch {
	case a == 0 || b == 0:
		return 0
	case a == 1:
		return b
	case b == 1:
		return a
	}
	na := &s.nodes[a]
	if na.kind == kConcat {
		head, tail := na.a, na.b
		return s.concat(head, s.concat(tail, b))
	}
	nb := &s.nodes[b]
	return s.intern(node{kind: kConcat, a: a, b: b, nullable: na.nullable && nb.nullable, search: na.search ||
		nb.search})
}

// or is Or; it may change es.
func (s *Set) or(es []Expr) Expr {
	es = s.flatten(kOr, es)
	all := s.all()
	var set ByteSet
	hasSet, out := false, es[:0]
	for _, e := range es {
		switch {
		case e == 0:
		case e == all:
			return all
		case s.nodes[e].kind == kBytes:
			set, hasSet = set.Union(s.sets[s.nodes[e].x]), true
		default:
			out = append(out, e)
		}
	}
	if hasSet {
		out = append(out, s.Bytes(set))
	}
	out = s.joinRepeats(s.factor(out))
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > 1 && out[0] == 1 && slices.ContainsFunc(out[1:], func(e Expr) bool { return s.nodes[e].nullable }) {
		out = out[1:]
	}
	switch len(out) {
	case 0:
		return 0
	case 1:
		return out[0]
	}
	return s.nary(kOr, out)
}

// factor joins alternatives of equal first parts: a·x | a·y becomes a·(x|y), and a | a·y becomes a·(ε|y).
func (s *Set) factor(es []Expr) []Expr {
	if len(es) < 2 {
		return es
	}
	head := func(e Expr) Expr {
		if n := &s.nodes[e]; n.kind == kConcat {
			return n.a
		}
		return e
	}
	slices.SortFunc(es, func(a, b Expr) int {
		if c := int(head(a)) - int(head(b)); c != 0 {
			return c
		}
		return int(a) - int(b)
	})
	es = slices.Compact(es)
	out := es[:0]
	for i := 0; i < len(es); {
		h, j := head(es[i]), i+1
		for j < len(es) && head(es[j]) == h {
			j++
		}
		if j == i+1 || h == 1 {
			out = append(out, es[i])
			i++
			continue
		}
		tails := make([]Expr, 0, j-i)
		for _, e := range es[i:j] {
			if n := &s.nodes[e]; n.kind == kConcat {
				tails = append(tails, n.b)
			} else {
				tails = append(tails, 1)
			}
		}
		out = append(out, s.concat(h, s.or(tails)))
		i = j
	}
	return out
}

// joinRepeats joins alternatives that differ in one count: x{2,5}y | x{3,8}y becomes x{2,8}y. Of a pattern that can be
// read in many ways, such as a number of words, one alternative stays instead of one for each count.
func (s *Set) joinRepeats(es []Expr) []Expr {
	type counted struct {
		body, rest Expr
		min, max   int32 // max < 0 has no bound
	}
	var few [8]counted
	all, out := few[:0], es[:0]
	for _, e := range es {
		n, rest := &s.nodes[e], Expr(1)
		if n.kind == kConcat && s.nodes[n.a].kind == kRepeat {
			n, rest = &s.nodes[n.a], n.b
		}
		if n.kind == kRepeat {
			all = append(all, counted{n.a, rest, n.x, n.y})
		} else {
			out = append(out, e)
		}
	}
	if len(all) > 1 {
		slices.SortFunc(all, func(a, b counted) int {
			return cmp.Or(cmp.Compare(a.body, b.body), cmp.Compare(a.rest, b.rest), cmp.Compare(a.min, b.min))
		})
	}
	for i := 0; i < len(all); {
		c := all[i]
		for i++; i < len(all) && all[i].body == c.body && all[i].rest == c.rest &&
			(c.max < 0 || all[i].min <= c.max+1); i++ {
			if all[i].max < 0 || c.max >= 0 && all[i].max > c.max {
				c.max = all[i].max
			}
		}
		out = append(out, s.concat(s.Repeat(c.body, int(c.min), int(c.max)), c.rest))
	}
	return out
}

// and is And; it may change es.
func (s *Set) and(es []Expr) Expr {
	es = s.flatten(kAnd, es)
	all := s.all()
	set, hasSet, out := ByteRange(0, 255), false, es[:0]
	for _, e := range es {
		switch {
		case e == 0:
			return 0
		case e == all:
		case s.nodes[e].kind == kBytes:
			set, hasSet = set.Intersect(s.sets[s.nodes[e].x]), true
		default:
			out = append(out, e)
		}
	}
	if hasSet {
		if set.Empty() {
			return 0
		}
		out = append(out, s.Bytes(set))
	}
	if out = s.countRunes(out); slices.Contains(out, 0) {
		return 0
	}
	slices.Sort(out)
	out = slices.Compact(out)
	switch len(out) {
	case 0:
		return all
	case 1:
		return out[0]
	}
	if out[0] == 1 { // ε & …: Empty has the smallest index of all but Nothing
		for _, e := range out[1:] {
			if !s.nodes[e].nullable {
				return 0
			}
		}
		return 1
	}
	return s.nary(kAnd, out)
}

// countRunes joins, in an intersection, a repetition of any code point with one of some: their counts are of the same
// code points, and one repetition is fewer states than two side by side.
func (s *Set) countRunes(es []Expr) []Expr {
	for i, x := range es {
		nx := s.nodes[x]
		if nx.kind != kRepeat || nx.a != s.anyRune || s.anyRune == 0 {
			continue
		}
		for j, y := range es {
			ny := s.nodes[y]
			if i == j || ny.kind != kRepeat || !s.runes[ny.a] {
				continue
			}
			most := int(nx.y)
			if most < 0 || ny.y >= 0 && ny.y < nx.y {
				most = int(ny.y)
			}
			es[j] = s.Repeat(ny.a, int(max(nx.x, ny.x)), most)
			return s.countRunes(slices.Delete(es, i, i+1))
		}
	}
	return es
}

func (s *Set) flatten(k kind, es []Expr) []Expr {
	if !slices.ContainsFunc(es, func(e Expr) bool { return s.nodes[e].kind == k }) {
		return es
	}
	var out []Expr
	for _, e := range es {
		if n := s.nodes[e]; n.kind == k {
			out = append(out, s.args[n.x:n.x+n.y]...)
		} else {
			out = append(out, e)
		}
	}
	return out
}

func (s *Set) nary(k kind, es []Expr) Expr {
	s.key = s.key[:0]
	s.derived += len(es)
	nullable, search := k == kAnd, k == kAnd
	for _, e := range es {
		s.key = append(s.key, byte(e), byte(e>>8), byte(e>>16), byte(e>>24))
		n := &s.nodes[e]
		search = search || n.search
		if k == kAnd {
			nullable = nullable && n.nullable
		} else {
			nullable = nullable || n.nullable
		}
	}
	at, ok := s.byArgs[string(s.key)]
	if !ok {
		if len(s.args) > 64*s.limits.Expressions {
			return s.fail("more than %d alternatives in all (64 × Limits.Expressions)", 64*s.limits.Expressions)
		}
		at = [2]int32{int32(len(s.args)), int32(len(es))}
		s.args = append(s.args, es...)
		s.byArgs[string(s.key)] = at
	}
	return s.intern(node{kind: k, x: at[0], y: at[1], nullable: nullable, search: search})
}

func (s *Set) setFirst(n *node) {
	switch n.kind {
	case kBytes:
		n.first = s.sets[n.x]
	case kConcat:
		n.first = s.nodes[n.a].first
		if s.nodes[n.a].nullable {
			n.first = n.first.Union(s.nodes[n.b].first)
		}
	case kRepeat:
		n.first = s.nodes[n.a].first
	case kNot:
		n.first = ByteRange(0, 255)
	case kOr:
		for _, a := range s.args[n.x : n.x+n.y] {
			n.first = n.first.Union(s.nodes[a].first)
		}
	case kAnd:
		n.first = ByteRange(0, 255)
		for _, a := range s.args[n.x : n.x+n.y] {
			n.first = n.first.Intersect(s.nodes[a].first)
		}
	}
}
