package enginetest

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// RunHead tests the head of the models that open opens, which must be used: of the model's file, or of another one.
func RunHead(t *testing.T, open Open, file *runtime.Options) {
	o := runtime.Options{ContextTokens: 512, Batch: 128, MicroBatch: 32, Sequences: 8, Head: file == nil}
	first := open(t, o)
	defer first.Close()
	e := open(t, o) // without a head its logits are to be the same
	defer e.Close()
	h, err := e.(runtime.Headed).OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 4, File: file})
	if err != nil || h == nil {
		t.Fatalf("the head: %v, %v", h, err)
	}
	defer h.Close()
	alone := &subject{T: t, Engine: first, o: o}
	text := alone.tokens(3, 12)
	states(t, &subject{T: t, Engine: e, o: o}, h, alone.decode(0, 0, text...))
}

// heads tests the head of an engine's model, if it has one in its file.
func heads(t *testing.T, s *subject) {
	e, ok := s.Engine.(runtime.Headed)
	if !ok {
		t.Skip("the engine has no heads")
	}
	h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 4})
	if err != nil {
		t.Skip(err)
	}
	if h == nil {
		t.Skip("the model has no head")
	}
	defer h.Close()
	states(t, s, h, nil)
}

// states tests a model with its head: states are kept of all rows and change no logits, and the head's rows depend on
// what they follow alone, whatever its batches were. alone are the logits of a model without the head behind the first
// tokens; nil: they are not known.
func states(t *testing.T, s *subject, h runtime.Head, alone []float32) {
	e := s.Engine.(runtime.Headed)
	const n = 12
	text := s.tokens(3, n+1)
	plain := s.decode(0, 0, text[:n]...)
	if alone != nil {
		s.near("beside a head", alone, plain)
	}
	if e.State(n-1) != nil {
		t.Error("a state was kept before KeepStates")
	}
	e.KeepStates(true)
	var kept [][]float32 // of the rows, in batches of several sizes
	keep := func(seq runtime.Seq, from, to int) []float32 {
		logits := s.decode(seq, from, text[from:to]...)
		for i := range to - from {
			kept = append(kept, slices.Clone(e.State(i)))
			if len(kept[from+i]) != h.StateWidth() || h.StateWidth() == 0 {
				t.Fatalf("the state of row %d has %d numbers, want %d", i, len(kept[from+i]), h.StateWidth())
			}
		}
		return logits
	}
	keep(1, 0, 5)
	keep(1, 5, 6)
	s.near("with states", plain, keep(1, 6, n))
	if e.State(n) != nil || e.State(-1) != nil {
		t.Error("a row that was not decoded has a state")
	}
	e.KeepStates(false)
	behind := s.decode(1, n, text[n])
	if e.State(0) != nil {
		t.Error("a state was kept after KeepStates(false)")
	}

	hs := &subject{T: t, Engine: h, o: s.o}
	const first = 4 // it does not know what is before
	if h.Shared() {
		hs.shares(s, h, text, kept)
		s.near("behind guesses", behind, s.decode(0, n, text[n]))
		return
	}
	if h.Block() > 1 {
		hs.blocks(h, text, kept, first)
		return
	}
	// feed decodes the tokens at [from, to) in a sequence of the head, each behind the state of the row before.
	feed := func(seq runtime.Seq, from, to int) []float32 {
		h.Batch().Reset()
		row := hs.add(seq, from, text[from:to]...)
		for i := from; i < to; i++ {
			h.Follow(i-from, kept[i-1])
		}
		hs.mustDecode()
		if from < to-1 && h.State(0) != nil {
			t.Error("a row without logits has a state to follow")
		}
		return hs.logits(row)
	}
	// guess decodes a token behind the newest row, whose state is given.
	guess := func(seq runtime.Seq, at int, tok runtime.Token, state []float32) []float32 {
		h.Batch().Reset()
		row := h.Batch().Add(tok, runtime.Pos(at), seq, true)
		h.Follow(row, state)
		hs.mustDecode()
		return hs.logits(row)
	}
	whole := feed(0, first, n)
	own := slices.Clone(h.State(n - first - 1))
	feed(1, first, 7)
	hs.near("a history in two batches", whole, feed(1, 7, n))
	next := guess(0, n, text[n], own)
	hs.differ("the next guess", whole, next)
	hs.wantRange("after a guess", 0, first, n)
	for seq := range runtime.Seq(2) {
		if !h.SeqRemove(seq, n, -1) {
			t.Fatal("a guess could not be removed")
		}
	}
	hs.near("a guess again", next, guess(0, n, text[n], own))
	if !h.SeqRemove(0, n, -1) {
		t.Fatal("a guess could not be removed")
	}
	hs.differ("behind another state", next, guess(0, n, text[n], kept[1]))
	hs.empty(0, 1)
}

// shares tests a head that reads the cells of model, whose sequence 0 has a text but for its newest token: guesses
// depend on the history and on what they follow, and leave nothing.
func (s *subject) shares(model *subject, h runtime.Head, text []runtime.Token, kept [][]float32) {
	n := len(kept)
	guess := func(seq runtime.Seq, tok runtime.Token, state []float32) ([]float32, []float32) {
		h.Batch().Reset()
		row := h.Batch().Add(tok, runtime.Pos(n), seq, true)
		h.Follow(row, state)
		s.mustDecode()
		return s.logits(row), slices.Clone(h.State(row))
	}
	first, own := guess(0, text[n], kept[n-1])
	second, _ := guess(0, text[n-1], own)
	again, _ := guess(0, text[n], kept[n-1])
	s.near("a guess again", first, again)
	other, _ := guess(0, text[n], kept[1])
	s.differ("behind another state", first, other)
	model.wantRange("after guesses", 0, 0, n-1)

	// The same history in other cells, from two batches and a copy, and both guesses in one batch.
	const short = 5
	model.decode(2, 0, text[:short]...)
	model.SeqCopy(2, 3, 0, short)
	model.decode(3, short, text[short:n]...)
	h.Batch().Reset()
	h.Follow(h.Batch().Add(text[n-1], runtime.Pos(n), 0, true), own)
	h.Follow(h.Batch().Add(text[n], runtime.Pos(n), 3, true), kept[n-1])
	s.mustDecode()
	s.near("behind the guess", second, s.logits(0))
	s.near("behind the same history", first, s.logits(1))
	model.empty(2, 3)
}

// blocks tests a head that guesses blocks behind a text whose states are kept, which it knows from first on: guesses
// depend on the history alone, whatever its batches were.
func (s *subject) blocks(h runtime.Head, text []runtime.Token, kept [][]float32, first int) {
	n, size := len(kept), h.Block()
	// add adds the tokens at [from, to), each behind the state of the row before, and a block of guesses to be made.
	add := func(seq runtime.Seq, from, to int, guess bool) (row int) {
		b := h.Batch()
		for i := from; i < to; i++ {
			h.Follow(b.Add(text[i], runtime.Pos(i), seq, false), kept[i-1])
		}
		row = b.Len()
		for i := to; guess && i < to+size; i++ {
			b.Add(0, runtime.Pos(i), seq, true)
		}
		return row
	}
	block := func(row int) (logits [][]float32) {
		for i := range size {
			logits = append(logits, s.logits(row+i))
		}
		return logits
	}
	guess := func(seq runtime.Seq, from, to int) [][]float32 {
		h.Batch().Reset()
		row := add(seq, from, to, true)
		s.mustDecode()
		return block(row)
	}
	same := func(what string, want, got [][]float32) {
		s.Helper()
		for i := range want {
			s.near(what, want[i], got[i])
		}
	}
	remove := func(seq runtime.Seq, from int) {
		if !h.SeqRemove(seq, runtime.Pos(from), -1) {
			s.Fatal("guesses could not be removed")
		}
	}
	whole := guess(0, first, n)
	s.differ("two guesses of a block", whole[0], whole[1])
	remove(0, n)
	s.wantRange("after a guess", 0, first, n-1)
	h.Batch().Reset()
	add(1, first, 7, false)
	s.mustDecode()
	same("a history in two batches", whole, guess(1, 7, n))
	next := guess(0, n, n+1)
	s.differ("the next guess", whole[0], next[0])
	for seq := range runtime.Seq(2) {
		remove(seq, n)
	}
	h.Batch().Reset()
	rows := [2]int{add(0, n, n+1, true), add(2, first, n, true)}
	s.mustDecode()
	same("a guess again", next, block(rows[0]))
	same("beside another", whole, block(rows[1]))
	kept[n-1], kept[1] = kept[1], kept[n-1]
	s.differ("behind another state", next[0], guess(1, n, n+1)[0])
	s.empty(0, 1, 2)
}
