package grammar

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Grammar is a compiled grammar. Its Matchers share what they have computed.
type Grammar struct {
	limits Limits
	set    *regex.Set
	code   []instr
	start  int32
	shared map[*Vocabulary]*automaton

	built regex.Mark // what set held when it was built
	gen   int        // counts how often what matching added was forgotten
}

// renew forgets what matching has added to g, so that there is room again. Its Matchers find their places anew.
func (g *Grammar) renew() {
	g.set.Forget(g.built)
	g.gen++
}

// opcode is the instruction at a place in the program.
type opcode uint8

const (
	opReturn    opcode = iota // continues where the stack says
	opTerminal                // a text of expr, then next
	opCall                    // the rule at to[0], then next
	opSplit                   // any of to
	opCount                   // to[0], min to max times, then next; the argument counts
	opUnordered               // sep at to[0] and members at to[1:], then next; the argument is what was seen
	opMember                  // the second half of opUnordered, behind sep; next is that
	opSeen                    // behind member min of the opUnordered at next; the argument is what was seen before it
	opKey                     // a text of key that was not seen, then next, which is an opTaken
	opTaken                   // behind a key, then next; the argument is its text
)

// instr is a place in the program of a grammar. Places that can follow are named, so a sequence needs no stack: only
// calls and counts push where they continue.
type instr struct {
	op       opcode
	expr     regex.Expr
	next     int32
	to       []int32
	min, max int
	members  []Member
	key      *Key
	keyed    bool // an Unordered of which a member has a key
}

// Build compiles the texts of root. It returns ErrEmpty when no text matches, and errors that wrap ErrUndefined,
// ErrLeftRecursion, ErrLimit or regex.ErrLimit. Direct left recursion is rewritten as a repetition. The Builder must
// not be used afterwards.
func (b *Builder) Build(root Node) (*Grammar, error) {
	start := len(b.rules)
	b.rules = append(b.rules, rule{name: "root", body: root, set: true})
	s := &simplifier{b: b, set: b.regex, memo: map[Node]*phrase{0: nil}, state: make([]ruleState, len(b.rules)),
		body: make([]*phrase, len(b.rules))}
	s.ref(start)
	a := &analyser{simplifier: s, some: map[int]int{}}
	if s.err == nil {
		a.run()
		for r := range a.body {
			a.unrollLeft(r)
		}
		a.run() // what was unrolled may have repetitions of the empty text
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	if s.err != nil {
		return nil, s.err
	}
	if a.body[start] == nil {
		return nil, ErrEmpty
	}
	c := &coder{b: b, body: a.body, entry: map[int]int32{}, limit: 4 * b.limits.Nodes}
	c.emit(instr{op: opReturn})
	at := c.rule(start)
	for len(c.todo) > 0 && c.err == nil {
		r := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		body := c.phrase(c.body[r], 0)
		c.at(c.entry[r]).to = []int32{body}
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := c.checkLeft(b.regex); err != nil {
		return nil, err
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	b.regex.StopWhen(nil)
	b.limits.Stop = nil
	return &Grammar{limits: b.limits, set: b.regex, code: c.code, start: at, shared: map[*Vocabulary]*automaton{},
		built: b.regex.Mark()}, nil
}

// coder writes the program. Every phrase is written with the place that follows it; place 0 returns.
type coder struct {
	b     *Builder
	body  []*phrase
	code  []instr
	entry map[int]int32 // rule → its place
	todo  []int
	limit int
	err   error
}

func (c *coder) emit(i instr) int32 {
	if len(c.code) >= c.limit {
		if c.err == nil {
			c.err = fmt.Errorf("%w: more than %d places in the program (4 × Limits.Nodes)", ErrLimit, c.limit)
		}
		return 0
	}
	c.code = append(c.code, i)
	return int32(len(c.code) - 1)
}

func (c *coder) at(pc int32) *instr { return &c.code[pc] }

func (c *coder) rule(r int) int32 {
	pc, ok := c.entry[r]
	if !ok {
		pc = c.emit(instr{op: opSplit})
		c.entry[r] = pc
		c.todo = append(c.todo, r)
	}
	return pc
}

func (c *coder) phrase(p *phrase, next int32) int32 {
	if c.err != nil {
		return 0
	}
	switch p.kind {
	case nTerminal:
		if p.expr == c.b.regex.Empty() {
			return next
		}
		return c.emit(instr{op: opTerminal, expr: p.expr, next: next})
	case nSeq:
		for i := len(p.children) - 1; i >= 0; i-- {
			next = c.phrase(p.children[i], next)
		}
		return next
	case nAlt:
		pc := c.emit(instr{op: opSplit})
		for _, k := range p.children {
			to := c.phrase(k, next)
			c.at(pc).to = append(c.at(pc).to, to)
		}
		return pc
	case nRepeat:
		return c.repeat(p, next)
	case nUnordered:
		member := c.emit(instr{op: opMember, min: p.min, max: p.max, members: p.members})
		pc := c.emit(instr{op: opUnordered, min: p.min, max: p.max, members: p.members, next: next})
		for i := range p.members {
			c.emit(instr{op: opSeen, min: i, next: pc})
		}
		if c.err != nil {
			return 0
		}
		to := []int32{c.phrase(p.children[0], 0)}
		keyed := false
		for i, k := range p.children[1:] {
			at := c.phrase(k, 0)
			if key := p.members[i].Key; key != nil {
				at = c.emit(instr{op: opTaken, key: key, next: at})
				at = c.emit(instr{op: opKey, key: key, next: at})
				keyed = true
			}
			to = append(to, at)
		}
		c.at(pc).to, c.at(member).to, c.at(member).next = to, to, pc
		c.at(pc).keyed, c.at(member).keyed = keyed, keyed
		return pc
	}
	return c.emit(instr{op: opCall, to: []int32{c.rule(p.rule)}, next: next})
}

func (c *coder) repeat(p *phrase, next int32) int32 {
	switch body := p.children[0]; {
	case p.max == 1: // min is 0
		to := c.phrase(body, next)
		return c.emit(instr{op: opSplit, to: []int32{to, next}})
	case p.max < 0 && p.min <= 1:
		loop := c.emit(instr{op: opSplit})
		once := c.phrase(body, loop)
		c.at(loop).to = []int32{once, next}
		if p.min == 1 {
			return once
		}
		return loop
	default:
		pc := c.emit(instr{op: opCount, min: p.min, max: p.max, next: next})
		once := c.phrase(body, 0)
		c.at(pc).to = []int32{once}
		return pc
	}
}

// checkLeft refuses a grammar in which a place can be reached from itself without a byte while the stack grows.
// Tarjan's algorithm finds the places that reach each other; a step inside such a group that pushes is left recursion.
func (c *coder) checkLeft(set *regex.Set) error {
	nullable, err := c.nullableRules(set)
	if err != nil {
		return err
	}
	n := len(c.code)
	index, low, on := make([]int32, n), make([]int32, n), make([]bool, n)
	var stack []int32
	next := int32(0)
	group := make([]int32, n)
	edges := func(pc int32, visit func(to int32, push bool)) {
		switch in := &c.code[pc]; in.op {
		case opTerminal:
			if set.Nullable(in.expr) {
				visit(in.next, false)
			}
		case opTaken:
			visit(in.next, false)
		case opSplit:
			for _, to := range in.to {
				visit(to, false)
			}
		case opCall:
			visit(in.to[0], in.next != 0)
			if nullable[in.to[0]] {
				visit(in.next, false)
			}
		case opCount:
			visit(in.to[0], true)
			visit(in.next, false)
		case opUnordered:
			for _, to := range in.to {
				visit(to, true)
			}
			visit(in.next, false)
		}
	}
	type frame struct {
		pc int32
		to []int32
	}
	for root := range int32(n) {
		if index[root] != 0 {
			continue
		}
		var calls []frame
		enter := func(pc int32) {
			next++
			index[pc], low[pc], on[pc] = next, next, true
			stack = append(stack, pc)
			f := frame{pc: pc}
			edges(pc, func(to int32, _ bool) { f.to = append(f.to, to) })
			calls = append(calls, f)
		}
		enter(root)
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			if len(f.to) > 0 {
				to := f.to[0]
				f.to = f.to[1:]
				if index[to] == 0 {
					enter(to)
				} else if on[to] {
					low[f.pc] = min(low[f.pc], index[to])
				}
				continue
			}
			pc := f.pc
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].pc
				low[up] = min(low[up], low[pc])
			}
			if low[pc] == index[pc] {
				for {
					last := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					on[last], group[last] = false, pc+1
					if last == pc {
						break
					}
				}
			}
		}
	}
	for pc := range int32(n) {
		bad := false
		edges(pc, func(to int32, push bool) { bad = bad || push && group[to] == group[pc] })
		if bad {
			for r, entry := range c.entry {
				if group[entry] == group[pc] {
					return fmt.Errorf("%w: rule %q begins with itself", ErrLeftRecursion, c.b.rules[r].name)
				}
			}
			return fmt.Errorf("%w: a repetition begins with itself", ErrLeftRecursion)
		}
	}
	return nil
}

// nullableRules returns the entries of rules that match the empty text.
func (c *coder) nullableRules(set *regex.Set) (map[int32]bool, error) {
	a := &analyser{simplifier: &simplifier{b: c.b, set: set, body: c.body}}
	a.nullable = make([]bool, len(c.body))
	for changed := true; changed; {
		changed = false
		for r, body := range slices.Backward(c.body) {
			if !a.nullable[r] && a.isNullable(body) {
				a.nullable[r], changed = true, true
			}
		}
	}
	out := map[int32]bool{}
	for r, pc := range c.entry {
		out[pc] = a.nullable[r]
	}
	return out, a.err
}
