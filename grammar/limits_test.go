package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// TestWarmAllocs: a text that was followed once is followed again, masks and forced bytes included, without an
// allocation.
func TestWarmAllocs(t *testing.T) {
	v, pieces := letters()
	b := NewBuilder(Limits{})
	item := b.Alt(b.Literal("ab"), b.Terminal(b.Regex().Star(b.Regex().Byte('c'))))
	g, err := b.Build(b.Repeat(b.Seq(item, b.Literal(",")), 1, Unbounded))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMatcher(g, v)
	tokens := tokenise(pieces[:len(pieces)-1], strings.Repeat("ab,ccc,,", 20))
	turn := func() {
		m.Reset()
		for _, id := range tokens {
			m.Mask()
			m.Forced()
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	turn()
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("%v allocations for %d tokens", n, len(tokens))
	}
}

// TestBuildErrors: what is no grammar is refused by kind, and the rule is named.
func TestBuildErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(b *Builder) Node
		kind  error
		names string
	}{
		{"an undefined rule", func(b *Builder) Node { return b.Seq(b.Literal("a"), b.Rule("later")) }, ErrUndefined,
			"later"},
		{"nothing", func(b *Builder) Node { return b.Alt() }, ErrEmpty, ""},
		{"recursion without an end", func(b *Builder) Node {
			r := b.Rule("r")
			b.Define(r, b.Seq(b.Literal("a"), r))
			return r
		}, ErrEmpty, ""},
		{"indirect left recursion", func(b *Builder) Node {
			x, y := b.Rule("x"), b.Rule("y")
			b.Define(x, b.Alt(b.Seq(y, b.Literal("a")), b.Literal("b")))
			b.Define(y, b.Alt(b.Seq(b.Optional(b.Literal("c")), x, b.Literal("d")), b.Literal("e")))
			return x
		}, ErrLeftRecursion, ""},
		{"an intersection that is empty", func(b *Builder) Node {
			return b.Terminal(b.Regex().And(b.Regex().Literal("ab"), b.Regex().Literal("ac")))
		}, ErrEmpty, ""},
		{"too many nodes", func(b *Builder) Node {
			for range 2000 {
				b.Literal("a")
			}
			return b.Literal("b")
		}, ErrLimit, "Limits.Nodes"},
		{"too many expressions", func(b *Builder) Node { return b.Literal(strings.Repeat("abc", 2000)) },
			regex.ErrLimit, "Limits.Expressions"},
		{"a count too large", func(b *Builder) Node { return b.Repeat(b.Seq(b.Rule("x"), b.Literal("a")), 0, 1<<40) },
			ErrUndefined, "x"},
	} {
		b := NewBuilder(Limits{Nodes: 1000, Expressions: 1000})
		_, err := b.Build(c.build(b))
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v, want %v that names %q", c.name, err, c.kind, c.names)
		}
	}
}

// TestMatchLimits: a limit that is reached while text is followed allows nothing from then on, and is named.
func TestMatchLimits(t *testing.T) {
	v, _ := letters()
	follow := func(l Limits, build func(b *Builder) Node, text string) (*Matcher, error) {
		b := NewBuilder(l)
		g, err := b.Build(build(b))
		if err != nil {
			t.Fatal(err)
		}
		m := NewMatcher(g, v)
		for i := range text {
			if err := m.AcceptBytes([]byte(text[i : i+1])); err != nil {
				return m, err
			}
		}
		return m, nil
	}
	m, err := follow(Limits{Expressions: 300}, func(b *Builder) Node {
		return b.Terminal(b.Regex().Repeat(b.Regex().Bytes(regex.ByteOf("ab")), 0, 1000))
	}, strings.Repeat("ab", 400))
	if !errors.Is(err, regex.ErrLimit) || !strings.Contains(err.Error(), "Limits.Expressions") ||
		!errors.Is(m.Err(), regex.ErrLimit) {
		t.Errorf("expressions: %v, %v", err, m.Err())
	}
	if slices.ContainsFunc(m.Mask(), func(w uint32) bool { return w != 0 }) {
		t.Error("expressions: something is allowed behind the limit")
	}
	m, err = follow(Limits{Threads: 8}, func(b *Builder) Node {
		var alts []Node
		for i := range 40 { // rules that must be told apart at their ends only
			alts = append(alts,
				b.Repeat(b.Alt(b.Literal("a"), b.Seq(b.Terminal(b.Regex().Star(b.Regex().Byte('b'))), b.Literal("a"))),
					i+2, i+2))
		}
		return b.Alt(alts...)
	}, "aaa")
	if err == nil && m.Err() == nil {
		t.Error("threads: 40 readings at once are followed with a limit of 8")
	} else if e := errors.Join(err, m.Err()); !errors.Is(e, ErrLimit) || !strings.Contains(e.Error(), "Threads") {
		t.Errorf("threads: %v", e)
	}
	// States are forgotten, not refused.
	m, err = follow(Limits{States: 10, MaskBytes: 1}, func(b *Builder) Node {
		return b.Repeat(b.Seq(b.Literal("a"), b.Alt(b.Literal("b"), b.Literal("c"))), 0, 2000)
	}, strings.Repeat("abac", 1000))
	if err != nil || m.Err() != nil || !m.Done() || len(m.a.states) > 30 {
		t.Errorf("states: %v, %v, %d states", err, m.Err(), len(m.a.states))
	}
	m.Reset()
	if err := m.AcceptBytes([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if m.Mask(); has(m.Mask(), 1) || !has(m.Mask(), 2) {
		t.Error("states: another place after a long way back")
	}
}

// TestForcedTokens: the tokens of what must come, without the last one where a choice follows.
func TestForcedTokens(t *testing.T) {
	v, pieces := letters()
	b := NewBuilder(Limits{})
	g, err := b.Build(b.Seq(b.Literal("abcabca"), b.Alt(b.Literal("bb"), b.Literal("cc,,,"))))
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	cut := func(text []byte) []int32 { calls++; return tokenise(pieces[:len(pieces)-1], string(text)) }
	texts := func(ids []int32) (out []string) {
		for _, id := range ids {
			out = append(out, string(pieces[id]))
		}
		return out
	}
	m := NewMatcher(g, v)
	for range 2 {
		if got := fmt.Sprint(texts(m.ForcedTokens(cut))); got != "[abc abc]" || calls != 1 {
			t.Errorf("%s after %d calls", got, calls)
		}
	}
	if string(m.Forced()) != "abcabca" {
		t.Errorf("forced: %q", m.Forced())
	}
	if err := m.AcceptBytes([]byte("abcabcac")); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(texts(m.ForcedTokens(cut))); got != "[c,, ,]" {
		t.Errorf("at the end: %s", got)
	}
	m.Reset()
	if err := m.AcceptBytes([]byte("abcabca")); err != nil || m.ForcedTokens(cut) != nil {
		t.Errorf("forced where there is a choice (%v)", err)
	}
	other := NewMatcher(g, v)
	other.AcceptBytes([]byte("ab"))
	if got := other.ForcedTokens(func([]byte) []int32 { return []int32{5} }); got != nil {
		t.Errorf("a tokenizer that changes its text gives %v", got)
	}
}
