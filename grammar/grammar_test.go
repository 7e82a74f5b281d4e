package grammar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// letters is a vocabulary of every text of up to three letters, two spellings of one of them, and an end.
func letters() (*Vocabulary, [][]byte) {
	pieces := [][]byte{nil}
	for n := 1; n <= 3; n++ {
		for i := range pow(4, n) {
			p := make([]byte, n)
			for j := range p {
				p[j] = "abc,"[i%4]
				i /= 4
			}
			pieces = append(pieces, p)
		}
	}
	pieces = append(pieces, []byte("ab"), []byte("<end>"))
	return NewVocabulary(pieces, []int32{int32(len(pieces) - 1)}), pieces
}

func pow(x, n int) int {
	out := 1
	for range n {
		out *= x
	}
	return out
}

func has(mask []uint32, id int) bool { return mask[id/32]>>(id%32)&1 != 0 }

// walk lets a random text come out of g: from first on, tokens are drawn from the masks until the text ends, with a
// liking for ends. It returns false when the text does not end within most tokens.
func walk(t *testing.T, r *rand.Rand, m *Matcher, pieces [][]byte, most int) (string, bool) {
	t.Helper()
	text := ""
	for n := 0; n < most; n++ {
		mask := m.Mask()
		var may []int
		for id := range pieces {
			if has(mask, id) {
				may = append(may, id)
			}
		}
		if len(may) == 0 {
			t.Fatalf("after %q no token may come (%v)", text, m.Err())
		}
		if m.MayEnd() && (r.IntN(3) == 0 || n > most/2) {
			return text, true
		}
		id := may[r.IntN(len(may))]
		if n > most/2 { // short tokens tend to end texts
			id = may[0]
		}
		if err := m.Accept(int32(id)); err != nil {
			t.Fatalf("after %q the mask allows token %d (%q): %v", text, id, pieces[id], err)
		}
		if id == len(pieces)-1 {
			return text, true
		}
		text += string(pieces[id])
	}
	return text, false
}

// TestWalksAreTexts draws random grammars and random texts of them: an independent matcher accepts every text.
func TestWalksAreTexts(t *testing.T) {
	v, pieces := letters()
	built, ended := 0, 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := randomSpecs(r)
		c, err := g.build(Limits{})
		if err != nil {
			if !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrLeftRecursion) {
				t.Fatalf("seed %d: %v: %v", seed, g, err)
			}
			continue
		}
		built++
		for range 4 {
			text, ok := walk(t, r, NewMatcher(c, v), pieces, 24)
			if !ok || len(text) > 40 {
				continue
			}
			ended++
			if !g.accepts(text) {
				t.Fatalf("seed %d: %v does not have %q", seed, g, text)
			}
		}
	}
	if built < 700 || ended < 1500 {
		t.Fatalf("only %d grammars and %d texts", built, ended)
	}
}

// TestMaskIsExact compares masks with a check of every token against an independent matcher: a token may come when some
// text of the grammar, of up to a few letters more, begins that way.
func TestMaskIsExact(t *testing.T) {
	v, pieces := letters()
	const longest = 6
	var texts []string
	for n := 0; n <= longest; n++ {
		for i := range pow(3, n) {
			p := make([]byte, n)
			for j := range p {
				p[j] = "abc"[i%3]
				i /= 3
			}
			texts = append(texts, string(p))
		}
	}
	compared := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := randomSpecs(r)
		c, err := g.build(Limits{})
		if err != nil {
			continue
		}
		prefixes := map[string]bool{}
		in := map[string]bool{}
		for _, text := range texts {
			if g.accepts(text) {
				in[text] = true
				for i := range len(text) + 1 {
					prefixes[text[:i]] = true
				}
			}
		}
		for range 10 {
			m := NewMatcher(c, v)
			text := texts[r.IntN(pow(3, 4))]
			if err := m.AcceptBytes([]byte(text)); err != nil {
				if prefixes[text] {
					t.Fatalf("seed %d: %v has texts with %q: %v", seed, g, text, err)
				}
				continue
			}
			if m.MayEnd() != in[text] {
				t.Fatalf("seed %d: %v: %q is complete: %v, want %v", seed, g, text, m.MayEnd(), in[text])
			}
			mask := m.Mask()
			for id, p := range pieces[:len(pieces)-1] {
				got := has(mask, id)
				switch {
				case len(p) == 0:
					if got {
						t.Fatalf("an empty piece is allowed")
					}
				case prefixes[text+string(p)] && !got:
					t.Fatalf("seed %d: %v: after %q token %q may come", seed, g, text, p)
				case got:
					more := NewMatcher(c, v)
					if err := more.AcceptBytes([]byte(text + string(p))); err != nil {
						t.Fatalf("seed %d: %v: the mask after %q has %q: %v", seed, g, text, p, err)
					}
					if !prefixes[text+string(p)] { // a longer text must show that it was right
						if tail, ok := walk(t, r, more, pieces, 24); ok && len(tail) < 20 &&
							!g.accepts(text+string(p)+tail) {
							t.Fatalf("seed %d: %v does not have %q", seed, g, text+string(p)+tail)
						}
					}
				}
				compared++
			}
			if end := len(pieces) - 1; has(mask, end) != m.MayEnd() {
				t.Fatalf("seed %d: %v: the end token after %q", seed, g, text)
			}
		}
	}
	if compared < 50_000 {
		t.Fatalf("only %d tokens compared", compared)
	}
}

// TestClones goes on from clones that were made on the way: every place is as a replay has it, whatever the cut of the
// text into tokens.
func TestClones(t *testing.T) {
	v, pieces := letters()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		g := randomSpecs(r)
		c, err := g.build(Limits{States: 16}) // small enough to forget states on the way
		if err != nil {
			continue
		}
		m := NewMatcher(c, v)
		var taken []int
		var before []*Matcher // of each token that was taken
		for range 40 {
			switch r.IntN(4) {
			case 0:
				if n := r.IntN(len(taken) + 1); n < len(taken) {
					m, taken, before = before[n], taken[:n], before[:n]
				}
			case 1:
				m = m.Clone()
			default:
				mask := m.Mask()
				var may []int
				for id := range pieces {
					if has(mask, id) {
						may = append(may, id)
					}
				}
				if len(may) == 0 {
					t.Fatalf("seed %d: %v: nothing may come", seed, g)
				}
				id := may[r.IntN(len(may))]
				before = append(before, m.Clone())
				if err := m.Accept(int32(id)); err != nil {
					t.Fatal(err)
				}
				taken = append(taken, id)
			}
			fresh, err := g.build(Limits{})
			if err != nil {
				t.Fatal(err)
			}
			replay := NewMatcher(fresh, v)
			for _, id := range taken {
				if id == len(pieces)-1 {
					err = replay.Accept(int32(id))
				} else {
					for _, b := range pieces[id] { // cut anywhere
						err = errors.Join(err, replay.AcceptBytes([]byte{b}))
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if fmt.Sprint(m.Mask()) != fmt.Sprint(replay.Mask()) || m.MayEnd() != replay.MayEnd() ||
				string(m.Forced()) != string(replay.Forced()) {
				t.Fatalf("seed %d: %v: another state after %v", seed, g, taken)
			}
		}
	}
}
