package grammar

import (
	"fmt"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// phrase is a node after simplification. A nil phrase matches no text.
type phrase struct {
	kind     nodeKind
	expr     regex.Expr
	children []*phrase
	min, max int
	members  []Member // of nUnordered: the bounds of children[1:]
	rule     int
}

// simplifier turns a Builder's nodes into phrases: what is regular and short becomes one terminal, alternatives are
// joined, rules that are one terminal disappear.
type simplifier struct {
	b     *Builder
	set   *regex.Set
	memo  map[Node]*phrase
	state []ruleState // by rule
	body  []*phrase   // by rule
	err   error
}

type ruleState uint8

const (
	ruleNew ruleState = iota
	ruleOpen
	ruleDone
)

// longestLoop is the longest text, in bytes, of a regular body whose repetition becomes one terminal. Bodies such as a
// character or an escape are; a repetition of strings stays in the grammar, so that the strings keep their expression
// and with it what the Vocabulary knows of it.
const longestLoop = 16

func (s *simplifier) fail(err error) *phrase {
	if s.err == nil {
		s.err = err
	}
	return nil
}

func (s *simplifier) term(e regex.Expr) *phrase {
	empty, err := s.set.IsEmpty(e)
	if err != nil {
		return s.fail(fmt.Errorf("%w: %w", ErrLimit, err))
	}
	if empty {
		return nil
	}
	return &phrase{kind: nTerminal, expr: e}
}

func (s *simplifier) simplify(n Node) *phrase {
	if p, ok := s.memo[n]; ok {
		return p
	}
	if s.err != nil {
		return nil
	}
	var p *phrase
	switch nd := &s.b.nodes[n]; nd.kind {
	case nTerminal:
		p = s.term(nd.expr)
	case nSeq:
		p = s.seq(s.all(nd.children))
	case nAlt:
		p = s.alt(s.all(nd.children))
	case nRepeat:
		p = s.repeat(s.simplify(nd.children[0]), nd.min, nd.max)
	case nUnordered:
		p = s.unordered(s.all(nd.children), nd)
	case nRule:
		return s.ref(nd.rule) // not memoised: an open rule is simpler later
	}
	s.memo[n] = p
	return p
}

func (s *simplifier) all(nodes []Node) []*phrase {
	out := make([]*phrase, len(nodes))
	for i, n := range nodes {
		out[i] = s.simplify(n)
	}
	return out
}

func (s *simplifier) ref(r int) *phrase {
	switch s.state[r] {
	case ruleNew:
		if !s.b.rules[r].set {
			return s.fail(fmt.Errorf("%w: %q", ErrUndefined, s.b.rules[r].name))
		}
		s.state[r] = ruleOpen
		s.body[r] = s.simplify(s.b.rules[r].body)
		s.state[r] = ruleDone
	case ruleOpen:
		return &phrase{kind: nRule, rule: r}
	}
	if b := s.body[r]; b == nil || b.kind == nTerminal {
		return b
	}
	return &phrase{kind: nRule, rule: r}
}

func (s *simplifier) empty() *phrase { return &phrase{kind: nTerminal, expr: s.set.Empty()} }

// seq joins a chain of byte sets with the terminal behind it.
func (s *simplifier) seq(children []*phrase) *phrase {
	var out []*phrase
	for _, k := range flat(nSeq, children) {
		if k == nil {
			return nil
		}
		if k.kind == nTerminal && k.expr == s.set.Empty() {
			continue
		}
		if last := len(out) - 1; k.kind == nTerminal && last >= 0 && out[last].kind == nTerminal &&
			s.set.Chain(out[last].expr) {
			out[last] = &phrase{kind: nTerminal, expr: s.set.Concat(out[last].expr, k.expr)}
			continue
		}
		out = append(out, k)
	}
	switch len(out) {
	case 0:
		return s.empty()
	case 1:
		return out[0]
	}
	return &phrase{kind: nSeq, children: out}
}

// alt joins the terminals among children.
func (s *simplifier) alt(children []*phrase) *phrase {
	var out []*phrase
	var exprs []regex.Expr
	at := 0
	for _, k := range flat(nAlt, children) {
		switch {
		case k == nil:
		case k.kind == nTerminal:
			if len(exprs) == 0 {
				at = len(out)
				out = append(out, nil)
			}
			exprs = append(exprs, k.expr)
		default:
			out = append(out, k)
		}
	}
	if len(exprs) > 0 {
		out[at] = &phrase{kind: nTerminal, expr: s.set.Or(exprs...)}
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return &phrase{kind: nAlt, children: out}
}

func flat(kind nodeKind, children []*phrase) []*phrase {
	var out []*phrase
	for _, k := range children {
		if k != nil && k.kind == kind {
			out = append(out, k.children...)
		} else {
			out = append(out, k)
		}
	}
	return out
}

func (s *simplifier) repeat(body *phrase, min, max int) *phrase {
	if min < 0 {
		min = 0
	}
	if max < 0 {
		max = Unbounded
	}
	switch {
	case max >= 0 && max < min:
		return nil
	case max == 0 || body == nil && min == 0:
		return s.empty()
	case body == nil:
		return nil
	case min == 1 && max == 1:
		return body
	case body.kind == nTerminal && s.short(body.expr):
		return s.term(s.set.Repeat(body.expr, min, max))
	}
	if max > maxCount || min > maxCount {
		return s.fail(fmt.Errorf("%w: a repetition of more than %d", ErrLimit, maxCount))
	}
	if e, ok := s.regular(body); ok && s.short(e) {
		return s.term(s.set.Repeat(e, min, max))
	}
	return &phrase{kind: nRepeat, children: []*phrase{body}, min: min, max: max}
}

// maxCount is the largest count of a repetition.
const maxCount = 1<<31 - 2

func (s *simplifier) short(e regex.Expr) bool {
	n := s.set.MaxLen(e)
	return n >= 0 && n <= longestLoop
}

// regular returns a phrase without rules, counts and orders as one expression.
func (s *simplifier) regular(p *phrase) (regex.Expr, bool) {
	switch p.kind {
	case nTerminal:
		return p.expr, s.short(p.expr)
	case nSeq, nAlt:
		es := make([]regex.Expr, len(p.children))
		for i, k := range p.children {
			var ok bool
			if es[i], ok = s.regular(k); !ok {
				return 0, false
			}
		}
		if p.kind == nSeq {
			return s.set.Concat(es...), true
		}
		return s.set.Or(es...), true
	}
	return 0, false
}

// unordered leaves out the members that match nothing, and is nil when the bounds cannot be met.
func (s *simplifier) unordered(children []*phrase, nd *node) *phrase {
	u := &phrase{kind: nUnordered, children: children[:1:1], min: max(nd.min, 0), max: nd.max}
	least, most := 0, 0 // of all members; most < 0 has no bound
	for i, k := range children[1:] {
		m := nd.members[i]
		m.Min = max(m.Min, 0)
		if m.Max < 0 {
			m.Max = Unbounded
		}
		if m.Min > maxCount || m.Max > maxCount {
			return s.fail(fmt.Errorf("%w: a member more than %d times", ErrLimit, maxCount))
		}
		if m.Key != nil && k != nil && s.term(m.Key.Texts) == nil {
			k = nil
		}
		if m.Key != nil && s.set.Nullable(m.Key.Texts) {
			return s.fail(errEmptyKey)
		}
		if k == nil || m.Max == 0 {
			if m.Min > 0 {
				return nil
			}
			continue
		}
		if m.Max >= 0 && m.Max < m.Min {
			return nil
		}
		least += m.Min
		if m.Max < 0 || most < 0 {
			most = Unbounded
		} else {
			most += m.Max
		}
		u.children, u.members = append(u.children, k), append(u.members, m)
	}
	if u.max < 0 {
		u.max = Unbounded
	}
	if children[0] == nil && (u.max < 0 || u.max > 1) {
		u.max = 1 // nothing can be between two
		u.children[0] = s.empty()
	}
	if u.min > maxCount || u.max > maxCount {
		return s.fail(fmt.Errorf("%w: more than %d members", ErrLimit, maxCount))
	}
	if u.max >= 0 && (least > u.max || u.min > u.max) || most >= 0 && u.min > most {
		return nil
	}
	if len(u.members) == 0 || u.max == 0 {
		return s.empty()
	}
	return u
}
