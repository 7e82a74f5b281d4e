package grammar

import (
	"errors"
	"strings"
	"testing"
)

// TestManyRules: what a grammar takes to compile is bounded also where thousands of rules use each other in the worst
// order, and where thousands of parts may be empty.
func TestManyRules(t *testing.T) {
	const n = 8000
	chain := func(step int) func(b *Builder) Node {
		return func(b *Builder) Node {
			rules := make([]Node, n)
			for i := range rules {
				rules[i] = b.Rule("r")
			}
			at := 0
			for range n - 1 {
				next := (at + step) % n
				b.Define(rules[at], b.Alt(b.Seq(rules[next], b.Literal("a"), rules[next]),
					b.Seq(b.Literal("b"), rules[next])))
				at = next
			}
			b.Define(rules[at], b.Alt(b.Literal("c"), b.Seq(b.Literal("a"), rules[at], b.Literal("b"))))
			return rules[0]
		}
	}
	for _, c := range []struct {
		name  string
		build func(b *Builder) Node
		want  string // "": it compiles
	}{
		{"forward", chain(1), ""},
		{"backward", chain(n - 1), "Limits.Nodes"},
		{"empty parts", func(b *Builder) Node {
			r := b.Rule("r")
			b.Define(r, b.Optional(b.Seq(b.Literal("a"), r, b.Literal("b"))))
			children := make([]Node, 5000)
			for i := range children {
				children[i] = r
			}
			return b.Repeat(b.Seq(children...), 0, Unbounded)
		}, "Limits.Nodes"},
	} {
		b := NewBuilder(Limits{Nodes: 60_000})
		_, err := b.Build(c.build(b))
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestMaskWork: a mask that takes more steps than Limits.Work is not computed to its end, and the limit is named.
func TestMaskWork(t *testing.T) {
	v, _ := letters()
	for _, c := range []struct {
		work int
		want string
	}{{0, ""}, {20, "Limits.Work"}} {
		b := NewBuilder(Limits{Work: c.work})
		n, err := b.Pattern(`(.{0,50}a|.{0,40}b|.{0,30}c){0,30}`)
		if err != nil {
			t.Fatal(err)
		}
		g, err := b.Build(n)
		if err != nil {
			t.Fatal(err)
		}
		m := NewMatcher(g, v)
		before := m.Work()
		m.Mask()
		if err := m.Err(); c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("Work %d: %v, want %q", c.work, err, c.want)
		}
		if took := m.Work() - before; took <= 0 || c.want != "" && took > 100_000 {
			t.Errorf("Work %d: the mask took %d steps", c.work, took)
		}
	}
}

// TestManyReadings: a text may be read in more ways than can be counted; what follows it takes no more steps for that.
func TestManyReadings(t *testing.T) {
	v, _ := letters()
	b := NewBuilder(Limits{})
	root := b.Rule("root")
	b.Define(root, b.Alt(b.Seq(root, root, root, b.Literal("a")), b.Literal("a")))
	g, err := b.Build(root)
	if err != nil {
		t.Fatal(err)
	}
	m := NewMatcher(g, v)
	for n := range 60 {
		before := m.Work()
		if m.Mask(); m.Err() != nil {
			t.Fatalf("after %d letters: %v", n, m.Err())
		}
		if err := m.AcceptBytes([]byte("a")); err != nil {
			t.Fatalf("after %d letters: %v", n, err)
		}
		if took := m.Work() - before; took > 200_000 {
			t.Fatalf("after %d letters the next one takes %d steps", n, took)
		}
	}
}
