package grammar

import (
	"cmp"
	"github.com/uma-serve/uma-serve/grammar/regex"
	"slices"
)

// contained returns the slices all of whose tokens can be read inside e, a bit a slice.
func (a *automaton) contained(e regex.Expr) uint16 {
	if in, ok := a.inside[e]; ok {
		return in
	}
	var in uint16
	var chars [regex.NumClasses]int
	for c := range regex.NumClasses {
		chars[c] = a.set.Absorbs(e, c)
	}
	chars[regex.Word] = max(chars[regex.Word], chars[regex.Plain])
	for i := range a.v.slices {
		if s := &a.v.slices[i]; s.longest <= chars[s.class] {
			in |= 1 << i
		}
	}
	a.inside[e] = in
	return in
}

// mask returns the tokens that may come in s.
func (a *automaton) mask(s *state) []uint32 {
	if s.mask != nil {
		return s.mask
	}
	c := a.unread(s)
	if c == s {
		c = a.saturated(s)
	}
	if c != s {
		m := a.mask(c)
		if a.err == nil {
			s.mask = m
		}
		return m
	}
	a.begun()
	if a.masks++; a.masks > max(1, a.g.limits.MaskBytes/(4*a.v.words+1)) {
		a.masks = 1
		for _, old := range a.states {
			old.mask = nil
		}
	}
	m := make([]uint32, a.v.words)
	var contained uint16
	for _, t := range s.threads {
		if contained |= a.contained(t.expr); a.over() {
			return m
		}
	}
	if s.end {
		for _, e := range a.v.ends {
			set(m, e)
		}
	}
	if contained == 0 {
		a.walkTrie(&a.v.whole, s, m)
	} else {
		for w, bits := range a.v.union(contained) {
			m[w] |= bits
		}
		for i := range a.v.slices {
			if contained>>i&1 == 0 {
				a.walkTrie(&a.v.slices[i].trie, s, m)
			}
		}
		a.walkTrie(&a.v.rest, s, m)
	}
	if a.check(); a.err != nil {
		clear(m)
		return m
	}
	s.mask = m
	return m
}

// saturated returns a state with the mask of s in which no count is higher than the longest token can tell.
func (a *automaton) saturated(s *state) *state {
	var few [4]thread
	if len(s.threads) > len(few) {
		return s
	}
	out, changed := few[:0], false
	for _, t := range s.threads {
		e := a.set.Saturate(t.expr, a.v.longest)
		changed = changed || e != t.expr
		for _, o := range out {
			if o.expr == e {
				return s // two continuations of one expression: their union would be another state
			}
		}
		out = append(out, thread{e, t.k})
	}
	if !changed {
		return s
	}
	slices.SortFunc(out, func(x, y thread) int { return cmp.Compare(x.expr, y.expr) })
	return a.intern(out, s.end)
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
