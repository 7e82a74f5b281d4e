// Package enginetest tests an engine against the contract of runtime.Engine. Every engine passes it:
//
//	func TestContract(t *testing.T) {
//		enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine { … })
//	}
//
// It works with any model of ordinary text, because it compares an engine's answers on two ways to the same state. It
// tests that operations outside the engine's Capabilities are refused.
package enginetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
)

// Open returns a new engine with the given context, batch and sequences. Run closes it.
type Open func(t *testing.T, o runtime.Options) runtime.Engine

// Run tests the engines that open makes against the contract.
func Run(t *testing.T, open func(t *testing.T, o runtime.Options) runtime.Engine) {
	small := runtime.Options{ContextTokens: 512, Batch: 128, MicroBatch: 32, Sequences: 8}
	for _, c := range []struct {
		name string
		run  func(*testing.T, *subject)
	}{
		{"Facts", facts},
		{"Vocabulary", vocabulary},
		{"Rows", rows},
		{"BadBatch", badBatch},
		{"KVFull", kvFull},
		{"Remove", remove},
		{"Copy", copying},
		{"Shift", shift},
		{"SnapshotWhole", snapshotWhole},
		{"SnapshotRange", snapshotRange},
		{"SnapshotRefused", snapshotRefused},
		{"Abort", abort},
		{"Chunks", chunks},
		{"Interleaved", interleaved},
		{"Argmax", argmax},
		{"Probe", probe},
		{"Allocations", allocations},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := open(t, small)
			defer e.Close()
			c.run(t, &subject{t, e, small})
		})
	}
	t.Run("Close", func(t *testing.T) {
		e := open(t, small)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e.Abort() // a late Abort must have no effect
		defer func() {
			if did := recover() != nil; did != invariants.Enabled {
				t.Errorf("a second Close panicked: %v, want %v (invariants %v)", did, invariants.Enabled,
					invariants.Enabled)
			}
		}()
		if invariants.Enabled {
			e.Close()
		}
	})
}

// Greedy decodes prompt in sequence 0, which must be empty, and then up to n most probable tokens, including an end of
// generation. It is the reference for servers. The sequence is empty again afterwards.
func Greedy(e runtime.Engine, prompt []runtime.Token, n int) ([]runtime.Token, error) {
	defer e.SeqRemove(0, 0, -1)
	b := e.Batch()
	var out []runtime.Token
	next, pos := prompt, runtime.Pos(0)
	for {
		for len(next) > 0 {
			chunk := next[:min(len(next), e.Capabilities().MaxBatch)]
			next = next[len(chunk):]
			b.Reset()
			for i, t := range chunk {
				b.Add(t, pos, 0, len(next) == 0 && i == len(chunk)-1)
				pos++
			}
			if err := e.Decode(); err != nil {
				return out, fmt.Errorf("decode position %d: %w", pos, err)
			}
		}
		logits := e.Logits(b.Len() - 1)
		best := runtime.Token(0)
		for t, l := range logits {
			if l > logits[best] {
				best = runtime.Token(t)
			}
		}
		if out = append(out, best); len(out) >= n || e.Vocab().IsEOG(best) {
			return out, nil
		}
		next = []runtime.Token{best}
	}
}

// subject is an engine under test.
type subject struct {
	*testing.T
	runtime.Engine
	o runtime.Options
}

const passage = "The keeper of the light wrote down what the sea brought in: two planks, a bottle, eleven words of a letter. 1, 2, 3!"

// tokens returns n tokens of plain text, the same ones for the same k.
func (s *subject) tokens(k, n int) []runtime.Token {
	s.Helper()
	base, err := s.Vocab().Tokenize(nil, passage, false, false)
	if err != nil || len(base) < 8 {
		s.Fatalf("tokenize %q: %d tokens, %v", passage, len(base), err)
	}
	out := make([]runtime.Token, n)
	for i := range out {
		out[i] = base[(k*7+i+i/len(base)*k)%len(base)]
	}
	return out
}

// add adds tokens to the batch from a position on, the last with logits, and returns the last one's row.
func (s *subject) add(seq runtime.Seq, from int, tokens ...runtime.Token) (row int) {
	for i, t := range tokens {
		row = s.Batch().Add(t, runtime.Pos(from+i), seq, i == len(tokens)-1)
	}
	return row
}

// decode decodes tokens as one batch and returns a copy of the last one's logits.
func (s *subject) decode(seq runtime.Seq, from int, tokens ...runtime.Token) []float32 {
	s.Helper()
	s.Batch().Reset()
	row := s.add(seq, from, tokens...)
	s.mustDecode()
	return s.logits(row)
}

func (s *subject) mustDecode() {
	s.Helper()
	if err := s.Decode(); err != nil {
		s.Fatalf("decode of %d rows: %v", s.Batch().Len(), err)
	}
}

// fill decodes tokens in the largest possible batches, without logits.
func (s *subject) fill(seq runtime.Seq, from int, tokens []runtime.Token) {
	s.Helper()
	for chunk := range slices.Chunk(tokens, s.Capabilities().MaxBatch) {
		s.decode(seq, from, chunk...)
		from += len(chunk)
	}
}

func (s *subject) logits(row int) []float32 {
	s.Helper()
	l := s.Logits(row)
	if len(l) != s.Vocab().Size() {
		s.Fatalf("row %d has %d logits, the vocabulary %d tokens", row, len(l), s.Vocab().Size())
	}
	return slices.Clone(l)
}

func (s *subject) wantRange(what string, seq runtime.Seq, first, last int) {
	s.Helper()
	if a, b := s.SeqRange(seq); int(a) != first || int(b) != last {
		s.Errorf("%s: sequence %d holds [%d, %d], want [%d, %d]", what, seq, a, b, first, last)
	}
}

func (s *subject) empty(seqs ...runtime.Seq) {
	s.Helper()
	for _, q := range seqs {
		if !s.SeqRemove(q, 0, -1) {
			s.Fatalf("a whole sequence (%d) could not be removed", q)
		}
		s.wantRange("after removal", q, -1, -1)
	}
}

// same requires equal bits, for two ways to the same state with batches of the same shapes.
func (s *subject) same(what string, a, b []float32) {
	s.Helper()
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			s.Fatalf("%s: logit %d is %v and %v", what, i, a[i], b[i])
		}
	}
}

// near allows differences of a hundredth of the row's range, for batches of different shapes.
func (s *subject) near(what string, a, b []float32) {
	s.Helper()
	limit := (slices.Max(a) - slices.Min(a)) / 100
	for i := range a {
		if d := a[i] - b[i]; !(max(d, -d) <= limit) {
			s.Fatalf("%s: logit %d is %v and %v, the limit is %v apart", what, i, a[i], b[i], limit)
		}
	}
}

// differ requires different logits: an engine with constant answers would pass the comparisons above.
func (s *subject) differ(what string, a, b []float32) {
	s.Helper()
	if slices.Equal(a, b) {
		s.Fatalf("%s: the logits are the same", what)
	}
}

func facts(t *testing.T, s *subject) {
	c, m := s.Capabilities(), s.Model()
	for _, f := range []struct {
		name      string
		got, want int
	}{
		{"ContextTokens", c.ContextTokens, s.o.ContextTokens},
		{"MaxSequences", c.MaxSequences, s.o.Sequences},
		{"MaxBatch", c.MaxBatch, s.o.Batch},
		{"MaxMicroBatch", c.MaxMicroBatch, s.o.MicroBatch},
		{"VocabSize", m.VocabSize, s.Vocab().Size()},
	} {
		if f.got != f.want {
			t.Errorf("%s is %d, want %d", f.name, f.got, f.want)
		}
	}
	if c.Threads < 1 || c.Device == "" || c.DeviceName == "" || c.EngineBuild == "" {
		t.Errorf("capabilities leave something out: %+v", c)
	}
	if m.Name == "" || m.Architecture == "" || m.TrainContext < 1 || m.Layers < 1 || m.KVTypeK == "" ||
		m.KVTypeV == "" {
		t.Errorf("model info leaves something out: %+v", m)
	}
	if m.KVBytesPerToken <= 0 && !m.Recurrent {
		t.Errorf("KVBytesPerToken is %d", m.KVBytesPerToken)
	}
	b := s.Batch()
	if b != s.Batch() || cap(b.Token) != c.MaxBatch || cap(b.Pos) != c.MaxBatch || cap(b.Seq) != c.MaxBatch ||
		cap(b.Logits) != c.MaxBatch {
		t.Errorf("the batch takes %d rows, MaxBatch is %d", cap(b.Token), c.MaxBatch)
	}
	for seq := range runtime.Seq(c.MaxSequences) {
		s.wantRange("after open", seq, -1, -1)
	}
}

func vocabulary(t *testing.T, s *subject) {
	v := s.Vocab()
	detokenize := func(tokens []runtime.Token) (text []byte) {
		for _, tok := range tokens {
			text = append(text, v.Piece(tok)...)
		}
		return text
	}
	for _, text := range []string{
		"plain words", " leading and trailing ", "line\n\nbreaks\tand tabs", "Grüße, 世界, שלום", "😀👩‍👩‍👧‍👦🇩🇪",
		"e\u0301 nul\x00 byte",
		"{\"json\": [1, 2.5e-3, null]}", "a\u200bb\ufeffc",
	} {
		tokens, err := v.Tokenize(nil, text, false, false)
		if err != nil {
			t.Errorf("tokenize %q: %v", text, err)
			continue
		}
		if got := string(detokenize(tokens)); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
	}
	for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80", "\xf0\x9f\x98", "ok \x80\x80 ok"} {
		if _, err := v.Tokenize(nil, text, false, false); err != nil {
			t.Errorf("tokenize invalid UTF-8 %q: %v", text, err)
		}
	}
	if tokens, err := v.Tokenize(nil, "", false, false); err != nil || len(tokens) != 0 {
		t.Errorf("tokenize of nothing: %v, %v", tokens, err)
	}
	head := []runtime.Token{1, 2, 3}
	if tokens, err := v.Tokenize(head, "x", false, false); err != nil || len(tokens) < 4 ||
		!slices.Equal(tokens[:3], head) {
		t.Errorf("tokenize does not append: %v, %v", tokens, err)
	}

	eog := 0
	for tok := range runtime.Token(v.Size()) {
		if v.IsEOG(tok) {
			eog++
		}
		if v.IsControl(tok) {
			if p := v.Piece(tok); len(p) != 0 {
				t.Errorf("control token %d (%s) shows %q", tok, v.Text(tok), p)
			}
			// A marker is one token in a template and ordinary text from a user.
			if text := v.Text(tok); v.Find(text) == tok {
				if got, err := v.Tokenize(nil, text, false, true); err != nil || len(got) != 1 || got[0] != tok {
					t.Errorf("parsed marker %q gives %v, %v, want [%d]", text, got, err, tok)
				}
				if got, err := v.Tokenize(nil, text, false, false); err != nil || slices.Contains(got, tok) {
					t.Errorf("unparsed marker %q gives %v, %v", text, got, err)
				}
			}
		}
		if text := v.Text(tok); text != "" && v.Text(v.Find(text)) != text {
			t.Errorf("Find does not find token %d, %q", tok, text)
		}
	}
	if eog == 0 {
		t.Error("no token ends a generation")
	}
	if e := v.EOS(); e != runtime.NoToken && !v.IsEOG(e) {
		t.Errorf("EOS (%d) does not end a generation", e)
	}
	for _, bad := range []runtime.Token{-1, runtime.Token(v.Size()), math.MaxInt32, math.MinInt32} {
		if len(v.Piece(bad)) != 0 || v.Text(bad) != "" || v.IsControl(bad) || v.IsEOG(bad) {
			t.Errorf("token %d is not in the vocabulary and has a meaning", bad)
		}
	}
	if got := v.Find("no token is written like this"); got != runtime.NoToken {
		t.Errorf("Find of nothing gives %d", got)
	}

	var wg sync.WaitGroup
	want, _ := v.Tokenize(nil, passage, false, false)
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if got, err := v.Tokenize(nil, passage, false, false); err != nil || !slices.Equal(got, want) {
					t.Errorf("tokenize from several goroutines: %v, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	tok := want[0]
	if n := testing.AllocsPerRun(100, func() { v.Piece(tok); v.Text(tok); v.IsEOG(tok); v.IsControl(tok) }); n != 0 {
		t.Errorf("looking at a token allocates %v times", n)
	}
}

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
	if c.CanRemoveRange {
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

func remove(t *testing.T, s *subject) {
	prompt := s.tokens(2, 20)
	s.decode(0, 0, prompt[:12]...)
	want := s.decode(0, 12, prompt[12:]...)
	if !s.SeqRemove(0, 12, -1) {
		if s.Capabilities().CanRemoveRange {
			t.Fatal("CanRemoveRange, and a tail cannot be removed")
		}
		s.wantRange("after a refused removal", 0, 0, 19)
		s.empty(0)
		return
	}
	s.wantRange("after removing the tail", 0, 0, 11)
	s.same("the tail, decoded again", want, s.decode(0, 12, prompt[12:]...))

	if s.Capabilities().CanRemoveRange {
		if !s.SeqRemove(0, 0, 5) || !s.SeqRemove(0, 15, 18) {
			t.Error("CanRemoveRange, and a head and a middle cannot be removed")
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
	if !c.CanRemoveRange {
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
	if s.Capabilities().CanRemoveRange {
		s.SeqRemove(0, 4, 10)
	}
	if err := s.SeqAdd(0, 10, 20, -6); err != nil {
		t.Fatal(err)
	}
	if s.Capabilities().CanRemoveRange {
		s.wantRange("after the shift", 0, 0, 13)
		s.decode(0, 14, s.tokens(2, 2)...)
		s.wantRange("after decoding on", 0, 0, 15)
	}
	if err := s.SeqAdd(-1, 0, 1, 1); err == nil {
		t.Error("sequence -1 was shifted")
	}
}

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
	if !s.Capabilities().CanRemoveRange {
		if _, err := s.Snapshot(make([]byte, 1<<20), 0, 7, 0, 10); !errors.Is(err, runtime.ErrUnsupported) {
			t.Errorf("snapshot of a part without CanRemoveRange: %v, want ErrUnsupported", err)
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
	if c.CanRemoveRange {
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

func abort(t *testing.T, s *subject) {
	prompt := s.tokens(1, s.Capabilities().MaxBatch)
	want := s.decode(0, 0, prompt...)
	s.empty(0)
	s.Abort() // without a running Decode: no lasting effect
	s.same("after an idle abort", want, s.decode(0, 0, prompt...))
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
		pos++
		if err := s.Decode(); err != nil {
			t.Fatal(err)
		}
		s.Logits(row)
		if scan != nil {
			scan.Argmax(row)
		}
		prober.ProbeRow(row, close, &stats)
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
