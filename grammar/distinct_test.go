package grammar

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// wordKey is a Key of words, without regard to case.
func wordKey(s *regex.Set) *Key {
	fold := func(c byte) regex.Expr { return s.Or(s.Byte(c), s.Byte(c-'a'+'A')) }
	letters := s.Bytes(regex.ByteRange('a', 'z').Union(regex.ByteRange('A', 'Z')))
	words := s.Concat(letters, s.Star(letters))
	return &Key{Texts: words, Value: func(text []byte) string { return strings.ToLower(string(text)) },
		Without: func(values []string) regex.Expr {
			e := words
			for _, v := range values {
				one := s.Empty()
				for i := range len(v) {
					one = s.Concat(one, fold(v[i]))
				}
				e = s.Minus(e, one)
			}
			return e
		}}
}

// TestKeysDiffer: of members with a Key no two begin alike; a token is only offered if it can be accepted, and a token
// that holds at most one key's end is offered if it can.
func TestKeysDiffer(t *testing.T) {
	b := NewBuilder(Limits{})
	key := wordKey(b.Regex())
	g, err := b.Build(b.Seq(b.Literal("<"), b.Unordered(b.Literal(","), 1, Unbounded,
		Member{Key: key, Node: b.Literal("=1"), Min: 1, Max: 2},
		Member{Key: key, Node: b.Literal("=2"), Max: Unbounded}), b.Literal(">")))
	if err != nil {
		t.Fatal(err)
	}
	var pieces [][]byte
	for _, text := range []string{"<", ">", "=", "1", "2", ",", "a", "b", "A", "ab", "=1,", "=2,a", "a=1", "a=1,b=2",
		"=1,a=", "ba", "=2>", "B=1,"} {
		pieces = append(pieces, []byte(text))
	}
	end := int32(len(pieces))
	v := NewVocabulary(append(pieces, nil), []int32{end})
	valid := func(text string) bool {
		seen, ones := map[string]bool{}, 0
		for _, m := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "<"), ">"), ",") {
			name, value, _ := strings.Cut(m, "=")
			if seen[strings.ToLower(name)] || name == "" || value != "1" && value != "2" {
				return false
			}
			if seen[strings.ToLower(name)] = true; value == "1" {
				ones++
			}
		}
		return ones == 1 || ones == 2
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	done := 0
	for range 400 {
		m := NewMatcher(g, v)
		text := ""
		for step := 0; step < 40 && !m.Done(); step++ {
			mask := m.Mask()
			var may []int32
			for tok := range end {
				c := m.Clone()
				ok := c.Accept(tok) == nil
				offered := mask[tok/32]>>(tok%32)&1 != 0
				if offered && !ok || ok && !offered && strings.Count(string(pieces[tok]), "=") < 2 {
					t.Fatalf("seed %d: after %q, %q is offered: %v, accepted: %v", seed, text, pieces[tok], offered, ok)
				}
				if offered {
					may = append(may, tok)
				}
			}
			if len(may) == 0 {
				t.Fatalf("seed %d: nothing may follow %q: %v", seed, text, m.Err())
			}
			tok := may[r.IntN(len(may))]
			if step > 20 && slices.Contains(may, 1) {
				tok = 1
			}
			if err := m.Accept(tok); err != nil {
				t.Fatal(err)
			}
			text += string(pieces[tok])
		}
		if m.Done() {
			if done++; !valid(text) {
				t.Fatalf("seed %d: %q", seed, text)
			}
		}
	}
	if done < 100 {
		t.Errorf("%d texts were finished", done)
	}
	for text, want := range map[string]bool{"<a=1>": true, "<a=2>": false, "<a=2,b=1>": true, "<a=1,A=2>": false,
		"<ab=1,a=2,b=2,ba=1>": true, "<ab=1,a=1,b=1>": false, "<a=1,aA=2,aaa=2,AA=2>": false, "<>": false} {
		m := NewMatcher(g, v)
		if got := m.AcceptBytes([]byte(text)) == nil && m.MayEnd(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestKeyLimits: a list takes no more keys than are remembered, and a key is not empty.
func TestKeyLimits(t *testing.T) {
	b := NewBuilder(Limits{})
	s := b.Regex()
	digit := s.Bytes(regex.ByteRange('0', '9'))
	words := s.Repeat(digit, 4, 4)
	g, err := b.Build(b.Unordered(b.Literal(","), 0, Unbounded, Member{Node: b.Empty(), Max: Unbounded,
		Key: &Key{Texts: words, Value: func(text []byte) string { return string(text) },
			Without: func(values []string) regex.Expr { return s.Minus(words, s.Literals(values)) }}}))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMatcher(g, NewVocabulary([][]byte{{'0'}}, nil))
	for i := range MaxDistinct {
		text := ",0000"
		if i == 0 {
			text = text[1:]
		}
		number := []byte(text)
		for n, at := i, len(number)-1; n > 0; n, at = n/10, at-1 {
			number[at] = '0' + byte(n%10)
		}
		if err := m.AcceptBytes(number); err != nil {
			t.Fatal(i, err, m.Err())
		}
		if i == 0 && m.Clone().AcceptBytes([]byte(",0000")) == nil {
			t.Error("a key came twice")
		}
	}
	if !m.Done() || m.Err() != nil {
		t.Errorf("after %d keys: done %v, %v", MaxDistinct, m.Done(), m.Err())
	}
	b = NewBuilder(Limits{})
	if _, err := b.Build(b.Unordered(b.Literal(","), 0, Unbounded, Member{Node: b.Literal("x"), Max: 1,
		Key: &Key{Texts: b.Regex().Empty()}})); err == nil {
		t.Error("a key may be empty")
	}
}
