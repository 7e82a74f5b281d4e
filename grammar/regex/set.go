package regex

import (
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
	kMultiple             // the rest of a multiple: multiples[x]
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

// stopped reports whether the running question is to be given up.
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

// all returns every text of bytes.
func (s *Set) all() Expr { return s.every }

// Minus returns the texts of a that b does not match.
func (s *Set) Minus(a, b Expr) Expr { return s.And(a, s.Not(b)) }

// Or returns the texts that any of es matches; of none it is Nothing. Alternatives that begin alike are factored, so
// literals become a prefix tree.
func (s *Set) Or(es ...Expr) Expr { return s.or(slices.Clone(es)) }

// And returns the texts that all of es match; of none it is every text of bytes.
func (s *Set) And(es ...Expr) Expr { return s.and(slices.Clone(es)) }
