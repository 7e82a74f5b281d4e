package grammar

import (
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// exprTable is what is known of an expression for masks.
type exprTable struct {
	contains uint8 // the slices all of whose tokens stay inside the expression, a bit a slice
	tried    bool  // contains is known

	// after are the expressions that one character of plain text can lead to; nil when some character cannot
	// be read.
	after      []regex.Expr
	afterKnown bool
}

// table returns what is known of e.
func (a *automaton) table(e regex.Expr) *exprTable {
	t, ok := a.tables[e]
	if !ok {
		t = &exprTable{}
		a.tables[e] = t
	}
	return t
}

// contained returns the slices all of whose tokens can be read inside e, a bit a slice.
func (a *automaton) contained(e regex.Expr) uint8 {
	t := a.table(e)
	if t.tried {
		return t.contains
	}
	t.tried = true
	if a.set.First(e).Intersect(plainASCII) != plainASCII {
		return 0
	}
	level, seen := []regex.Expr{e}, map[regex.Expr]bool{e: true}
	chars := 0
	for ; len(level) > 0 && chars < maxLevels; chars++ {
		var next []regex.Expr
		for _, x := range level {
			after := a.afterPlain(x)
			if after == nil {
				for i := range a.v.slices {
					if a.v.slices[i].longest <= chars {
						t.contains |= 1 << i
					}
				}
				return t.contains
			}
			for _, y := range after {
				if !seen[y] {
					seen[y] = true
					next = append(next, y)
				}
			}
		}
		level = next
	}
	for i := range a.v.slices {
		if len(level) == 0 || a.v.slices[i].longest <= chars {
			t.contains |= 1 << i
		}
	}
	return t.contains
}

// maxLevels is how many characters contained looks ahead for a slice; where the expressions have not come back by then it
// takes the slices that are shorter.
const maxLevels = 16

// afterPlain returns the expressions that one character of plain text can lead to from e; nil when some cannot be read.
func (a *automaton) afterPlain(e regex.Expr) []regex.Expr {
	t := a.table(e)
	if t.afterKnown {
		return t.after
	}
	t.afterKnown = true
	type place struct {
		e regex.Expr
		u utf8State
	}
	todo := []place{{e, 0}}
	for i := 0; i < len(todo); i++ {
		p := todo[i]
		class, next := a.set.Row(p.e)
		var last place
		for b := p.u.lowest(); b <= p.u.highest(); b++ {
			u, ok := p.u.next(byte(b))
			if !ok {
				continue
			}
			q := place{next[class[b]], u}
			if q == last {
				continue
			}
			last = q
			if q.e == 0 {
				t.after = nil
				return nil
			}
			if u == 0 {
				if !slices.Contains(t.after, q.e) {
					t.after = append(t.after, q.e)
				}
			} else if !slices.Contains(todo, q) {
				todo = append(todo, q)
			}
		}
	}
	return t.after
}

// mask returns the tokens that may come in s.
func (a *automaton) mask(s *state) []uint32 {
	if s.mask != nil {
		return s.mask
	}
	m := make([]uint32, a.v.words)
	if s.end {
		for _, e := range a.v.ends {
			set(m, e)
		}
	}
	var contained uint8
	for _, t := range s.threads {
		contained |= a.contained(t.expr)
	}
	if contained == 0 {
		a.walkTrie(&a.v.whole, s, m)
	} else {
		for i := range a.v.slices {
			if contained>>i&1 != 0 {
				for w, bits := range a.v.slices[i].mask {
					m[w] |= bits
				}
			} else {
				a.walkTrie(&a.v.slices[i].trie, s, m)
			}
		}
		a.walkTrie(&a.v.rest, s, m)
	}
	if a.err != nil {
		clear(m)
		return m
	}
	s.mask = m
	return m
}

// walkTrie marks the tokens of t that may come in s.
func (a *automaton) walkTrie(t *trie, s *state, m []uint32) {
	var first regex.ByteSet
	for _, th := range s.threads {
		first = first.Union(a.set.First(th.expr))
	}
	if len(a.walk) <= t.depth {
		a.walk = make([]*state, t.depth+1)
	}
	for b := range 256 {
		at := t.root[b]
		if at < 0 || !first.Has(byte(b)) {
			continue
		}
		a.walk[0] = s
		for end := t.nodes[at].skip; at < end; {
			n := &t.nodes[at]
			next := a.step(a.walk[n.depth-1], n.byte)
			if next == a.dead {
				at = n.skip
				continue
			}
			if n.token != -1 {
				t.mark(m, n)
			}
			a.walk[n.depth] = next
			at++
		}
	}
}

// utf8State is where in the encoding of a character a plain text is: 0 between two.
type utf8State uint8

const (
	utf8One   utf8State = iota + 1 // one more byte
	utf8Two                        // two more
	utf8Three                      // three more
	utf8E0                         // two more, the first at least A0
	utf8ED                         // two more, the first at most 9F
	utf8F0                         // three more, the first at least 90
	utf8F4                         // three more, the first at most 8F
)

// next returns the state after b; false when plain text has no such byte there. The table is that of RFC 3629.
func (u utf8State) next(b byte) (utf8State, bool) {
	if u == 0 {
		switch {
		case b < 0x80:
			return 0, plainByte(b)
		case b < 0xc2 || b > 0xf4:
			return 0, false
		case b < 0xe0:
			return utf8One, true
		case b == 0xe0:
			return utf8E0, true
		case b == 0xed:
			return utf8ED, true
		case b < 0xf0:
			return utf8Two, true
		case b == 0xf0:
			return utf8F0, true
		case b == 0xf4:
			return utf8F4, true
		}
		return utf8Three, true
	}
	lo, hi := byte(0x80), byte(0xbf)
	to := utf8State(0)
	switch u {
	case utf8Two:
		to = utf8One
	case utf8Three:
		to = utf8Two
	case utf8E0:
		lo, to = 0xa0, utf8One
	case utf8ED:
		hi, to = 0x9f, utf8One
	case utf8F0:
		lo, to = 0x90, utf8Two
	case utf8F4:
		hi, to = 0x8f, utf8Two
	}
	return to, lo <= b && b <= hi
}

// lowest and highest bound the bytes that next takes.
func (u utf8State) lowest() int {
	if u == 0 {
		return 0x20
	}
	return 0x80
}

func (u utf8State) highest() int {
	if u == 0 {
		return 0xf4
	}
	return 0xbf
}

// plainASCII are the bytes of plain text that are a character.
var plainASCII = func() regex.ByteSet {
	var s regex.ByteSet
	for b := range 0x80 {
		if plainByte(byte(b)) {
			s.Add(byte(b))
		}
	}
	return s
}()
