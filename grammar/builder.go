package grammar

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Node is an expression of a grammar: an index into its Builder. The zero value matches no text.
type Node uint32

type nodeKind uint8

const (
	nNothing   nodeKind = iota
	nTerminal           // expr
	nSeq                // children
	nAlt                // children
	nRepeat             // children[0], min to max times
	nUnordered          // children are sep and the items; bounds in members
	nRule               // rules[rule]
)

type node struct {
	kind     nodeKind
	expr     regex.Expr
	children []Node
	min, max int
	rule     int
	members  []Member
}

type rule struct {
	name string
	body Node // 0 until defined
	set  bool
}

// Member is one of what Unordered arranges: a node and how often it comes. A negative Max has no bound. Of the members
// with a Key of one Unordered, no two begin with keys of one value.
type Member struct {
	Node     Node // behind Key
	Min, Max int
	Key      *Key // with which the member begins; nil: none
}

// Builder makes a Grammar. Limits are sticky: once one is exceeded Build returns the error.
type Builder struct {
	limits Limits
	regex  *regex.Set
	nodes  []node
	rules  []rule
	err    error
}

// NewBuilder returns an empty Builder.
func NewBuilder(l Limits) *Builder {
	for _, f := range []struct {
		field *int
		def   int
	}{{&l.Nodes, defaultNodes}, {&l.Expressions, defaultExpressions}, {&l.States, defaultStates},
		{&l.Threads, defaultThreads}, {&l.MaskBytes, defaultMaskBytes}, {&l.Work, defaultWork}} {
		if *f.field <= 0 {
			*f.field = f.def
		}
	}
	b := &Builder{limits: l, regex: regex.NewSet(regex.Limits{Expressions: l.Expressions})}
	b.regex.StopWhen(l.Stop)
	b.nodes = append(b.nodes, node{kind: nNothing})
	return b
}

// Regex returns the set that the grammar's terminals are expressions of.
func (b *Builder) Regex() *regex.Set { return b.regex }

// Err returns the first limit that was exceeded, or nil. It wraps ErrLimit or regex.ErrLimit.
func (b *Builder) Err() error {
	if b.err != nil {
		return b.err
	}
	return b.regex.Err()
}

// Stopped reports whether Limits.Stop breaks the building off; then Err returns ErrStopped.
func (b *Builder) Stopped() bool {
	if b.Err() == nil && b.limits.Stop != nil && b.limits.Stop() {
		b.err = ErrStopped
	}
	return errors.Is(b.Err(), ErrStopped)
}

func (b *Builder) add(n node) Node {
	if len(b.nodes) >= b.limits.Nodes {
		if b.err == nil {
			b.err = fmt.Errorf("%w: more than %d nodes (Limits.Nodes)", ErrLimit, b.limits.Nodes)
		}
		return 0
	}
	b.nodes = append(b.nodes, n)
	return Node(len(b.nodes) - 1)
}

// Terminal returns the texts of e.
func (b *Builder) Terminal(e regex.Expr) Node { return b.add(node{kind: nTerminal, expr: e}) }

// Literal returns exactly text.
func (b *Builder) Literal(text string) Node { return b.Terminal(b.regex.Literal(text)) }

// Empty returns the empty text.
func (b *Builder) Empty() Node { return b.Terminal(b.regex.Empty()) }

// Nothing returns the node that matches no text: an alternative of it is left out, a sequence with it is Nothing too.
func (b *Builder) Nothing() Node { return 0 }

// Seq returns nodes one after another.
func (b *Builder) Seq(nodes ...Node) Node {
	return b.add(node{kind: nSeq, children: append([]Node(nil), nodes...)})
}

// Alt returns any of nodes; of none it is Nothing.
func (b *Builder) Alt(nodes ...Node) Node {
	return b.add(node{kind: nAlt, children: append([]Node(nil), nodes...)})
}

// Optional returns n or the empty text.
func (b *Builder) Optional(n Node) Node { return b.Repeat(n, 0, 1) }

// Repeat returns n from min to max times; a negative max has no bound. Counts cost nothing: they are counted, not
// expanded.
func (b *Builder) Repeat(n Node, min, max int) Node {
	return b.add(node{kind: nRepeat, children: []Node{n}, min: min, max: max})
}

// Unordered returns members in any order with sep between every two of them: each between its Min and Max times, and
// between min and max of them together; a negative max has no bound. It is what an object's members are. Which were
// seen is counted as text is matched, so nothing is expanded: n members cost n, not 2^n. Members should not match the
// same text (a key of additionalProperties is none of properties); those that do are counted as either.
func (b *Builder) Unordered(sep Node, min, max int, members ...Member) Node {
	children := make([]Node, 0, 1+len(members))
	children = append(children, sep)
	for _, m := range members {
		children = append(children, m.Node)
	}
	return b.add(node{kind: nUnordered, children: children, min: min, max: max,
		members: append([]Member(nil), members...)})
}

// Rule returns a rule to be defined later, for recursion. name is for errors only.
func (b *Builder) Rule(name string) Node {
	n := b.add(node{kind: nRule, rule: len(b.rules)})
	if n != 0 {
		b.rules = append(b.rules, rule{name: name})
	}
	return n
}

// Define sets what rule, which Rule returned, stands for. A second Define of a rule replaces the first.
func (b *Builder) Define(rule, body Node) {
	if n := b.nodes[rule]; n.kind == nRule {
		b.rules[n.rule].body, b.rules[n.rule].set = body, true
	}
}
