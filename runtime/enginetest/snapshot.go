package enginetest

import (
	"errors"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// snapshot is a Snapshot into a buffer of exactly SnapshotSize.
func (s *subject) snapshot(seq, scratch runtime.Seq, p0, p1 int) []byte {
	s.Helper()
	n, err := s.SnapshotSize(seq, runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		s.Fatal(err)
	}
	buf := make([]byte, n)
	got, err := s.Snapshot(buf, seq, scratch, runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		s.Fatal(err)
	}
	if got != n {
		s.Fatalf("the snapshot has %d bytes, SnapshotSize said %d", got, n)
	}
	s.wantRange("scratch after a snapshot", scratch, -1, -1)
	return buf
}

func snapshotWhole(t *testing.T, s *subject) {
	prompt, next := s.tokens(6, 30), s.tokens(7, 1)
	s.decode(0, 0, prompt...)
	want := s.decode(0, 30, next...)
	s.empty(0)
	s.decode(0, 0, prompt...)

	snap := s.snapshot(0, 7, 0, -1)
	if min := 30 * s.Model().KVBytesPerToken; len(snap) < min {
		t.Errorf("30 tokens make a snapshot of %d bytes, the model's cells are %d", len(snap), min)
	}
	s.wantRange("after its snapshot", 0, 0, 29)
	s.empty(0)
	s.decode(1, 0, s.tokens(8, 17)...) // now other cells are in use
	if err := s.Restore(snap, 2, 7); err != nil {
		t.Fatal(err)
	}
	s.wantRange("restored", 2, 0, 29)
	s.wantRange("scratch after a restore", 7, -1, -1)
	s.wantRange("a bystander", 1, 0, 16)
	s.same("after a restore", want, s.decode(2, 30, next...))
}

func snapshotRange(t *testing.T, s *subject) {
	prompt, next := s.tokens(6, 30), s.tokens(7, 1)
	s.decode(0, 0, prompt...)
	if s.Capabilities().Seals {
		if _, err := s.Snapshot(make([]byte, 1<<20), 0, 7, 0, 10); !errors.Is(err, runtime.ErrUnsupported) {
			t.Errorf("snapshot of a part with Seals: %v, want ErrUnsupported", err)
		}
		return
	}
	want := s.decode(0, 30, next...)
	s.SeqRemove(0, 30, -1)

	a, b := s.snapshot(0, 7, 0, 12), s.snapshot(0, 7, 12, 30)
	s.empty(0)
	if err := s.Restore(a, 3, 7); err != nil {
		t.Fatal(err)
	}
	s.wantRange("the first part", 3, 0, 11)
	if err := s.Restore(b, 3, 7); err != nil {
		t.Fatal(err)
	}
	s.wantRange("both parts", 3, 0, 29)
	s.wantRange("scratch after a restore", 7, -1, -1)
	s.same("after a restore in two parts", want, s.decode(3, 30, next...))

	if err := s.Restore(b, 3, 7); !errors.Is(err, runtime.ErrSnapshot) {
		t.Errorf("restore over cells that are held: %v, want ErrSnapshot", err)
	}
	s.wantRange("after a refused restore", 3, 0, 30)
	s.wantRange("scratch after a refused restore", 7, -1, -1)
}

func snapshotRefused(t *testing.T, s *subject) {
	c := s.Capabilities()
	s.decode(0, 0, s.tokens(1, 16)...)
	snap := s.snapshot(0, 7, 0, -1)
	if _, err := s.Snapshot(snap[:len(snap)-1], 0, 7, 0, -1); err == nil {
		t.Error("a snapshot into a buffer that is too small")
	}
	if _, err := s.Snapshot(snap, 5, 7, 0, -1); err == nil {
		t.Error("a snapshot of an empty sequence")
	}
	for _, bad := range []runtime.Seq{-1, runtime.Seq(c.MaxSequences)} {
		if _, err := s.Snapshot(snap, bad, 7, 0, -1); err == nil {
			t.Errorf("a snapshot of sequence %d", bad)
		}
		if _, err := s.SnapshotSize(bad, 0, -1); err == nil {
			t.Errorf("the size of a snapshot of sequence %d", bad)
		}
		if err := s.Restore(snap, bad, 7); !errors.Is(err, runtime.ErrSnapshot) {
			t.Errorf("restore into sequence %d: %v, want ErrSnapshot", bad, err)
		}
	}
	for n := range len(snap) {
		if n > 64 && n < len(snap)-64 && n%97 != 0 {
			continue
		}
		if err := s.Restore(snap[:n], 1, 7); !errors.Is(err, runtime.ErrSnapshot) {
			t.Fatalf("restore of the first %d of %d bytes: %v, want ErrSnapshot", n, len(snap), err)
		}
		s.wantRange("after a refused restore", 1, -1, -1)
	}
	if !c.Seals {
		s.decode(7, 0, s.tokens(1, 1)...)
		if _, err := s.Snapshot(make([]byte, len(snap)), 0, 7, 0, 4); err == nil {
			t.Error("a snapshot through a scratch sequence in use")
		}
		s.empty(7)
		s.fill(2, 0, s.tokens(1, c.ContextTokens-16))
		if err := s.Restore(snap, 1, 7); !errors.Is(err, runtime.ErrKVFull) {
			t.Errorf("restore into a full pool: %v, want ErrKVFull", err)
		}
		s.wantRange("after a restore into a full pool", 1, -1, -1)
		s.empty(2)
	}
	if err := s.Restore(snap, 1, 7); err != nil {
		t.Errorf("restore after all that: %v", err)
	}
}
