package enginetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
)

func rows(t *testing.T, s *subject) {
	b := s.Batch()
	if s.Logits(0) != nil {
		t.Error("there are logits before the first Decode")
	}
	for i, tok := range s.tokens(1, 6) {
		if row := b.Add(tok, runtime.Pos(i), 2, i%2 == 1); row != i {
			t.Errorf("Add returned %d for row %d", row, i)
		}
	}
	s.mustDecode()
	var got [][]float32
	for i := range 6 {
		if i%2 == 1 {
			got = append(got, s.logits(i))
		} else if s.Logits(i) != nil {
			t.Errorf("row %d has logits and asked for none", i)
		}
	}
	for _, i := range []int{-1, 6, 100, math.MaxInt32} {
		if s.Logits(i) != nil {
			t.Errorf("row %d is not in the batch and has logits", i)
		}
	}
	for i := range got {
		for j := range i {
			s.differ(fmt.Sprintf("rows %d and %d", 2*i+1, 2*j+1), got[i], got[j])
		}
	}
	// Refilling the batch does not disturb the logits of the Decode before.
	b.Reset()
	b.Add(0, 6, 2, false)
	s.same("after refilling the batch", got[2], s.logits(5))
	if s.Logits(0) != nil {
		t.Error("a refilled batch gives row 0 logits before Decode")
	}
	s.wantRange("after decode", 2, 0, 5)
	s.wantRange("untouched", 1, -1, -1)
	if s.LastDecode() < 0 {
		t.Errorf("the last decode took %v", s.LastDecode())
	}
}

func badBatch(t *testing.T, s *subject) {
	tok := s.tokens(1, 1)[0]
	before := s.decode(0, 0, s.tokens(1, 4)...)
	for _, c := range []struct {
		name string
		add  func(b *runtime.Batch)
	}{
		{"empty", func(*runtime.Batch) {}},
		{"negative token", func(b *runtime.Batch) { b.Add(-1, 4, 0, true) }},
		{"token beyond the vocabulary", func(b *runtime.Batch) { b.Add(runtime.Token(s.Vocab().Size()), 4, 0, true) }},
		{"negative sequence", func(b *runtime.Batch) { b.Add(tok, 4, -1, true) }},
		{"sequence beyond the last", func(b *runtime.Batch) {
			b.Add(tok, 4, runtime.Seq(s.Capabilities().MaxSequences),
				true)
		}},
		{"negative position", func(b *runtime.Batch) { b.Add(tok, -1, 1, true) }},
		{"position left out", func(b *runtime.Batch) { b.Add(tok, 6, 0, true) }},
		{"position used before", func(b *runtime.Batch) { b.Add(tok, 2, 0, true) }},
	} {
		s.Batch().Reset()
		c.add(s.Batch())
		if err := s.Decode(); !errors.Is(err, runtime.ErrDecode) {
			t.Errorf("%s: %v, want ErrDecode", c.name, err)
		}
		if s.Logits(0) != nil {
			t.Errorf("%s: there are logits after an error", c.name)
		}
	}
	s.wantRange("after refused batches", 0, 0, 3)
	s.wantRange("after refused batches", 1, -1, -1)
	s.same("in another sequence, after refused batches", before, s.decode(1, 0, s.tokens(1, 4)...))
}

func abort(t *testing.T, s *subject) {
	prompt := s.tokens(1, s.Capabilities().MaxBatch)
	want := s.decode(0, 0, prompt...)
	s.empty(0)
	s.Abort() // without a running Decode: no lasting effect
	s.same("after an idle abort", want, s.decode(0, 0, prompt...))
	s.empty(0)
	b := s.Batch()
	b.Reset()
	for i, token := range prompt {
		b.Add(token, runtime.Pos(i), 0, i == len(prompt)-1)
	}
	asked := 0
	b.Cancelled = func() bool { asked++; return true }
	if err := s.Decode(); !errors.Is(err, runtime.ErrAborted) || asked != 1 {
		t.Errorf("cancelled before it began: %v, asked %d times", err, asked)
	}
	s.empty(0)
	s.same("after a cancel before it began", want, s.decode(0, 0, prompt...))
	s.empty(0)
	s.decode(1, 0, prompt[:8]...)

	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				s.Abort()
			}
		})
	}
	aborted := 0
	for range 200 {
		s.Batch().Reset()
		s.add(0, 0, prompt...)
		err := s.Decode()
		if err != nil && !errors.Is(err, runtime.ErrAborted) {
			stop.Store(true)
			wg.Wait()
			t.Fatalf("decode while aborting: %v", err)
		}
		if err != nil {
			aborted++
			if s.Logits(s.Batch().Len()-1) != nil {
				t.Error("there are logits after an abort")
			}
		}
		s.empty(0)
		if aborted == 10 {
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	if s.Capabilities().CanAbort && aborted == 0 {
		t.Error("CanAbort, and 200 decodes under constant Abort all went through")
	}
	s.wantRange("a bystander", 1, 0, 7)
	s.same("after aborts", want, s.decode(0, 0, prompt...))
}

func chunks(t *testing.T, s *subject) {
	prompt := s.tokens(9, 100)
	whole := s.decode(0, 0, prompt...)
	for _, size := range []int{1, 7, 33} {
		s.empty(0)
		from := 0
		var last []float32
		for chunk := range slices.Chunk(prompt, size) {
			last = s.decode(0, from, chunk...)
			from += len(chunk)
		}
		s.near(fmt.Sprintf("in chunks of %d", size), whole, last)
	}
	s.differ("another prompt", whole, s.decode(1, 0, s.tokens(10, 100)...))
}

func interleaved(t *testing.T, s *subject) {
	const steps = 12
	// round decodes sequence 0 with prompt 1 and sequence 1 with prompt other, together, and returns 0's last logits.
	round := func(other int) []float32 {
		a, b := s.tokens(1, 10+steps), s.tokens(other, 10+steps)
		s.Batch().Reset()
		s.add(0, 0, a[:10]...)
		s.add(1, 0, b[:10]...)
		s.mustDecode()
		var last []float32
		for i := 10; i < len(a); i++ {
			s.Batch().Reset()
			row := s.add(0, i, a[i])
			s.add(1, i, b[i])
			s.mustDecode()
			last = s.logits(row)
		}
		s.empty(0, 1)
		return last
	}
	want := round(2)
	s.same("beside another neighbour, the same shapes", want, round(3))

	a := s.tokens(1, 10+steps)
	s.decode(0, 0, a[:10]...)
	var solo []float32
	for i := 10; i < len(a); i++ {
		solo = s.decode(0, i, a[i])
	}
	s.near("alone", want, solo)
}

func argmax(t *testing.T, s *subject) {
	scan, ok := s.Engine.(runtime.RowScanner)
	if !ok {
		t.Skip("not a RowScanner")
	}
	s.Batch().Reset()
	for i, tok := range s.tokens(1, 20) {
		s.Batch().Add(tok, runtime.Pos(i), 0, i > 0)
	}
	s.mustDecode()
	for i := 1; i < 20; i++ {
		l := s.logits(i)
		want := slices.Max(l)
		if tok, x := scan.Argmax(i); x != want || int(tok) != slices.Index(l, want) {
			t.Errorf("row %d: token %d with %v, want %d with %v", i, tok, x, slices.Index(l, want), want)
		}
	}
	for _, i := range []int{-1, 0, 20, math.MaxInt32} {
		if tok, _ := scan.Argmax(i); tok != runtime.NoToken {
			t.Errorf("row %d has no logits and its argmax is %d", i, tok)
		}
	}
}

// probe tests the engine's ProbeRow, or the Go implementation.
func probe(t *testing.T, s *subject) {
	if _, ok := s.Engine.(runtime.RowProber); !ok {
		t.Log("not a RowProber: its rows are probed in Go")
	}
	p := meridian.ProberOf(s.Engine)
	s.Batch().Reset()
	for i, tok := range s.tokens(1, 20) {
		s.Batch().Add(tok, runtime.Pos(i), 0, i > 0)
	}
	s.mustDecode()
	n := runtime.Token(s.Vocab().Size())
	apart := func(a, b, tol float64) bool { return a != b && !(math.Abs(a-b) <= tol) }
	for i := 1; i < 20; i++ {
		l := s.logits(i)
		for _, close := range [][]runtime.Token{nil, {runtime.Token(i)}, {-1, n - 1, n, 0}} {
			var got runtime.RowStats
			want := meridian.ReferenceProbe(l, close)
			if !p.ProbeRow(i, close, &got) || got.Max != want.Max || got.Argmax != want.Argmax ||
				got.CloseRank != want.CloseRank || got.NonFinite != want.NonFinite ||
				apart(got.Entropy, want.Entropy, runtime.EntropyError) ||
				apart(got.LogSumExp, want.LogSumExp, runtime.LogSumExpError) ||
				apart(got.CloseMass, want.CloseMass, runtime.EntropyError) {
				t.Errorf("row %d, close ids %d:\n got %+v\nwant %+v", i, close, got, want)
			}
		}
		s.same("a probed row", l, s.Logits(i))
	}
	for _, i := range []int{-1, 0, 20, math.MaxInt32} {
		st := runtime.RowStats{NonFinite: 77}
		if p.ProbeRow(i, nil, &st) || st.NonFinite != 77 {
			t.Errorf("row %d has no logits and was probed: %+v", i, st)
		}
	}
}

// probeRows: a row that only the probe needs has the statistics of the logits that it would have, beside rows with
// logits, which stay as they are.
func probeRows(t *testing.T, s *subject) {
	p := meridian.ProberOf(s.Engine)
	decode := func(bits func(i int) int8) {
		s.empty(0)
		s.Batch().Reset()
		for i, tok := range s.tokens(1, 20) {
			s.Batch().AddFor(tok, runtime.Pos(i), 0, bits(i))
		}
		s.mustDecode()
	}
	decode(func(int) int8 { return runtime.RowLogits })
	want := make([][]float32, 20)
	for i := range want {
		want[i] = s.logits(i)
	}
	decode(func(i int) int8 { return []int8{runtime.RowLogits, runtime.RowProbe}[i/2%2] })
	for i, l := range want {
		if i/2%2 == 0 {
			s.same("beside probed rows", l, s.logits(i))
		}
		ref := meridian.ReferenceProbe(l, nil)
		st := runtime.RowStats{}
		if !p.ProbeRow(i, nil, &st) || st.Max != ref.Max ||
			!(math.Abs(st.Entropy-ref.Entropy) <= runtime.EntropyError) ||
			!(math.Abs(st.LogSumExp-ref.LogSumExp) <= runtime.LogSumExpError) {
			t.Errorf("row %d:\n got %+v\nwant %+v", i, st, ref)
		}
	}
}

func allocations(t *testing.T, s *subject) {
	if invariants.Enabled {
		t.Skip("checks allocate")
	}
	tok := s.tokens(1, 1)[0]
	scan, _ := s.Engine.(runtime.RowScanner)
	prober, close := meridian.ProberOf(s.Engine), s.tokens(1, 2)
	var stats runtime.RowStats
	pos := 0
	step := func() {
		b := s.Batch()
		b.Reset()
		row := b.Add(tok, runtime.Pos(pos), 0, true)
		b.Add(tok, runtime.Pos(pos), 1, false)
		forked := b.AddFor(tok, runtime.Pos(pos), 2, runtime.RowProbe)
		pos++
		if err := s.Decode(); err != nil {
			t.Fatal(err)
		}
		s.Logits(row)
		if scan != nil {
			scan.Argmax(row)
		}
		prober.ProbeRow(row, close, &stats)
		prober.ProbeRow(forked, nil, &stats)
		s.Vocab().Piece(tok)
		s.LastDecode()
		s.SeqRange(0)
	}
	for range 32 {
		step() // grows the fake's sequences
	}
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

// bound: a decode that would take longer than its bound is given up and leaves the engine as an abort does; one that
// would not is computed, and the next batch has no bound.
func bound(t *testing.T, s *subject) {
	prompt := s.tokens(1, s.Capabilities().MaxMicroBatch)
	want := s.decode(0, 0, prompt...)
	s.empty(0)
	s.decode(1, 0, prompt[:8]...)
	within := func(b runtime.Bound) error {
		s.Batch().Reset()
		s.add(0, 0, prompt...)
		s.Batch().Bound = b
		err := s.Decode()
		if err == nil {
			s.same("within its bound", want, s.logits(len(prompt)-1))
		} else if s.Logits(len(prompt)-1) != nil {
			t.Error("there are logits after a decode that was given up")
		}
		s.empty(0)
		return err
	}
	short := runtime.Bound{Decide: 1, Limit: 2, Expected: 1}
	for range 3 {
		if err := within(short); s.Capabilities().CanAbort && !errors.Is(err, runtime.ErrLate) {
			t.Errorf("with a bound of 2 ns: %v, want %v", err, runtime.ErrLate)
		}
		for _, b := range []runtime.Bound{
			{},
			{Decide: 1, Limit: time.Hour, Expected: time.Second},
			{Decide: time.Hour, Limit: time.Hour, Expected: time.Hour},
		} {
			if err := within(b); err != nil {
				t.Errorf("with the bound %+v: %v", b, err)
			}
		}
	}
	s.wantRange("a bystander", 1, 0, 7)
	s.same("after decodes that were given up", want, s.decode(0, 0, prompt...))
}

// shiftNotStopped: a decode that carries out a shift is not given up. Half of a shift would be done again by the next
// decode, and keys would be rotated twice.
func shiftNotStopped(t *testing.T, s *subject) {
	if c := s.Capabilities(); !c.CanShift || c.Seals {
		t.Skip("nothing can be shifted")
	}
	shifted := func(b runtime.Bound) []float32 {
		s.decode(0, 0, s.tokens(1, 24)...)
		s.SeqRemove(0, 4, 10)
		if err := s.SeqAdd(0, 10, 24, -6); err != nil {
			t.Fatal(err)
		}
		s.Batch().Reset()
		row := s.add(0, 18, s.tokens(2, 8)...)
		s.Batch().Bound = b
		s.mustDecode()
		defer s.empty(0)
		return s.logits(row)
	}
	want := shifted(runtime.Bound{})
	s.same("shifted under a bound", want, shifted(runtime.Bound{Decide: 1, Limit: 2, Expected: 1}))
}
