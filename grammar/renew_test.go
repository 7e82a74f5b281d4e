package grammar

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// branches is a grammar with a branch that needs a new expression for each byte, one that needs few, and one whose
// masks take many steps.
func branches(t *testing.T, l Limits) *Grammar {
	t.Helper()
	b := NewBuilder(l)
	s := b.Regex()
	ab := s.Bytes(regex.ByteOf("ab"))
	costly, err := b.Pattern(`c(.{0,30}a|.{0,20}b|.{0,10},){0,30}`)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Build(b.Alt(
		b.Terminal(s.Concat(s.Byte('a'), s.Repeat(ab, 0, 900), s.Byte('c'))),
		b.Seq(b.Literal("b"), b.Repeat(b.Seq(b.Literal("a"), b.Alt(b.Literal("b"), b.Literal("cc"))), 0, Unbounded),
			b.Literal(",")),
		costly,
	))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestLimitEndsOneText: a text that exceeds a limit ends; texts of the same grammar that were begun before and after it
// go on as in a grammar without limits.
func TestLimitEndsOneText(t *testing.T) {
	v, _ := letters()
	for _, c := range []struct {
		name   string
		limits Limits
		begins string // the text that exceeds it
		repeat string
		kind   error
		names  string
	}{
		{"expressions", Limits{Expressions: 400}, "a", "ab", regex.ErrLimit, "Limits.Expressions"},
		{"work", Limits{Work: 250}, "c", "ab", ErrLimit, "Limits.Work"},
	} {
		small, large := branches(t, c.limits), branches(t, Limits{})
		texts := []string{"b" + strings.Repeat("abacc", 40) + ",", "a" + strings.Repeat("ba", 50) + "c", "babacc,"}
		type pair struct {
			text string
			m, o *Matcher
		}
		var pairs []pair
		begin := func(text string) { pairs = append(pairs, pair{text, NewMatcher(small, v), NewMatcher(large, v)}) }
		step := func(i int) {
			p := &pairs[i]
			if len(p.m.text) == len(p.text) {
				return
			}
			b := []byte(p.text[len(p.m.text):][:1])
			if err := errors.Join(p.m.AcceptBytes(b), p.o.AcceptBytes(b)); err != nil {
				t.Fatalf("%s: %q behind %q: %v", c.name, b, p.m.text, err)
			}
			if !slices.Equal(p.m.Mask(), p.o.Mask()) || p.m.MayEnd() != p.o.MayEnd() || p.m.Done() != p.o.Done() ||
				string(p.m.Forced()) != string(p.o.Forced()) {
				t.Fatalf("%s: behind %q: another mask, end or forced text", c.name, p.m.text)
			}
		}
		begin(texts[0])
		begin(texts[1])
		overruns := 0
		for round := range 6 {
			for range 17 {
				for i := range pairs {
					step(i)
				}
			}
			over := NewMatcher(small, v)
			err := over.AcceptBytes([]byte(c.begins))
			for range 500 {
				if err != nil {
					break
				}
				if over.Mask(); over.Err() == nil {
					err = over.AcceptBytes([]byte(c.repeat))
				} else {
					err = over.Err()
				}
			}
			if err == nil {
				t.Fatalf("%s: the limit does not hold", c.name)
			}
			if overruns++; !errors.Is(over.Err(), c.kind) || !strings.Contains(over.Err().Error(), c.names) {
				t.Errorf("%s: %v, want %v that names %s", c.name, over.Err(), c.kind, c.names)
			}
			if slices.ContainsFunc(over.Mask(), func(w uint32) bool { return w != 0 }) ||
				over.AcceptBytes([]byte("a")) == nil {
				t.Errorf("%s: something is allowed behind the limit", c.name)
			}
			begin(texts[round%len(texts)])
		}
		for range 400 {
			for i := range pairs {
				step(i)
			}
		}
		for _, p := range pairs {
			if string(p.m.text) != p.text || !p.m.Done() {
				t.Errorf("%s: %q came to %q", c.name, p.text, p.m.text)
			}
		}
	}
}

// TestRenewedGrammars: many texts of one grammar with little room, each of which would have enough alone, are read as
// in one with much; a clone from before a renewal goes on too.
func TestRenewedGrammars(t *testing.T) {
	v, pieces := letters()
	small, large := branches(t, Limits{Expressions: 3000, States: 60}), branches(t, Limits{})
	r := rand.New(rand.NewPCG(5, 6))
	type pair struct {
		m, o   *Matcher
		before []pair // clones, from before each token
	}
	pairs := make([]pair, 9)
	steps, renewed := 0, 0
	for range 3_000 {
		i := r.IntN(len(pairs))
		p := &pairs[i]
		if p.m == nil || len(p.m.text) > 30 {
			*p = pair{m: NewMatcher(small, v), o: NewMatcher(large, v)}
			b := []byte("cccab"[i%5:][:1])
			p.m.AcceptBytes(b)
			p.o.AcceptBytes(b)
		}
		mask := p.m.Mask()
		if p.m.Err() != nil || !slices.Equal(mask, p.o.Mask()) {
			t.Fatalf("behind %q: %v, or another mask", p.m.text, p.m.Err())
		}
		var may []int32
		for id := range pieces {
			if has(mask, id) {
				may = append(may, int32(id))
			}
		}
		if len(may) == 0 {
			p.m = nil
			continue
		}
		tok := may[r.IntN(len(may))]
		p.before = append(p.before, pair{m: p.m.Clone(), o: p.o.Clone()})
		if a, b := p.m.Accept(tok), p.o.Accept(tok); a != nil || b != nil {
			t.Fatal(a, b)
		}
		if n := r.IntN(40); n > 0 && n < 4 && n <= len(p.before) {
			left := p.before[:len(p.before)-n]
			*p = p.before[len(left)]
			p.before = left
		}
		if p.m.ended {
			p.m = nil
		}
		steps, renewed = steps+1, small.gen
	}
	if steps < 1_500 || renewed < 3 {
		t.Errorf("%d steps, renewed %d times", steps, renewed)
	}
}
