package cuts

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func testCuts() *Cuts {
	c := &Cuts{Recursive: true, AtMarkers: true}
	c.Add("<|im_start|>", true)
	c.Add("<|im_end|>", true)
	c.Add("<think>", true)
	c.Add("<strips>", false)
	c.Add("x<think>", true) // overlaps another one
	return c
}

// pieces cuts text and checks what every cut must keep.
func pieces(t *testing.T, c *Cuts, text string, parse bool) (out []string) {
	t.Helper()
	for rest := text; rest != ""; {
		n := c.First(rest, parse)
		if n <= 0 || n > len(rest) {
			t.Fatalf("a piece of %d of %d bytes", n, len(rest))
		}
		if n < len(rest) {
			if at := len(text) - len(rest) + n; c.inside(text, at) != at {
				t.Fatalf("cut inside of a marker, at %q", text[at-8:at+8])
			}
		}
		out = append(out, rest[:n])
		rest = rest[n:]
	}
	return out
}

func TestCuts(t *testing.T) {
	words := strings.Repeat("some words in a row, and a number 42\n", 10_000)
	for _, c := range []struct {
		name, text string
		parse      bool
		want       int // pieces
	}{
		{"short", "hello <|im_start|> world", true, 1},
		{"long and ordinary", words, true, 1},
		{"one word", strings.Repeat("a", 200_000), false, 4},
		{"blanks", strings.Repeat(" ", 200_000), false, 4},
		{"blanks of two kinds", strings.Repeat(" \u3000", 100_000), false, 4},
		{"at the limit", strings.Repeat("é", longestRun), false, 1},
		{"above the limit", strings.Repeat("é", longestRun+1), false, 2},
		{"markers", strings.Repeat("<|im_end|>", 4096), true, 3},
		{"markers not parsed", strings.Repeat("<|im_end|> a", 4096), false, 1},
		{"markers that strip", strings.Repeat("<strips> a b", 4096), true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pieces(t, testCuts(), c.text, c.parse)
			if len(got) != c.want {
				t.Errorf("%d pieces, want %d", len(got), c.want)
			}
			for _, p := range got {
				if !strings.HasPrefix(c.text, "\xff") && !validStart(p) {
					t.Errorf("a piece begins inside of a character: %q", p[:4])
				}
			}
		})
	}
}

func validStart(s string) bool { return s[0]&0xc0 != 0x80 }

func TestCutsRandom(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"<|im_start|>", "<|im_end|>", "x<think>", "<think>", "<strips>", "aaaa", " ", "\n", "é", "。",
		"<|im_", strings.Repeat("z", 9000), strings.Repeat("。", 30_000)}
	for range 20 {
		var b strings.Builder
		for b.Len() < 200_000 {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		got := pieces(t, testCuts(), b.String(), r.IntN(2) == 0)
		if strings.Join(got, "") != b.String() {
			t.Fatalf("seed %d: the pieces are not the text", seed)
		}
	}
}
