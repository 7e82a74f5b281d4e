package regex

import "fmt"

// liveness says whether an expression matches any text.
type liveness uint8

const (
	unknown liveness = iota
	alive
	dead
)

// row is the transitions of one state. Bytes of one class lead to the same state.
type row struct {
	class  *[256]byte
	next   []Expr // by class
	pruned bool   // states that match nothing are Nothing
}

// Nullable reports whether e matches the empty text.
func (s *Set) Nullable(e Expr) bool { return s.nodes[e].nullable }

// Derive returns the texts that may follow b in those of e; Nothing when b begins none, so a text can be completed as
// long as no derivative is Nothing.
func (s *Set) Derive(e Expr, b byte) Expr {
	n := &s.nodes[e]
	if !n.first.Has(b) {
		return 0
	}
	if n.kind == kConcat && s.nodes[n.a].kind == kBytes && s.nodes[n.b].live == alive {
		return n.b // a literal needs no row
	}
	r := s.row(e)
	return r.next[r.class[b]]
}

// DeriveAlone is Derive for an expression of which no other derivative is likely to be asked: it computes that one.
func (s *Set) DeriveAlone(e Expr, b byte) Expr {
	if int(e) < len(s.rows) && s.rows[e] != nil || !s.nodes[e].first.Has(b) {
		return s.Derive(e, b)
	}
	if d := s.derive(e, b); s.alive(d) {
		return d
	}
	return 0
}

// Row returns every derivative of e: byte b leads to next[class[b]]. Both are shared and must not be written.
func (s *Set) Row(e Expr) (class *[256]byte, next []Expr) {
	r := s.row(e)
	return r.class, r.next
}

// First returns a superset of the bytes that texts of e begin with.
func (s *Set) First(e Expr) ByteSet { return s.nodes[e].first }

// Match reports whether e matches text as a whole.
func (s *Set) Match(e Expr, text []byte) bool {
	for _, b := range text {
		if e = s.Derive(e, b); e == 0 {
			return false
		}
	}
	return s.nodes[e].nullable
}

// IsEmpty reports whether e matches no text. It explores the automaton and may exceed Limits.Steps: then the error
// wraps ErrLimit.
func (s *Set) IsEmpty(e Expr) (bool, error) {
	live := s.alive(e)
	return !live, s.err
}

// Contains reports whether every text of b is one of a. Errors as IsEmpty's.
func (s *Set) Contains(a, b Expr) (bool, error) { return s.IsEmpty(s.Minus(b, a)) }

// row returns e's transitions with dead states folded into Nothing.
func (s *Set) row(e Expr) *row {
	r := s.rawRow(e)
	if !r.pruned {
		for i, t := range r.next {
			if !s.alive(t) {
				r.next[i] = 0
			}
		}
		r.pruned = true
	}
	return r
}

// rawRow returns e's transitions, in which states that match nothing may still be.
func (s *Set) rawRow(e Expr) *row {
	if int(e) < len(s.rows) && s.rows[e] != nil {
		return s.rows[e]
	}
	s.stopped()
	switch n := s.nodes[e]; n.kind { // the rows of parts that come again in other expressions
	case kAnd:
		for i := n.x; i < n.x+n.y; i++ {
			s.rawRow(s.args[i])
		}
	case kQuote:
		s.rawRow(n.a)
	case kConcat:
		if k := s.nodes[n.a].kind; k == kQuote || k == kAnd {
			s.rawRow(n.a)
		}
	}
	s.part.reset()
	s.epoch++
	s.split(e)
	reps := s.part.representatives()
	r := &row{class: s.shareClasses(), next: make([]Expr, len(reps))}
	for i, b := range reps {
		r.next[i] = s.derive(e, b)
	}
	if s.cells += len(reps); s.cells > 16*s.limits.Expressions {
		clear(s.rows) // a cache: rows are derived again on demand
		s.cells = len(reps)
	}
	for len(s.rows) < len(s.nodes) {
		s.rows = append(s.rows, nil)
	}
	s.rows[e] = r
	return r
}

// shareClasses returns the partition of s.part as a map that states with the same one share.
func (s *Set) shareClasses() *[256]byte {
	if c, ok := s.classes[s.part.class]; ok {
		return c
	}
	if len(s.classes) >= 4096 {
		clear(s.classes)
	}
	c := s.part.class
	s.classes[c] = &c
	return &c
}

// split refines s.part so that bytes of one class have equal derivatives of e.
func (s *Set) split(e Expr) {
	for int(e) >= len(s.seen) {
		s.seen = append(s.seen, make([]uint32, max(64, len(s.nodes)-len(s.seen)))...)
	}
	if s.seen[e] == s.epoch {
		return
	}
	s.seen[e] = s.epoch
	switch n := s.nodes[e]; n.kind {
	case kBytes:
		s.part.split(s.sets[n.x])
	case kConcat:
		s.split(n.a)
		if s.nodes[n.a].nullable {
			s.split(n.b)
		}
	case kOr, kAnd:
		for _, a := range s.args[n.x : n.x+n.y] {
			s.split(a)
		}
	case kNot, kRepeat:
		s.split(n.a)
	case kMultiple:
		s.part.each(n.first)
	case kQuote:
		if n.x == quoteText {
			s.split(n.a)
			s.part.split(quoteRaw)
			s.part.split(ByteOf(`\`))
		} else {
			s.part.each(n.first)
		}
	}
}

// derive returns the derivative of e by b, without a look at whether it matches anything.
func (s *Set) derive(e Expr, b byte) Expr {
	s.derived++
	if int(e) < len(s.rows) && s.rows[e] != nil {
		r := s.rows[e]
		return r.next[r.class[b]]
	}
	n := s.nodes[e]
	if !n.first.Has(b) {
		return 0
	}
	switch n.kind {
	case kBytes:
		return 1
	case kConcat:
		d := s.concat(s.derive(n.a, b), n.b)
		if s.nodes[n.a].nullable {
			if o := s.derive(n.b, b); o != 0 {
				d = s.or([]Expr{d, o})
			}
		}
		return d
	case kOr:
		var few [8]Expr
		ds := few[:0]
		for i := n.x; i < n.x+n.y; i++ {
			if d := s.derive(s.args[i], b); d != 0 {
				ds = append(ds, d)
			}
		}
		if len(ds) == 1 {
			return ds[0]
		}
		return s.or(ds)
	case kAnd:
		ds := make([]Expr, 0, n.y)
		for i := n.x; i < n.x+n.y; i++ {
			d := s.derive(s.args[i], b)
			if d == 0 {
				return 0
			}
			ds = append(ds, d)
		}
		return s.and(ds)
	case kNot:
		return s.Not(s.derive(n.a, b))
	case kRepeat:
		most := Unbounded
		if n.y >= 0 {
			most = int(n.y) - 1
		}
		return s.concat(s.derive(n.a, b), s.Repeat(n.a, max(int(n.x)-1, 0), most))
	case kMultiple:
		if m, ok := s.mults[n.x].derive(b); ok {
			return s.multiple(m)
		}
		return 0
	case kQuote:
		return s.deriveQuote(n, b)
	}
	return 0
}

// alive reports whether e matches any text. Where the form does not tell, it searches the automaton for an accepting
// state; every state on the way to one is alive, and when there is none every state seen is dead.
func (s *Set) alive(e Expr) bool {
	if l := s.told(e); l != unknown {
		s.nodes[e].live = l
		return l == alive
	}
	type visit struct {
		e      Expr
		parent int32
	}
	visits := []visit{{e, -1}}
	seen := map[Expr]bool{e: true}
	todo := []int32{0}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		before := s.derived
		r := s.rawRow(visits[at].e)
		if s.searched += s.derived - before; s.searched > s.limits.Work && s.err == nil {
			s.err = fmt.Errorf("regex: whether intersections or complements are empty takes more than %d steps "+
				"(Limits.Work): %w", s.limits.Work, ErrLimit)
		}
		if s.until > 0 && s.derived > s.until && s.err == nil {
			s.err = ErrWork
		}
		for _, t := range r.next {
			if seen[t] || s.err != nil {
				continue
			}
			switch s.told(t) {
			case alive:
				s.nodes[t].live = alive
				for i := at; i >= 0; i = visits[i].parent {
					s.nodes[visits[i].e].live = alive
				}
				return true
			case unknown:
				seen[t] = true
				visits = append(visits, visit{t, at})
				todo = append(todo, int32(len(visits)-1))
			}
		}
		if len(visits) > s.limits.Steps && s.err == nil {
			s.err = fmt.Errorf("regex: whether an intersection or complement is empty is not known after %d states "+
				"(Limits.Steps): %w",
				s.limits.Steps, ErrLimit)
		}
		if s.err != nil {
			return false
		}
	}
	for _, v := range visits {
		s.nodes[v.e].live = dead
	}
	return false
}

// told returns the liveness of e as far as its kind and the liveness of its parts decide it, without a search.
func (s *Set) told(e Expr) liveness {
	n := &s.nodes[e]
	if n.live != unknown {
		return n.live
	}
	if n.nullable {
		return alive
	}
	switch n.kind {
	case kConcat:
		a, b := s.told(n.a), s.told(n.b)
		if a == dead || b == dead {
			return dead
		}
		if a == alive && b == alive {
			return alive
		}
	case kOr:
		all := dead
		for _, a := range s.args[n.x : n.x+n.y] {
			switch s.told(a) {
			case alive:
				return alive
			case unknown:
				all = unknown
			}
		}
		return all
	case kAnd:
		for _, a := range s.args[n.x : n.x+n.y] {
			if s.told(a) == dead {
				return dead
			}
		}
		if other, most := s.bounded(e); most >= 0 {
			if sp := s.span(other); sp.ends >= 0 && sp.least <= most {
				return s.told(other)
			}
		}
	case kRepeat:
		return s.told(n.a)
	case kQuote:
		return s.told(n.a) // in an escape only those modes exist that e has a character for
	}
	return unknown
}
