package regex

import (
	"cmp"
	"fmt"
	"slices"
)

// kind is the operator of an expression.
type kind uint8

const (
	kNothing  kind = iota // no text
	kEmpty                // the empty text
	kBytes                // one byte of sets[x]
	kConcat               // a then b; a is never a Concat
	kOr                   // any of args[x:x+y], sorted
	kAnd                  // all of args[x:x+y], sorted
	kNot                  // every text of bytes that is not in a
	kRepeat               // a, from x to y times; y < 0 has no bound
	kMultiple             // what is left of a multiple: multiples[x]
	kQuote                // JSON string forms of a: quote.go; x is the mode, y the hex digits read
)

// node is one expression. Invariant: nodes are never changed once they are in the arena, liveness and row aside.
type node struct {
	kind     kind
	nullable bool
	// search says that emptiness cannot be told from the form: And, Not, Multiple or Quote is part of it.
	search bool
	live   liveness
	first  ByteSet // a superset of the bytes its texts begin with
	a, b   Expr
	x, y   int32
}

type nodeKey struct {
	kind kind
	a, b Expr
	x, y int32
}

// Set is an arena of expressions. Limits are sticky: once one is exceeded every constructor returns Nothing and Err
// says why.
type Set struct {
	limits Limits
	nodes  []node
	args   []Expr
	sets   []ByteSet
	mults  []multiple
	index  map[nodeKey]Expr
	bySet  map[ByteSet]int32
	byArgs map[string][2]int32
	byMult map[multiple]int32
	key    []byte // scratch of byArgs

	rows    []*row // transitions by Expr, nil until asked for
	cells   int    // transitions in rows
	part    partition
	seen    []uint32 // by Expr: the epoch of its last visit by split
	epoch   uint32
	classes map[[256]byte]*[256]byte
	absorbs map[memoKey]int
	covered map[memoKey]bool
	err     error
	stop    func() bool // nil: nothing is broken off
	until   int         // 0 or what Work may come to: see WorkUntil

	runes map[Expr]bool // expressions of one code point
	spans map[Expr]span // memo of span

	saturated   map[Expr]Expr // Saturate's memo, for saturatedTo bytes
	saturatedTo int

	derived  int // nodes that derive saw and parts that nary joined, ever
	searched int // those of them that questions about emptiness asked for

	every            Expr // every text of bytes
	anyRune, anyText Expr // 0 until first used
}

// NewSet returns an empty Set.
func NewSet(l Limits) *Set {
	for _, f := range []struct {
		field *int
		def   int
	}{{&l.Expressions, defaultExpressions}, {&l.PatternBytes, defaultPatternBytes}, {&l.Depth, defaultDepth},
		{&l.Steps, defaultSteps}, {&l.Work, defaultWork}} {
		if *f.field <= 0 {
			*f.field = f.def
		}
	}
	s := &Set{limits: l, index: map[nodeKey]Expr{}, bySet: map[ByteSet]int32{}, byArgs: map[string][2]int32{},
		byMult: map[multiple]int32{}, classes: map[[256]byte]*[256]byte{}, absorbs: map[memoKey]int{},
		covered: map[memoKey]bool{}}
	s.intern(node{kind: kNothing, live: dead})
	s.intern(node{kind: kEmpty, nullable: true, live: alive})
	s.every = s.Repeat(s.Bytes(ByteRange(0, 255)), 0, Unbounded)
	return s
}

// Err returns the first limit that was exceeded, or nil. It wraps ErrLimit.
func (s *Set) Err() error { return s.err }

// stopEvery is the number of new expressions after which StopWhen's function is asked; it is also asked at each row.
const stopEvery = 256

// StopWhen has every question and constructor fail with ErrStopped once stop, which is asked now and then, reports
// true; nil ends that.
func (s *Set) StopWhen(stop func() bool) { s.stop = stop }

// stopped reports whether what is asked is to be broken off.
func (s *Set) stopped() bool {
	if s.stop == nil || s.err != nil || !s.stop() {
		return false
	}
	s.err = ErrStopped
	return true
}

// Len returns the number of expressions in the Set.
func (s *Set) Len() int { return len(s.nodes) }

func (s *Set) fail(format string, a ...any) Expr {
	if s.err == nil {
		s.err = fmt.Errorf("regex: "+format+": %w", append(a, ErrLimit)...)
	}
	return 0
}

func (s *Set) intern(n node) Expr {
	k := nodeKey{n.kind, n.a, n.b, n.x, n.y}
	if e, ok := s.index[k]; ok {
		return e
	}
	if s.err != nil || len(s.nodes)%stopEvery == 0 && s.stopped() {
		return 0
	}
	if len(s.nodes) >= s.limits.Expressions {
		return s.fail("more than %d expressions (Limits.Expressions)", s.limits.Expressions)
	}
	if n.live == unknown && !n.search {
		n.live = alive // without And, Not, Multiple and Quote only Nothing is empty, and constructors fold it away
	}
	s.setFirst(&n)
	e := Expr(len(s.nodes))
	s.nodes = append(s.nodes, n)
	s.index[k] = e
	return e
}

// Work returns a count of the steps that derivatives have taken since the Set was made: what they cost, in no unit of
// time.
func (s *Set) Work() int { return s.derived }

// WorkUntil makes questions about emptiness fail with ErrWork when Work exceeds most; 0 ends that. An error stays until
// Forget.
func (s *Set) WorkUntil(most int) { s.until = most }

// Nothing returns the expression that matches no text.
func (s *Set) Nothing() Expr { return 0 }

// Empty returns the expression that matches the empty text alone.
func (s *Set) Empty() Expr { return 1 }

// Bytes returns the expression of one byte of set.
func (s *Set) Bytes(set ByteSet) Expr {
	if set.Empty() {
		return 0
	}
	i, ok := s.bySet[set]
	if !ok {
		i = int32(len(s.sets))
		s.sets = append(s.sets, set)
		s.bySet[set] = i
	}
	return s.intern(node{kind: kBytes, x: i})
}

// Byte returns the expression of one byte.
func (s *Set) Byte(b byte) Expr {
	var set ByteSet
	set.Add(b)
	return s.Bytes(set)
}

// Literal returns the expression of exactly text.
func (s *Set) Literal(text string) Expr {
	e := s.Empty()
	for i := len(text) - 1; i >= 0; i-- {
		e = s.concat(s.Byte(text[i]), e)
	}
	return e
}

// Literals returns the expression of any of texts, as one prefix tree.
func (s *Set) Literals(texts []string) Expr {
	es := make([]Expr, len(texts))
	for i, t := range texts {
		es[i] = s.Literal(t)
	}
	return s.Or(es...)
}

// Concat returns the expression of es one after another; of none it is Empty.
func (s *Set) Concat(es ...Expr) Expr {
	out := s.Empty()
	for i := len(es) - 1; i >= 0; i-- {
		out = s.concat(es[i], out)
	}
	return out
}

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

// Optional returns e or the empty text.
func (s *Set) Optional(e Expr) Expr { return s.Or(s.Empty(), e) }

// Star returns e any number of times.
func (s *Set) Star(e Expr) Expr { return s.Repeat(e, 0, Unbounded) }

// Repeat returns e from min to max times; a negative max has no bound. It is not expanded: counts of millions cost as
// much as small ones until text is matched. A max below min gives Nothing.
func (s *Set) Repeat(e Expr, min, max int) Expr {
	const most = 1<<31 - 1
	if min < 0 {
		min = 0
	}
	if max < 0 {
		max = Unbounded
	}
	if min > most || max > most {
		return s.fail("a repetition of more than %d", most)
	}
	switch {
	case max >= 0 && max < min:
		return 0
	case max == 0 || e == 1:
		return 1
	case e == 0:
		if min == 0 {
			return 1
		}
		return 0
	case min == 1 && max == 1:
		return e
	}
	n := s.nodes[e]
	if n.nullable {
		min = 0 // fewer repetitions are more with empty ones among them
	}
	if n.kind == kRepeat && n.x == 0 && n.y < 0 {
		return e // (x*){m,n} = x*
	}
	return s.intern(node{kind: kRepeat, a: e, x: int32(min), y: int32(max), nullable: min == 0, search: n.search})
}

// Not returns every text of bytes, UTF-8 or not, that e does not match.
func (s *Set) Not(e Expr) Expr {
	if e == 0 {
		return s.all()
	}
	if e == s.all() {
		return 0
	}
	n := s.nodes[e]
	if n.kind == kNot {
		return n.a
	}
	return s.intern(node{kind: kNot, a: e, nullable: !n.nullable, search: true})
}

// all is every text of bytes.
func (s *Set) all() Expr { return s.every }

// Minus returns the texts of a that b does not match.
func (s *Set) Minus(a, b Expr) Expr { return s.And(a, s.Not(b)) }

// Or returns the texts that any of es matches; of none it is Nothing. Alternatives that begin alike are factored, so
// literals become a prefix tree.
func (s *Set) Or(es ...Expr) Expr { return s.or(slices.Clone(es)) }

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

// And returns the texts that all of es match; of none it is every text of bytes.
func (s *Set) And(es ...Expr) Expr { return s.and(slices.Clone(es)) }

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
