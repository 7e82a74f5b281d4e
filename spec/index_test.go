package spec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// tokensOf makes one token of each byte.
func tokensOf(s string) []Token {
	t := make([]Token, len(s))
	for i := range s {
		t[i] = Token(s[i])
	}
	return t
}

func textOf(t []Token) string {
	b := make([]byte, len(t))
	for i := range t {
		b[i] = byte(t[i])
	}
	return string(b)
}

func TestGuess(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string
		match      int
	}{
		{"nothing repeats", "abcdefgh", "", 0},
		{"too short", "ab", "", 0},
		{"one token is no match", "abcdxa", "", 0},
		{"two tokens", "abcdefxbc", "defx", 2},
		{"the longer match goes before the newer one", "xyzabcdQ.abcdR.zabcd", "Q.ab", 5},
		{"of equal ones the newest", "abcP.abcQ,abc", "Q,ab", 3},
		{"a period goes on", "xxababab", "abab", 4},
		{"one repeated token", "zaaaa", "aaaa", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := tokensOf(c.text)
			x := New(len(text))
			if !x.Extend(text, len(text)) {
				t.Fatal("places are left")
			}
			dst := make([]Token, 4)
			n, match := x.Guess(text, dst)
			if got := textOf(dst[:n]); got != c.want || match != c.match {
				t.Errorf("guessed %q after %d equal tokens, want %q after %d", got, match, c.want, c.match)
			}
		})
	}
}

// TestIncremental checks that an index which grows token by token finds what a new one over the whole text finds.
func TestIncremental(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		text := randomText(rng, 300)
		x := New(len(text))
		for n := 1; n <= len(text); n++ {
			x.Extend(text[:n], 3)
			whole := New(len(text))
			whole.Extend(text[:n], n)
			var a, b [8]Token
			na, ma := x.Guess(text[:n], a[:])
			nb, mb := whole.Guess(text[:n], b[:])
			// A match that goes on is kept; a search can find an equally long, newer one.
			if na != nb || ma < min(mb, settled) {
				t.Fatalf("after %d tokens: guessed %d after %d, a new index %d after %d", n, na, ma, nb, mb)
			}
		}
	}
}

// randomText returns n tokens, in which runs of earlier tokens come again.
func randomText(rng *rand.Rand, n int) []Token {
	text := make([]Token, 0, n)
	for len(text) < n {
		if len(text) > 20 && rng.IntN(4) == 0 {
			from := rng.IntN(len(text) - 10)
			text = append(text, text[from:from+rng.IntN(10)]...)
			continue
		}
		text = append(text, Token(rng.IntN(50)))
	}
	return text[:n]
}

// TestGuessIsOfTheText checks against the definition: what is guessed followed the same match tokens earlier.
func TestGuessIsOfTheText(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		text := randomText(rng, 400)
		x := New(len(text))
		found := 0
		for n := 1; n <= len(text); n++ {
			x.Extend(text[:n], n)
			var dst [6]Token
			k, match := x.Guess(text[:n], dst[:])
			if k == 0 {
				continue
			}
			found++
			want := append(slices.Clone(text[n-match:n]), dst[:k]...)
			periodic := append(slices.Clone(text[:n]), dst[:k]...)
			ok := false
			for p := match; p < n && !ok; p++ {
				ok = slices.Equal(periodic[p-match:min(p+k, len(periodic))], want)
			}
			if !ok {
				t.Fatalf("%v never followed %v", dst[:k], text[n-match:n])
			}
		}
		if found == 0 {
			t.Fatal("nothing was ever guessed")
		}
	}
}

func TestWindow(t *testing.T) {
	text := make([]Token, 3*MaxWindow)
	for i := range text {
		text[i] = Token(i)
	}
	copy(text[len(text)-4:], text[10:14])                       // stood before the window only
	copy(text[len(text)-8:len(text)-4], text[2*MaxWindow+100:]) // and this within it
	x := New(len(text))
	if got := x.Bytes(); got != 12*MaxWindow {
		t.Errorf("an index takes %d bytes", got)
	}
	var dst [4]Token
	x.Extend(text[:len(text)-4], len(text))
	if n, match := x.Guess(text[:len(text)-4], dst[:]); n != 4 || match != 4 || dst[0] != Token(2*MaxWindow+104) {
		t.Errorf("within the window: guessed %v after %d", dst[:n], match)
	}
	x.Extend(text, len(text))
	if n, _ := x.Guess(text, dst[:]); n != 0 {
		t.Errorf("outside the window: guessed %v", dst[:n])
	}
}

func TestReset(t *testing.T) {
	x := New(100)
	text := tokensOf("abcdefabc")
	var dst [2]Token
	x.Extend(text, 100)
	if n, _ := x.Guess(text, dst[:]); n != 2 {
		t.Fatal("nothing was guessed")
	}
	x.Reset()
	if n, _ := x.Guess(text, dst[:]); n != 0 {
		t.Error("guessed before the text was indexed again")
	}
	other := tokensOf("xyzabc")
	x.Extend(other, 100)
	if n, _ := x.Guess(other, dst[:]); n != 0 {
		t.Error("guessed from a text that was forgotten")
	}
}

func TestExtendIsBounded(t *testing.T) {
	text := make([]Token, 1000)
	x := New(len(text))
	for calls := 1; ; calls++ {
		if x.Extend(text, 100) {
			if calls < 9 || calls > 10 {
				t.Errorf("%d calls", calls)
			}
			return
		}
		var dst [1]Token
		if n, _ := x.Guess(text, dst[:]); n != 0 {
			t.Fatal("guessed from half a text")
		}
	}
}

func TestGrade(t *testing.T) {
	last, seen := -1, map[int]bool{}
	for _, s := range []Source{Own, Other} {
		for match := range 200 {
			g := Grade(s, match)
			if g < last || g >= Grades || sourceOf(g) != s {
				t.Fatalf("grade %d of %v after %d", g, s, match)
			}
			last = g
			seen[g] = true
		}
	}
	if len(seen) != Grades {
		t.Errorf("%d grades of %d", len(seen), Grades)
	}
}

func TestNoAllocations(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	text := randomText(rng, 4000)
	x := New(len(text))
	x.Extend(text[:1000], 1000)
	n := 1000
	var dst [16]Token
	if got := testing.AllocsPerRun(1000, func() {
		n++
		x.Extend(text[:n], 16)
		x.Guess(text[:n], dst[:])
	}); got != 0 {
		t.Errorf("%v allocations per token", got)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("abcabcabc"), 5)
	f.Add([]byte("aaaaaaaa"), 1)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		text := tokensOf(string(b))
		x := New(len(text))
		for n := 0; n <= len(text); n += 1 + max(0, step)%7 {
			x.Extend(text[:n], 1+max(0, step)%11)
			var dst [5]Token
			if k, match := x.Guess(text[:n], dst[:]); k > 0 && (match < MinMatch || match > n) {
				t.Fatalf("a match of %d in %d tokens", match, n)
			}
		}
	})
}

func BenchmarkToken(b *testing.B) {
	text := randomText(rand.New(rand.NewPCG(7, 8)), 1<<16)
	x := New(len(text))
	var dst [16]Token
	n := 0
	for b.Loop() {
		if n++; n == len(text) {
			x.Reset()
			n = 1
		}
		x.Extend(text[:n], 16)
		x.Guess(text[:n], dst[:])
	}
}

// sourceOf is the source of the guesses of a grade.
func sourceOf(grade int) Source {
	if grade < ownGrades {
		return Own
	}
	return Other
}
