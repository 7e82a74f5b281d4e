package kvsnap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
)

func TestSealPositions(t *testing.T) {
	many := make([]int, 64)
	for i := range many {
		many[i] = 100 * (i + 1)
	}
	for _, c := range []struct {
		n, from int
		ends    []int
		want    string
	}{
		{n: 10, want: "[]"},
		{n: 16, want: "[16]"},
		{n: 899, want: "[899 512 256 128]"},
		{n: 899, from: 256, want: "[899 512]"},
		{n: 899, from: 899, want: "[]"},
		{n: 900, ends: []int{8, 300, 512, 880, 900, 950}, want: "[900 880 512 300 256 128]"},
		{n: 8192, from: 7500, want: "[8192 7680]"},
		{n: 8700, from: 6000, want: "[8700 8192 7680 7168 6656 6144]"},
		{n: 8705, from: 6000, want: "[8705 8192 7168 6144]"},
	} {
		t.Run(fmt.Sprint(c.n, c.from), func(t *testing.T) {
			if got := fmt.Sprint(SealPositions(nil, c.n, c.from, c.ends)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	got := SealPositions([]int{7}, 100_000, 0, many)
	if len(got) > 48 || got[0] != 7 || got[1] != 100_000 || !slices.Contains(got, 100) || slices.Contains(got, 2000) ||
		!slices.Contains(got, 6400) || !slices.Contains(got, 8192) {
		t.Errorf("%d positions: %v", len(got), got)
	}
}

// TestSealPositionsFindSeals: of a prompt that one tree seals without a cached prefix, another process asks for every
// seal.
func TestSealPositionsFindSeals(t *testing.T) {
	for _, n := range []int{100, 700, 2000, 8000, 20_000} {
		tree, err := New(Config{Cells: 1 << 16, CellBytes: 1, Sequences: 32, Scratch: 2, Seals: true})
		if err != nil {
			t.Fatal(err)
		}
		tokens := make([]Token, n)
		for i := range tokens {
			tokens[i] = Token(i * 7 % 251)
		}
		ends := []int{60, n / 2, n - 20}
		got, err := tree.Acquire(0, &Prompt{Req: 1, Tokens: tokens, Shareable: 60, Seals: ends})
		if err != nil {
			t.Fatal(err)
		}
		asked := SealPositions(nil, n-1, 0, ends)
		for _, stop := range got.Stops {
			if !slices.Contains(asked, stop) {
				t.Errorf("%d tokens: sealed at %d, asked for %v", n, stop, asked)
			}
		}
		if len(got.Stops) == 0 {
			t.Errorf("%d tokens: no stops", n)
		}
	}
}

// TestSealsBesideImages: no seal ends inside an image, and none that does is found.
func TestSealsBesideImages(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		tree, err := New(Config{Cells: 1 << 16, CellBytes: 1, Sequences: 32, Scratch: 2, Seals: true})
		if err != nil {
			t.Fatal(err)
		}
		var tokens []Token
		for len(tokens) < 6000 {
			for range r.IntN(300) {
				tokens = append(tokens, Token(r.IntN(200)))
			}
			n := r.IntN(900)
			for i := range n {
				tokens = append(tokens, runtime.ImageToken(r.Uint32(), i == 0))
			}
		}
		tokens = append(tokens, 1, 2, 3)
		got, err := tree.Acquire(0, &Prompt{Req: 1, Tokens: tokens, Shareable: 60, Seals: []int{60, 700, 5000}})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Stops) == 0 {
			t.Errorf("seed %d: no stops", seed)
		}
		at := 0
		for _, stop := range got.Stops {
			if runtime.WholeImages(tokens, stop) != stop || stop <= at {
				t.Fatalf("seed %d: a stop at %d behind %d", seed, stop, at)
			}
			at = stop
		}
		// A request that is given up inside an image leaves a sequence that no prompt continues.
		inside := slices.IndexFunc(tokens, runtime.IsImage) + 5
		if !runtime.IsImage(tokens[inside]) || !runtime.IsImage(tokens[inside-4]) {
			continue
		}
		if inside < DefaultKeepMin {
			continue
		}
		tree.Progress(got.Seq, tokens, inside, blocks.Prefix)
		tree.Retain(0, got.Seq, tokens[:inside])
		if m := tree.Lookup(&Prompt{Tokens: tokens, NoWait: true}); m.Len != 0 {
			t.Fatalf("seed %d: %d tokens are shared, which end inside an image", seed, m.Len)
		}
	}
}
