package prepare

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// cutter is a vocabulary whose texts may be cut in front of each blank, and which counts what it is asked to tokenize.
type cutter struct {
	runtime.Vocab
	bytes int
}

func (c *cutter) Tokenize(dst []runtime.Token, text string, addSpecial, parseSpecial bool) ([]runtime.Token, error) {
	c.bytes += len(text)
	return c.Vocab.Tokenize(dst, text, addSpecial, parseSpecial)
}

func (c *cutter) Cut(text string, from int, _ bool) int {
	from = max(from, 1)
	if from < len(text) {
		if i := strings.IndexByte(text[from:], ' '); i >= 0 {
			return from + i
		}
	}
	return len(text)
}

func words(seed uint64, n int) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(strings.Repeat(string(rune('a'+rng.IntN(26))), 1+rng.IntN(9)))
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

func TestTokenCache(t *testing.T) {
	v := &cutter{Vocab: fake.New(fake.Config{}).Vocab()}
	x := newTokenCache(v, 0)
	ask := func(owner uint32, text string, start, special bool) (computed int) {
		t.Helper()
		want, err := v.Vocab.Tokenize([]runtime.Token{7}, text, start, special)
		if err != nil {
			t.Fatal(err)
		}
		before := v.bytes
		got, err := x.tokenize([]runtime.Token{7}, owner, text, start, special)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d tokens, want %d; %v", len(got), len(want), err)
		}
		return v.bytes - before
	}
	for cells, want := range map[int]int{0: 512 << 10, 8192: 512 << 10, 65_536: 4 << 20, 1 << 20: 8 << 20} {
		if got := newTokenCache(v, cells).limit; got != want {
			t.Errorf("%d cells: at most %d bytes, want %d", cells, got, want)
		}
	}
	shared := words(1, 5000)
	if n := ask(1, shared, true, false); n != len(shared) {
		t.Errorf("%d bytes were tokenized of %d that are new", n, len(shared))
	}
	if n := ask(1, shared, true, false); n > 2*pieceMin {
		t.Errorf("%d bytes were tokenized of a text that is known", n)
	}
	if n := ask(1, shared+words(2, 1000), true, false); n > 1000+2*pieceMin {
		t.Errorf("%d bytes were tokenized of 1,000 that are new", n)
	}
	// Another user's, and another way to read it.
	if n := ask(2, shared, true, false); n != len(shared) {
		t.Errorf("%d bytes were tokenized of another user's text: it was known", n)
	}
	if n := ask(1, shared, true, true); n != len(shared) {
		t.Errorf("%d bytes were tokenized of a text with markers", n)
	}
	if n := ask(1, "short", false, false); n != 5 {
		t.Errorf("%d bytes were tokenized", n)
	}
	// What does not end in a cut is known as a whole; what is far too long, or empty, is nothing to remember.
	solid := strings.Repeat("x", 5000)
	ask(1, solid, true, false)
	if n := ask(1, solid, true, false); n != 0 {
		t.Errorf("%d bytes were tokenized of a text that is known as a whole", n)
	}
	ask(1, strings.Repeat("x", x.limit/2), true, false)
	ask(1, "", true, false)
	for i := range 200 {
		ask(1, words(uint64(10+i), 20_000), true, false)
		sum := 0
		for _, p := range x.lru.Keys() {
			tokens, _ := x.lru.Peek(p)
			sum += p.bytes(tokens)
		}
		if x.bytes != sum || sum > x.limit {
			t.Fatalf("%d entries take %d bytes; the cache counts %d, and may have %d", x.lru.Len(), sum, x.bytes,
				x.limit)
		}
		ask(1, shared, true, false)
	}
	if n := ask(1, shared, true, false); n > 2*pieceMin {
		t.Errorf("%d bytes were tokenized of a text that is used all the time", n)
	}
}

func FuzzTokenCache(f *testing.F) {
	f.Add("a b  c", uint16(0), true)
	f.Add(words(1, 2000), uint16(700), false)
	v := &cutter{Vocab: fake.New(fake.Config{}).Vocab()}
	x := newTokenCache(v, 0)
	f.Fuzz(func(t *testing.T, text string, at uint16, special bool) {
		for _, s := range []string{text, text[:min(int(at), len(text))], text + text} {
			want, err1 := v.Vocab.Tokenize(nil, s, true, special)
			got, err2 := x.tokenize(nil, 1, s, true, special)
			if (err1 == nil) != (err2 == nil) || !slices.Equal(got, want) {
				t.Fatalf("%q: %v %v, want %v %v", s, got, err2, want, err1)
			}
		}
	})
}
