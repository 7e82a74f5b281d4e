package enginetest

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// drafts tests what an engine is asked for as a draft model: in several sequences at once, tokens of a history and then
// guesses one after the other, of which those that did not come true are removed.
func drafts(t *testing.T, s *subject) {
	if s.Capabilities().Seals {
		s.guard()
		t.Skip("its memory cannot remove single cells: it is no draft model")
	}
	const n, guesses = 10, 4
	for seq := range runtime.Seq(2) {
		s.decode(seq, 0, s.tokens(1+int(seq), n)...)
	}
	for k := range guesses { // rounds of both
		s.Batch().Reset()
		for seq := range runtime.Seq(2) {
			s.add(seq, n+k, s.tokens(5+int(seq), guesses)[k])
		}
		s.mustDecode()
	}
	for seq := range runtime.Seq(2) {
		keep := n + int(seq) // the first guess of sequence 1 came true
		if !s.SeqRemove(seq, runtime.Pos(keep), -1) {
			t.Fatalf("sequence %d: guesses could not be removed", seq)
		}
		s.wantRange("after the guesses", seq, 0, keep-1)
	}
	// What came instead, and the history alone in another sequence.
	next := s.tokens(7, 3)
	got := s.decode(0, n, next...)
	s.decode(3, 0, s.tokens(1, n)...)
	s.same("behind guesses that were removed", s.decode(3, n, next...), got)
	got = s.decode(1, n+1, next...)
	s.decode(4, 0, s.tokens(2, n)...)
	s.decode(4, n, s.tokens(6, guesses)[0])
	s.near("behind a guess that came true", s.decode(4, n+1, next...), got)
}

// guard tests what becomes of guesses for a sequence with a state: it is copied, and after a wrong guess the copy takes
// its place.
func (s *subject) guard() {
	const n, guard = 10, 5
	s.decode(0, 0, s.tokens(1, n)...)
	s.decode(3, 0, s.tokens(1, n)...)
	next := s.tokens(7, 3)
	for round := range 3 {
		s.SeqCopy(0, guard, 0, n)
		s.decode(0, n, s.tokens(20+round, 2+round)...)
		if !s.SeqRemove(0, 0, -1) {
			s.Fatal("a whole sequence could not be removed")
		}
		s.SeqCopy(guard, 0, 0, n)
		if !s.SeqRemove(guard, 0, -1) {
			s.Fatal("the copy could not be removed")
		}
		s.wantRange("after wrong guesses", 0, 0, n-1)
	}
	s.same("behind wrong guesses", s.decode(0, n, next...), s.decode(3, n, next...))

	s.SeqCopy(0, guard, 0, runtime.Pos(n+len(next)))
	got := s.decode(0, n+len(next), s.tokens(9, 2)...)
	s.SeqRemove(guard, 0, -1)
	s.same("behind right guesses", got, s.decode(3, n+len(next), s.tokens(9, 2)...))
}

// twoEngines tests that two engines of a process do not disturb each other: a model and its draft model.
func twoEngines(t *testing.T, a, b *subject) {
	const n, size = 24, 6
	run := func(between func(at int)) (last []float32) {
		a.empty(0)
		prompt := a.tokens(3, n)
		for at := 0; at < n; at += size {
			between(at)
			last = a.decode(0, at, prompt[at:at+size]...)
			between(at)
			a.same("after a Decode of the other engine", last, a.Logits(size-1))
		}
		return last
	}
	alone := run(func(int) {})
	at := 0
	beside := run(func(int) {
		b.decode(1, at, b.tokens(9, at+3)[at:]...)
		at += 3
		if at > 12 && !b.Capabilities().Seals {
			at = 5
			if !b.SeqRemove(1, 5, -1) {
				t.Fatal("a range could not be removed")
			}
		}
	})
	a.same("beside another engine", alone, beside)
	b.wantRange("the other engine", 0, -1, -1)
}
