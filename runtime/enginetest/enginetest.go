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
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
)

// Open returns a new engine with the given context, batch and sequences. Run closes it.
type Open func(t *testing.T, o runtime.Options) runtime.Engine

// Run tests the engines that open makes against the contract.
func Run(t *testing.T, open func(t *testing.T, o runtime.Options) runtime.Engine) {
	small := runtime.Options{ContextTokens: 512, Batch: 128, MicroBatch: 32, Sequences: 8, Head: true}
	first := open(t, small)
	if c := first.Capabilities(); c.MaxBatch == c.MaxMicroBatch {
		// A Decode has one pass. From 64 rows on ggml's attention with a cap on logits sums up in another way.
		small.Batch, small.MicroBatch = 48, 48
	}
	first.Close()
	for _, c := range []struct {
		name string
		run  func(*testing.T, *subject)
	}{
		{"Facts", facts},
		{"Vocabulary", vocabulary},
		{"Rows", rows},
		{"BadBatch", badBatch},
		{"KVFull", kvFull},
		{"PagedKV", pagedKV},
		{"Remove", remove},
		{"Copy", copying},
		{"Guesses", guesses},
		{"Kept", kept},
		{"Shift", shift},
		{"SnapshotWhole", snapshotWhole},
		{"SnapshotRange", snapshotRange},
		{"SnapshotRefused", snapshotRefused},
		{"Abort", abort},
		{"Bound", bound},
		{"ShiftNotStopped", shiftNotStopped},
		{"Chunks", chunks},
		{"Interleaved", interleaved},
		{"Argmax", argmax},
		{"Probe", probe},
		{"ProbeRows", probeRows},
		{"Allocations", allocations},
		{"Embeddings", embeddings},
		{"Threads", threads},
		{"Drafts", drafts},
		{"Head", heads},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := open(t, small)
			defer e.Close()
			c.run(t, &subject{T: t, Engine: e, o: small})
		})
	}
	t.Run("TwoEngines", func(t *testing.T) {
		a, b := open(t, small), open(t, small)
		defer b.Close()
		defer a.Close()
		twoEngines(t, &subject{T: t, Engine: a, o: small}, &subject{T: t, Engine: b, o: small})
	})
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
	if c.Threads < 1 || c.Device == "" || c.DeviceName == "" || c.Devices == 0 || c.EngineBuild == "" {
		t.Errorf("capabilities leave something out: %+v", c)
	}
	if m.Name == "" || m.Architecture == "" || m.TrainContext < 1 || m.Layers < 1 || m.KVTypeK == "" ||
		m.KVTypeV == "" {
		t.Errorf("model info leaves something out: %+v", m)
	}
	if m.KVBytesPerToken <= 0 && !m.Recurrent {
		t.Errorf("KVBytesPerToken is %d", m.KVBytesPerToken)
	}
	held := uint64(0)
	for _, p := range c.Placed {
		held += p.KV
	}
	if n := uint64(m.KVBytesPerToken * c.ContextTokens); held > 0 && held != n && !m.Recurrent { // no state is in it
		t.Errorf("KVBytesPerToken is %d: %d of %d cells, which have %d bytes", m.KVBytesPerToken, n, c.ContextTokens,
			held)
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
