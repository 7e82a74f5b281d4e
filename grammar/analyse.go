package grammar

import (
	"fmt"
	"slices"
)

// analyser finds which rules match nothing and which match the empty text, and takes both out: what is left of a
// grammar reaches the end of a text from every state, and no repetition goes round without a byte.
type analyser struct {
	*simplifier
	productive []bool      // by rule
	nullable   []bool      // by rule
	some       map[int]int // rule → the rule of its texts that are not empty
	asked      int         // parts that were asked whether they match nothing, or the empty text
	added      int         // parts of the sequences that nonEmpty made
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

// ask counts one part, and reports whether there may be more: rules that use each other in the worst order are asked as
// often as there are rules.
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

func (a *analyser) isProductive(p *part) bool {
	if p == nil || !a.ask() {
		return false
	}
	switch p.kind {
	case nTerminal:
		return true
	case nSeq:
		for _, k := range p.kids {
			if !a.isProductive(k) {
				return false
			}
		}
		return true
	case nAlt:
		for _, k := range p.kids {
			if a.isProductive(k) {
				return true
			}
		}
		return false
	case nRepeat:
		return p.min == 0 || a.isProductive(p.kids[0])
	case nUnordered:
		return a.reorder(p) != nil
	}
	return a.productive[p.rule]
}

// reorder returns an Unordered without its members that match nothing.
func (a *analyser) reorder(p *part) *part {
	kids := make([]*part, len(p.kids))
	for i, k := range p.kids {
		if a.isProductive(k) {
			kids[i] = k
		}
	}
	return a.unordered(kids, &node{min: p.min, max: p.max, members: p.members})
}

func (a *analyser) isNullable(p *part) bool {
	if p == nil || !a.ask() {
		return false
	}
	switch p.kind {
	case nTerminal:
		return a.set.Nullable(p.expr)
	case nSeq:
		for _, k := range p.kids {
			if !a.isNullable(k) {
				return false
			}
		}
		return true
	case nAlt:
		for _, k := range p.kids {
			if a.isNullable(k) {
				return true
			}
		}
		return false
	case nRepeat:
		return p.min == 0 || a.isNullable(p.kids[0])
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

// prune leaves out what is not productive, and makes the bodies of repetitions and the members of Unordered such that
// they do not match the empty text.
func (a *analyser) prune(p *part) *part {
	if p == nil || !a.isProductive(p) {
		return nil
	}
	switch p.kind {
	case nSeq, nAlt:
		kids := make([]*part, len(p.kids))
		for i, k := range p.kids {
			kids[i] = a.prune(k)
		}
		if p.kind == nSeq {
			return a.seq(kids)
		}
		return a.alt(kids)
	case nRepeat:
		body, min := a.prune(p.kids[0]), p.min
		if a.isNullable(body) {
			body, min = a.nonEmpty(body), 0
		}
		return a.repeat(body, min, p.max)
	case nUnordered:
		q := a.reorder(p)
		if q == nil || q.kind != nUnordered {
			return q
		}
		kids := []*part{a.prune(q.kids[0])}
		for i, k := range q.kids[1:] {
			if k = a.prune(k); q.members[i].Key == nil {
				k = a.nonEmpty(k)
			}
			kids = append(kids, k)
		}
		return a.unordered(kids, &node{min: q.min, max: q.max, members: q.members})
	}
	return p
}

// nonEmpty returns the texts of p that are not empty; p is pruned or about to be.
func (a *analyser) nonEmpty(p *part) *part {
	if p == nil || !a.isNullable(p) {
		return p
	}
	switch p.kind {
	case nTerminal:
		return a.term(a.set.NonEmpty(p.expr))
	case nAlt:
		kids := make([]*part, len(p.kids))
		for i, k := range p.kids {
			kids[i] = a.nonEmpty(k)
		}
		return a.alt(kids)
	case nSeq: // every kid is nullable: the first that is not empty decides
		var alts []*part
		for i, k := range p.kids {
			if a.added += len(p.kids) - i; a.added > 4*a.b.limits.Nodes {
				return a.fail(fmt.Errorf("%w: sequences that may be empty, inside repetitions, make more than %d "+
					"parts (4 × Limits.Nodes)",
					ErrLimit, 4*a.b.limits.Nodes))
			}
			alts = append(alts, a.seq(append([]*part{a.nonEmpty(k)}, p.kids[i+1:]...)))
		}
		return a.alt(alts)
	case nRepeat:
		return a.repeat(a.nonEmpty(p.kids[0]), 1, p.max)
	case nUnordered:
		return a.unordered(p.kids, &node{min: 1, max: p.max, members: p.members})
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
	return &part{kind: nRule, rule: r}
}

// unrollLeft rewrites direct left recursion: A = A x | y is A = y x*.
func (a *analyser) unrollLeft(r int) {
	p := a.body[r]
	if p == nil {
		return
	}
	alts := []*part{p}
	if p.kind == nAlt {
		alts = p.kids
	}
	self := func(k *part) bool { return k.kind == nRule && k.rule == r }
	var first, more []*part
	for _, k := range alts {
		switch {
		case self(k): // A = A adds nothing
		case k.kind == nSeq && self(k.kids[0]):
			more = append(more, a.nonEmpty(a.seq(k.kids[1:])))
		default:
			first = append(first, k)
		}
	}
	if len(first) < len(alts) {
		a.body[r] = a.seq([]*part{a.alt(first), a.repeat(a.alt(more), 0, Unbounded)})
	}
}
