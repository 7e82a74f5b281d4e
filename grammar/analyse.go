package grammar

import (
	"fmt"
	"slices"
)

// analyser finds which rules match nothing and which match the empty text, and takes both out: the rest of a grammar
// reaches the end of a text from every state, and no repetition goes round without a byte.
type analyser struct {
	*simplifier
	productive []bool      // by rule
	nullable   []bool      // by rule
	some       map[int]int // rule → the rule of its texts that are not empty
	asked      int         // phrases that were asked whether they match nothing, or the empty text
	added      int         // phrases of the sequences that nonEmpty made
}

func (a *analyser) run() {
	for rules := -1; rules != len(a.body); {
		rules = len(a.body)
		a.fixpoint()
		for r := range rules {
			a.body[r] = a.prune(a.body[r]) // may add rules: those of nonEmpty
		}
	}
}

// fixpoint computes productive and nullable.
func (a *analyser) fixpoint() {
	a.productive, a.nullable = make([]bool, len(a.body)), make([]bool, len(a.body))
	for changed := true; changed; {
		changed = false
		for r, body := range slices.Backward(a.body) { // a rule mostly uses those behind it
			if !a.productive[r] && a.isProductive(body) {
				a.productive[r], changed = true, true
			}
			if !a.nullable[r] && a.isNullable(body) {
				a.nullable[r], changed = true, true
			}
		}
	}
}

// ask counts one phrase, and reports whether there may be more: rules that use each other in the worst order are asked
// as often as there are rules.
func (a *analyser) ask() bool {
	if a.asked++; a.asked > asksPerNode*a.b.limits.Nodes {
		a.fail(fmt.Errorf("%w: which rules match nothing takes more than %d steps to tell (%d × Limits.Nodes)",
			ErrLimit, asksPerNode*a.b.limits.Nodes, asksPerNode))
		return false
	}
	if a.asked%stopEvery == 0 && a.b.Stopped() {
		return false
	}
	return true
}

const (
	asksPerNode = 100
	stopEvery   = 1024 // questions between two of Limits.Stop
)

func (a *analyser) isProductive(p *phrase) bool {
	if p == nil || !a.ask() {
		return false
	}
	switch p.kind {
	case nTerminal:
		return true
	case nSeq:
		for _, k := range p.children {
			if !a.isProductive(k) {
				return false
			}
		}
		return true
	case nAlt:
		for _, k := range p.children {
			if a.isProductive(k) {
				return true
			}
		}
		return false
	case nRepeat:
		return p.min == 0 || a.isProductive(p.children[0])
	case nUnordered:
		return a.reorder(p) != nil
	}
	return a.productive[p.rule]
}

// reorder returns an Unordered without its members that match nothing.
func (a *analyser) reorder(p *phrase) *phrase {
	children := make([]*phrase, len(p.children))
	for i, k := range p.children {
		if a.isProductive(k) {
			children[i] = k
		}
	}
	return a.unordered(children, &node{min: p.min, max: p.max, members: p.members})
}

func (a *analyser) isNullable(p *phrase) bool {
	if p == nil || !a.ask() {
		return false
	}
	switch p.kind {
	case nTerminal:
		return a.set.Nullable(p.expr)
	case nSeq:
		for _, k := range p.children {
			if !a.isNullable(k) {
				return false
			}
		}
		return true
	case nAlt:
		for _, k := range p.children {
			if a.isNullable(k) {
				return true
			}
		}
		return false
	case nRepeat:
		return p.min == 0 || a.isNullable(p.children[0])
	case nUnordered:
		for _, m := range p.members {
			if m.Min > 0 {
				return false
			}
		}
		return p.min == 0
	}
	return a.nullable[p.rule]
}

// prune leaves out the alternatives that match nothing, and makes the bodies of repetitions and the members of
// Unordered such that they do not match the empty text.
func (a *analyser) prune(p *phrase) *phrase {
	if p == nil || !a.isProductive(p) {
		return nil
	}
	switch p.kind {
	case nSeq, nAlt:
		children := make([]*phrase, len(p.children))
		for i, k := range p.children {
			children[i] = a.prune(k)
		}
		if p.kind == nSeq {
			return a.seq(children)
		}
		return a.alt(children)
	case nRepeat:
		body, min := a.prune(p.children[0]), p.min
		if a.isNullable(body) {
			body, min = a.nonEmpty(body), 0
		}
		return a.repeat(body, min, p.max)
	case nUnordered:
		q := a.reorder(p)
		if q == nil || q.kind != nUnordered {
			return q
		}
		children := []*phrase{a.prune(q.children[0])}
		for i, k := range q.children[1:] {
			if k = a.prune(k); q.members[i].Key == nil {
				k = a.nonEmpty(k)
			}
			children = append(children, k)
		}
		return a.unordered(children, &node{min: q.min, max: q.max, members: q.members})
	}
	return p
}

// nonEmpty returns the texts of p that are not empty; p is pruned or about to be.
func (a *analyser) nonEmpty(p *phrase) *phrase {
	if p == nil || !a.isNullable(p) {
		return p
	}
	switch p.kind {
	case nTerminal:
		return a.term(a.set.NonEmpty(p.expr))
	case nAlt:
		children := make([]*phrase, len(p.children))
		for i, k := range p.children {
			children[i] = a.nonEmpty(k)
		}
		return a.alt(children)
	case nSeq: // every kid is nullable: the first that is not empty decides
		var alts []*phrase
		for i, k := range p.children {
			if a.added += len(p.children) - i; a.added > 4*a.b.limits.Nodes {
				return a.fail(fmt.Errorf("%w: sequences that may be empty, inside repetitions, make more than %d "+
					"parts (4 × Limits.Nodes)",
					ErrLimit, 4*a.b.limits.Nodes))
			}
			alts = append(alts, a.seq(append([]*phrase{a.nonEmpty(k)}, p.children[i+1:]...)))
		}
		return a.alt(alts)
	case nRepeat:
		return a.repeat(a.nonEmpty(p.children[0]), 1, p.max)
	case nUnordered:
		return a.unordered(p.children, &node{min: 1, max: p.max, members: p.members})
	}
	r, ok := a.some[p.rule]
	if !ok {
		r = len(a.body)
		a.some[p.rule] = r
		a.body = append(a.body, nil)
		a.b.rules = append(a.b.rules, rule{name: a.b.rules[p.rule].name})
		a.productive = append(a.productive, true)
		a.nullable = append(a.nullable, false)
		a.body[r] = a.nonEmpty(a.body[p.rule])
		a.body[r] = a.prune(a.body[r])
	}
	return &phrase{kind: nRule, rule: r}
}

// unrollLeft rewrites direct left recursion: A = A x | y is A = y x*.
func (a *analyser) unrollLeft(r int) {
	p := a.body[r]
	if p == nil {
		return
	}
	alts := []*phrase{p}
	if p.kind == nAlt {
		alts = p.children
	}
	self := func(k *phrase) bool { return k.kind == nRule && k.rule == r }
	var first, more []*phrase
	for _, k := range alts {
		switch {
		case self(k): // A = A adds nothing
		case k.kind == nSeq && self(k.children[0]):
			more = append(more, a.nonEmpty(a.seq(k.children[1:])))
		default:
			first = append(first, k)
		}
	}
	if len(first) < len(alts) {
		a.body[r] = a.seq([]*phrase{a.alt(first), a.repeat(a.alt(more), 0, Unbounded)})
	}
}
