package enginetest

import (
	"errors"
	"math"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

func kvFull(t *testing.T, s *subject) {
	c := s.Capabilities()
	if !c.UnifiedKV {
		t.Skip("no unified pool")
	}
	total, keep := c.ContextTokens, 24
	prompt := s.tokens(3, keep)
	want := s.decode(0, 0, prompt...)
	s.fill(1, 0, s.tokens(1, total-keep))

	s.Batch().Reset()
	s.add(0, keep, prompt[0])
	if err := s.Decode(); !errors.Is(err, runtime.ErrKVFull) {
		if s.Model().SlidingWindow > 0 && err == nil {
			t.Skip("cells behind the window are reused before the pool is full")
		}
		t.Fatalf("decode into a full pool: %v, want ErrKVFull", err)
	}
	if s.Logits(0) != nil {
		t.Error("there are logits after ErrKVFull")
	}
	s.wantRange("after ErrKVFull", 0, 0, keep-1)
	s.wantRange("after ErrKVFull", 1, 0, total-keep-1)

	// A batch that fits only in part fails as a whole.
	if !c.Seals {
		if !s.SeqRemove(1, runtime.Pos(total-keep-3), -1) {
			t.Fatal("the tail could not be removed")
		}
		s.Batch().Reset()
		s.add(0, keep, prompt[:4]...)
		if err := s.Decode(); !errors.Is(err, runtime.ErrKVFull) {
			t.Fatalf("4 rows into 3 free cells: %v, want ErrKVFull", err)
		}
		s.wantRange("after the second ErrKVFull", 0, 0, keep-1)
	}
	s.empty(1)
	s.Batch().Reset()
	s.add(0, keep, prompt[0])
	if err := s.Decode(); err != nil {
		t.Fatalf("retry after freeing: %v", err)
	}
	s.empty(0)
	s.same("the prompt, after the pool was full", want, s.decode(0, 0, prompt...))
}

// pagedKV fills the pool with two sequences in turn and empties one: a prompt that is longer than each hole
// which is left has the logits that it had in an empty pool.
func pagedKV(t *testing.T, s *subject) {
	c := s.Capabilities()
	if !c.PagedKV {
		t.Skip("no paged cells")
	}
	const hole, keep = 8, 40
	prompt := s.tokens(3, keep)
	want := s.decode(0, 0, prompt...)
	s.empty(0)
	each := c.ContextTokens / 2 / hole * hole
	one, two := s.tokens(1, each), s.tokens(2, each)
	for p := 0; p < each; p += hole {
		s.fill(1, p, one[p:p+hole])
		s.fill(2, p, two[p:p+hole])
	}
	s.empty(1)
	s.near("the prompt, in holes of the pool", want, s.decode(0, 0, prompt...))
	s.empty(0, 2)
}

func remove(t *testing.T, s *subject) {
	prompt := s.tokens(2, 20)
	s.decode(0, 0, prompt[:12]...)
	want := s.decode(0, 12, prompt[12:]...)
	if !s.SeqRemove(0, 12, -1) {
		if !s.Capabilities().Seals {
			t.Fatal("no Seals, and a tail cannot be removed")
		}
		s.wantRange("after a refused removal", 0, 0, 19)
		s.empty(0)
		return
	}
	s.wantRange("after removing the tail", 0, 0, 11)
	s.same("the tail, decoded again", want, s.decode(0, 12, prompt[12:]...))

	if !s.Capabilities().Seals {
		if !s.SeqRemove(0, 0, 5) || !s.SeqRemove(0, 15, 18) {
			t.Error("no Seals, and a head and a middle cannot be removed")
		}
		s.wantRange("after removing the head", 0, 5, 19)
		if !s.SeqRemove(0, 100, 200) || !s.SeqRemove(3, 0, -1) {
			t.Error("removing nothing is refused")
		}
	}
	for _, bad := range []runtime.Seq{-1, runtime.Seq(s.Capabilities().MaxSequences), math.MaxInt32} {
		if s.SeqRemove(bad, 0, -1) {
			t.Errorf("sequence %d does not exist and was removed", bad)
		}
		s.wantRange("no such sequence", bad, -1, -1)
	}
	s.empty(0)
}

// kept requires that cells stay their sequence's while others compute. Free cells lie before and behind those of a
// sequence that is longer than a window: a search that does not find enough of them before must continue behind.
func kept(t *testing.T, s *subject) {
	if s.Capabilities().Seals {
		return // such a sequence is used at its end only
	}
	const long, part = 120, 60
	prompt, next := s.tokens(4, long), s.tokens(5, 1)
	s.fill(0, 0, prompt[:part])
	want := s.decode(0, part, next...)
	s.empty(0)

	s.fill(0, 0, s.tokens(6, 20))
	s.fill(1, 0, prompt)
	s.empty(0)
	s.fill(2, 0, s.tokens(7, 40))
	s.wantRange("a bystander", 1, 0, long-1)
	s.SeqCopy(1, 3, 0, part)
	s.near("continued in the middle", want, s.decode(3, part, next...))
	s.empty(1, 2, 3)
}

func copying(t *testing.T, s *subject) {
	c := s.Capabilities()
	prompt, next := s.tokens(4, 40), s.tokens(5, 1)
	s.decode(0, 0, prompt...)
	want := s.decode(0, 40, next...)
	s.empty(0)
	s.decode(0, 0, prompt...)

	s.SeqCopy(0, 1, 0, -1)
	s.wantRange("the copy", 1, 0, 39)
	s.wantRange("the original", 0, 0, 39)
	s.same("after the copy", want, s.decode(1, 40, next...))
	s.same("after the original", want, s.decode(0, 40, next...))
	s.empty(0)
	s.wantRange("the copy, its original gone", 1, 0, 40)

	// Shared cells are counted once and live as long as one owner.
	if c.Seals {
		s.empty(1)
		return
	}
	s.SeqCopy(1, 0, 0, 40)
	s.wantRange("the copied range", 0, 0, 39)
	room := c.ContextTokens - 41
	s.fill(2, 0, s.tokens(1, room))
	full := func(when string) {
		s.Batch().Reset()
		s.add(3, 0, next...)
		if err := s.Decode(); !errors.Is(err, runtime.ErrKVFull) {
			t.Fatalf("%s: one more cell: %v, want ErrKVFull", when, err)
		}
	}
	full("41 shared cells and the rest filled")
	s.empty(0)
	full("one owner gone")
	s.empty(1)
	s.same("with the cells of the last owner", want, func() []float32 {
		s.decode(3, 0, prompt...)
		return s.decode(3, 40, next...)
	}())
	s.empty(2, 3)

	s.SeqCopy(-1, 0, 0, -1)
	s.SeqCopy(0, runtime.Seq(c.MaxSequences), 0, -1)
	s.SeqCopy(5, 6, 0, -1)
	s.wantRange("a copy of nothing", 6, -1, -1)
}

func shift(t *testing.T, s *subject) {
	s.decode(0, 0, s.tokens(1, 20)...)
	if !s.Capabilities().CanShift {
		if err := s.SeqAdd(0, 10, 20, -5); !errors.Is(err, runtime.ErrUnsupported) {
			t.Errorf("shift without CanShift: %v, want ErrUnsupported", err)
		}
		s.wantRange("after a refused shift", 0, 0, 19)
		return
	}
	// The usual use: remove a range and close the gap.
	if !s.Capabilities().Seals {
		s.SeqRemove(0, 4, 10)
	}
	if err := s.SeqAdd(0, 10, 20, -6); err != nil {
		t.Fatal(err)
	}
	if !s.Capabilities().Seals {
		s.wantRange("after the shift", 0, 0, 13)
		s.decode(0, 14, s.tokens(2, 2)...)
		s.wantRange("after decoding on", 0, 0, 15)
	}
	if err := s.SeqAdd(-1, 0, 1, 1); err == nil {
		t.Error("sequence -1 was shifted")
	}
}
