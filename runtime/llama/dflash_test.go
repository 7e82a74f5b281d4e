//go:build cgo && llama_engine && !llama_no_heads

package llama

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama/picks"
)

// dflashOf is a random DFlash head of TinyTarget, edited.
func dflashOf(name string, edit func(*ggufgen.Config)) ggufgen.Config {
	c := ggufgen.DFlashOf(ggufgen.TinyTarget(false), ggufgen.HeadRandom, 7)
	target := *c.Target
	c.Name, c.Target = c.Name+name, &target
	edit(&c)
	return c
}

// TestKindsOfBlocks: the engines' contract with the kinds of DFlash heads that are published: with sliding windows,
// shorter than a text with a block behind it, with a Markov head (DSpark), with a selector (DFlash2), with positions in
// several dimensions, and several of these at once.
func TestKindsOfBlocks(t *testing.T) {
	model := ggufgen.Cached(t, ggufgen.TinyTarget(false))
	windows := func(c *ggufgen.Config) { c.Window = 6 }
	markov := func(c *ggufgen.Config) { c.Target.Markov = 32 }
	sides := func(c *ggufgen.Config) { c.Target.Sides = true }
	selector := func(c *ggufgen.Config) { c.Target.Candidates = 5 }
	for name, edit := range map[string]func(*ggufgen.Config){"windows": windows, "markov": markov, "sides": sides,
		"selector": selector, "selector, windows": func(c *ggufgen.Config) { windows(c); selector(c) },
		"all": func(c *ggufgen.Config) { windows(c); markov(c); sides(c) }} {
		t.Run(name, func(t *testing.T) {
			enginetest.RunHead(t, opener(model), &runtime.Options{ModelPath: ggufgen.Cached(t, dflashOf(name, edit))})
		})
	}
}

// TestPicks: the guesses are the best candidates, each by the scores behind the one before.
func TestPicks(t *testing.T) {
	nan := float32(math.NaN())
	p := picks.Picks{Most: 2}
	p.Open(4, 10)
	rows := [][]float32{
		{3, 4, 1, 2, 1, 2}, // behind the newest token: the same in each column
		{5, 6, 9, 0, 0, 9}, // behind 3 it is 5, behind 4 it is 6
		{7, 8, 9, 0, nan, 1},
		{-1, 99, nan, nan, nan, nan}, // no tokens
	}
	before := 0
	for i, want := range []runtime.Token{4, 6, 8, -1} {
		before = p.Pick(i, rows[i], before)
		row := p.Candidates(i)
		if tok, _ := ArgMax(row); tok != want {
			t.Errorf("guess %d is %d of %v, want %d", i, tok, row, want)
		}
	}
	if row := p.Candidates(1); row[5] != 0 || row[6] != 9 || row[7] != float32(math.Inf(-1)) {
		t.Errorf("the logits are %v", row)
	}
}

// TestMarkovHead: a guess of a DSpark head is the row of the DFlash head that it is without the Markov head, and what
// that adds behind the guess before.
func TestMarkovHead(t *testing.T) {
	const rank, size = 32, 7
	model := ggufgen.TinyTarget(false)
	path := ggufgen.Cached(t, dflashOf("markov", func(c *ggufgen.Config) {
		c.Type, c.Target.Markov = ggufgen.F32, rank
	}))
	w1, w2 := numbers(t, path, "markov_w1.weight"), numbers(t, path, "markov_w2.weight")
	text := []runtime.Token{20, 300, 41, 77, 5}
	block := func(path string, size int) (rows [][]float32) {
		e, h, err := headOf(t, model, path)
		if err != nil {
			t.Fatal(err)
		}
		if h.Block() != size {
			t.Fatalf("a block has %d guesses, want %d", h.Block(), size)
		}
		e.KeepStates(true)
		for i, tok := range text {
			e.Batch().Add(tok, runtime.Pos(i), 0, true)
		}
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		for i, tok := range text[1:] {
			h.Follow(h.Batch().Add(tok, runtime.Pos(i+1), 0, false), e.State(i))
		}
		for i := range size {
			h.Batch().Add(0, runtime.Pos(len(text)+i), 0, true)
		}
		if err := h.Decode(); err != nil {
			t.Fatal(err)
		}
		for i := range size {
			rows = append(rows, slices.Clone(h.Logits(len(text)-1+i)))
		}
		return rows
	}
	guesses := block(path, size)
	// Without a Markov head the first guess is made in the row behind the newest token's.
	plain := block(without(t, without(t, path, "markov_w1.weight"), "markov_w2.weight"), size-1)
	for k := 1; k < size; k++ {
		before, _ := ArgMax(guesses[k-1])
		for tok, got := range guesses[k] {
			want := float64(plain[k-1][tok])
			if tok%2 != 0 { // see ggufgen.DFlashOf
				if got > -1e30 {
					t.Errorf("guess %d: the logit of token %d is %v", k, tok, got)
				}
				continue
			}
			for r := range rank {
				want += float64(w2[tok/2*rank+r]) * float64(w1[int(before)*rank+r])
			}
			if d := float64(got) - want; max(d, -d) > 1e-3*max(1, math.Abs(want)) {
				t.Fatalf("guess %d behind token %d: the logit of token %d is %v, want %v", k, before, tok, got, want)
			}
		}
	}
}

// numbers returns the numbers of an F32 tensor in a file.
func numbers(t *testing.T, path, name string) (list []float32) {
	t.Helper()
	_, tensors := apart(t, path)
	i := slices.IndexFunc(tensors, func(of gguffile.Tensor) bool { return of.Name == name })
	if i < 0 {
		t.Fatalf("%s has no tensor %s", path, name)
	}
	var b bytes.Buffer
	if _, err := tensors[i].Data.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	list = make([]float32, b.Len()/4)
	if err := binary.Read(&b, binary.LittleEndian, list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestWindowsKeepTheirCells: while a block lies behind a text, no other sequence takes the cells before its window: the
// text is guessed as before once the block is removed, whatever another sequence has computed meanwhile.
func TestWindowsKeepTheirCells(t *testing.T) {
	const n = 24 // four windows
	_, h, err := headOf(t, ggufgen.TinyTarget(false), ggufgen.Cached(t, dflashOf("windows", func(c *ggufgen.Config) {
		c.Window = 6
	})))
	if err != nil {
		t.Fatal(err)
	}
	state := make([]float32, h.StateWidth())
	// decode decodes the tokens at [from, to) of a text, each behind a state, and guesses, whose rows it returns.
	decode := func(seq runtime.Seq, from, to, guesses int) (rows [][]float32) {
		t.Helper()
		b := h.Batch()
		b.Reset()
		for p := from; p < to; p++ {
			for i := range state {
				state[i] = float32(math.Sin(float64(7*p+i) + float64(seq)))
			}
			h.Follow(b.Add(runtime.Token(20+p*37%400), runtime.Pos(p), seq, false), state)
		}
		for i := range guesses {
			b.Add(0, runtime.Pos(to+i), seq, true)
		}
		if err := h.Decode(); err != nil {
			t.Fatal(err)
		}
		for i := range guesses {
			rows = append(rows, slices.Clone(h.Logits(to-from+i)))
		}
		return rows
	}
	remove := func(seq runtime.Seq, from runtime.Pos) {
		t.Helper()
		if !h.SeqRemove(seq, from, -1) {
			t.Fatal("cells cannot be removed")
		}
	}
	decode(1, 1, 10, 0)
	decode(0, 1, n-1, 0)
	want := decode(0, n-1, n, h.Block())
	remove(1, 0)
	decode(1, 1, 50, 0) // in free cells before those of the text, and behind them
	remove(0, n-1)
	for i, row := range decode(0, n-1, n, h.Block()) {
		for tok := range row {
			if d := row[tok] - want[i][tok]; row[tok] != want[i][tok] && !(max(d, -d) < 0.05) {
				t.Fatalf("guess %d: the logit of token %d is %v, and was %v", i, tok, row[tok], want[i][tok])
			}
		}
	}
}
