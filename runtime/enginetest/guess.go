package enginetest

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// guessedSteps are the guesses of a step and how many of them are right, one step after the other.
var guessedSteps = []struct{ rows, right int }{{3, 0}, {4, 2}, {2, 2}, {1, 0}, {6, 4}, {1, 1}, {5, 3}}

// guesses decodes a text with guesses in each step, wrong ones behind right ones, and takes back what was wrong: cells
// are removed, and a sequence with a state (Seals) goes back to a copy. Each row has the logits that it has when the
// text is decoded token by token. So has the row behind a copy of what was kept, and behind a snapshot of that.
//
// The texts cross windows of 32 tokens and what is compressed from 4 or 128 of them.
func guesses(t *testing.T, s *subject) {
	const steps = 26
	for _, start := range []int{3, 21, 115} {
		text := s.tokens(3, start+steps+8)
		want := make([][]float32, start+steps)
		s.fill(0, 0, text[:start])
		for i := start; i < len(want); i++ {
			want[i] = s.decode(0, i, text[i])
		}
		s.empty(0)
		g := &guessed{subject: s, text: text, want: want, kept: start, next: start}
		s.fill(answer, 0, text[:start])
		for i := 0; g.next < len(want); i++ {
			if g.kept < g.next {
				g.step(0, 0)
			}
			g.step(guessedSteps[i%len(guessedSteps)].rows, guessedSteps[i%len(guessedSteps)].right)
			g.copies(i)
		}
		s.empty(answer)
	}
}

// The sequences of guesses.
const (
	answer runtime.Seq = iota
	way                // the copy before a step
	shared
	again
	scratch
)

// guessed is a text that is decoded with guesses.
type guessed struct {
	*subject
	text []runtime.Token
	want [][]float32 // by position
	kept int         // tokens of the text in the sequence
	next int         // the first position whose row is not known. Invariant: kept ≤ next
}

// step decodes the tokens from kept to next, and guesses of which so many are right.
func (g *guessed) step(rows, right int) {
	g.Helper()
	seals := g.Capabilities().Seals
	if seals && rows > 0 {
		g.SeqCopy(answer, way, 0, -1)
	}
	b := g.Batch()
	b.Reset()
	first := 0
	for p := g.kept; p <= g.next+rows; p++ {
		tok := g.text[p]
		if p > g.next+right {
			tok = g.text[(p*5+1)%8] // most likely another one
		}
		if row := b.Add(tok, runtime.Pos(p), answer, p >= g.next); p == g.next {
			first = row
		}
	}
	g.mustDecode()
	for i := 0; i <= right && g.next+i < len(g.want); i++ {
		g.near("a step with guesses", g.want[g.next+i], g.logits(first+i))
	}
	g.next += right + 1
	switch {
	case right == rows:
		g.kept = g.next
	case !seals:
		if g.kept = g.next; !g.SeqRemove(answer, runtime.Pos(g.kept), -1) {
			g.Fatal("wrong guesses cannot be removed")
		}
	default:
		g.empty(answer)
		g.SeqCopy(way, answer, 0, -1)
	}
	if seals && rows > 0 {
		g.empty(way)
	}
	g.wantRangeEnd(answer, g.kept-1)
}

func (g *guessed) wantRangeEnd(seq runtime.Seq, last int) {
	g.Helper()
	if _, got := g.SeqRange(seq); int(got) != last {
		g.Fatalf("sequence %d ends at %d, want %d", seq, got, last)
	}
}

// copies continues copies of what was kept: one that has outlived a copy in between, and one from a snapshot.
func (g *guessed) copies(i int) {
	g.Helper()
	c, p := g.Capabilities(), g.kept
	if !c.Seals {
		p -= i % 6 // a fork at any place
	}
	if p >= len(g.want) || g.want[p] == nil {
		return
	}
	g.SeqCopy(answer, shared, 0, runtime.Pos(p))
	g.SeqCopy(shared, again, 0, -1)
	g.empty(shared)
	if (c.SnapshotTokens == 0 || p <= c.SnapshotTokens) && 2*p+16 <= c.ContextTokens {
		snap := g.snapshot(again, scratch, 0, -1)
		if err := g.Restore(snap, shared, scratch); err != nil {
			g.Fatal(err)
		}
		g.near("behind a snapshot of a copy", g.want[p], g.decode(shared, p, g.text[p]))
		g.empty(shared)
	}
	g.near("behind a copy of a copy", g.want[p], g.decode(again, p, g.text[p]))
	g.empty(again)
}

// Guesses tests what Run does about guesses.
func Guesses(t *testing.T, e runtime.Engine) { guesses(t, &subject{T: t, Engine: e}) }
