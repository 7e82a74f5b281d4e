package jsonschema

import (
	"fmt"
	"slices"
)

// ref is a set of JSON values: an index into the compiler's nodes. Equal combinations of the same schemas have equal
// refs, so that recursion through intersections and complements ends.
type ref int32

const (
	nothing  ref = iota // no value
	anything            // every value
)

type nodeOp uint8

const (
	opNothing  nodeOp = iota
	opAnything        //
	opSchema          // what the schema at place allows
	opConst           // one value
	opAnd             // what all of args hold
	opNot             // what args[0] does not hold
)

type node struct {
	op    nodeOp
	args  []ref
	place *place
	value *value
	set   *set // computed by setOf
	busy  bool // setOf is computing it: a schema that refers to itself without an array or object between
	empty emptiness
}

type placeKey struct {
	v   *value
	res *resource
}

func (c *compiler) addNode(n node) ref {
	if len(c.nodes) >= c.limits.Schemas {
		c.exceed(nil, "", "more than %d schemas, those that combinations make included (Limits.Schemas)",
			c.limits.Schemas)
		return nothing
	}
	c.nodes = append(c.nodes, n)
	return ref(len(c.nodes) - 1)
}

// schema returns the ref of the schema at p.
func (c *compiler) schema(p *place) ref {
	if p.v.kind == boolValue {
		if p.v.truth {
			return anything
		}
		return nothing
	}
	if p.v.kind == objectValue && len(p.v.members) == 0 {
		return anything
	}
	key := placeKey{p.v, p.res}
	r, ok := c.places[key]
	if !ok {
		r = c.addNode(node{op: opSchema, place: p})
		c.places[key] = r
	}
	return r
}

func (c *compiler) constant(p *place, v *value) ref {
	return c.addNode(node{op: opConst, value: v, place: p})
}

// and returns the intersection of refs.
func (c *compiler) and(refs ...ref) ref {
	var args []ref
	for _, r := range refs {
		if c.nodes[r].op == opAnd {
			args = append(args, c.nodes[r].args...)
		} else {
			args = append(args, r)
		}
	}
	slices.Sort(args)
	args = slices.Compact(args)
	out := args[:0]
	for _, r := range args {
		if r == nothing {
			return nothing
		}
		if r != anything {
			out = append(out, r)
		}
	}
	for _, r := range out {
		if n := &c.nodes[r]; n.op == opNot && slices.Contains(out, n.args[0]) {
			return nothing
		}
	}
	out = c.withoutIdle(out)
	switch len(out) {
	case 0:
		return anything
	case 1:
		return out[0]
	}
	return c.intern(opAnd, slices.Clone(out))
}

// withoutIdle drops from the parts of an intersection each complement of what the others have nothing of anyway.
func (c *compiler) withoutIdle(parts []ref) []ref {
	for i := 0; i < len(parts) && len(parts) > 1; i++ {
		if c.nodes[parts[i]].op != opNot {
			continue
		}
		others := slices.Delete(slices.Clone(parts), i, i+1)
		if c.isEmpty(c.and(append(others, c.nodes[parts[i]].args[0])...)) {
			parts = slices.Delete(slices.Clone(parts), i, i+1)
			i--
		}
	}
	return parts
}

// within reports whether, by their forms, every value of a is one of b.
func (c *compiler) within(a, b ref) bool {
	if a == b || a == nothing || b == anything {
		return true
	}
	parts := func(r ref) []ref {
		if n := &c.nodes[r]; n.op == opAnd {
			return n.args
		}
		return []ref{r}
	}
	have := parts(a)
	for _, r := range parts(b) {
		if !slices.Contains(have, r) {
			return false
		}
	}
	return true
}

// not returns the complement of r.
func (c *compiler) not(r ref) ref {
	switch {
	case r == nothing:
		return anything
	case r == anything:
		return nothing
	case c.nodes[r].op == opNot:
		return c.nodes[r].args[0]
	}
	return c.intern(opNot, []ref{r})
}

func (c *compiler) intern(op nodeOp, args []ref) ref {
	key := fmt.Sprint(op, args)
	r, ok := c.combos[key]
	if !ok {
		r = c.addNode(node{op: op, args: args, place: c.nodes[args[0]].place})
		c.combos[key] = r
	}
	return r
}

// setOf computes what r holds.
func (c *compiler) setOf(r ref) *set {
	c.checkStop()
	if c.err != nil {
		return c.none
	}
	n := &c.nodes[r]
	if n.set != nil {
		return n.set
	}
	if n.busy && c.asking > 0 { // asked while it is computed: it has no answer yet
		c.open = true
		return c.none
	}
	if n.busy {
		c.refuse(n.place, "$ref", "the schema refers to itself without an array or object between")
		return c.none
	}
	if c.depth++; c.depth > c.limits.Depth {
		c.exceed(n.place, "", "schemas are nested deeper than %d (Limits.Depth)", c.limits.Depth)
		return c.none
	}
	n.busy = true
	op, args, p, v := n.op, n.args, n.place, n.value
	var out *set
	switch op {
	case opNothing:
		out = c.none
	case opAnything:
		out = c.full
	case opSchema:
		out = c.schemaSet(p)
	case opConst:
		out = c.constSet(p, v)
	case opAnd:
		out = c.full
		for _, a := range args {
			out = c.intersect(p, out, c.setOf(a))
		}
	case opNot:
		out = c.complement(p, c.setOf(args[0]))
	}
	c.depth--
	n = &c.nodes[r] // computing may have moved the nodes
	n.busy = false
	if c.err == nil && !c.open {
		n.set = out
	}
	return out
}
