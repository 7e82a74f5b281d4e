package enginetest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// Adapters tests an engine whose model takes the adapters in the files a and b, which change its answers, against the
// contract of runtime.Adapters.
func Adapters(t *testing.T, open Open, a, b string) {
	e := open(t, runtime.Options{ContextTokens: 512, Batch: 128, MicroBatch: 32, Sequences: 8})
	defer e.Close()
	s := &subject{T: t, Engine: e}
	engine, ok := e.(runtime.Adapters)
	if !ok {
		t.Fatal("it takes no adapters")
	}
	broken := filepath.Join(t.TempDir(), "broken.gguf")
	if err := os.WriteFile(broken, []byte("no adapter"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(path string) (runtime.Adapter, error) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		id, info, err := engine.LoadAdapter(f)
		if err == nil && info.Bytes <= 0 {
			t.Errorf("%s: %+v", path, info)
		}
		return id, err
	}
	if _, err := load(broken); !errors.Is(err, runtime.ErrAdapter) {
		t.Errorf("a file that is no adapter: %v", err)
	}
	base := s.alone(0)
	unused, err := load(a)
	if err != nil {
		t.Fatal(err)
	}
	engine.UnloadAdapter(unused)
	first, err := load(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := load(b)
	if err != nil {
		t.Fatal(err)
	}
	engine.SetMix(1, []runtime.Scaled{{Adapter: first, Scale: 1}})
	engine.SetMix(2, []runtime.Scaled{{Adapter: second, Scale: 1}})
	engine.SetMix(3, []runtime.Scaled{{Adapter: first, Scale: 0.5}, {Adapter: second, Scale: 0.5}})
	want := [][]float32{base, s.alone(1), s.alone(2), s.alone(3)}
	for i := range want {
		for j := range i {
			s.differ("two mixes", want[i], want[j])
		}
	}
	s.same("the model itself, with adapters loaded", s.alone(0), base)

	t.Run("together", func(t *testing.T) { (&subject{T: t, Engine: e, o: s.o}).together(want) })
	t.Run("two halves", func(t *testing.T) { (&subject{T: t, Engine: e, o: s.o}).halves() })

	engine.SetMix(3, nil)
	s.same("a mix of nothing", s.alone(3), base)
	engine.SetMix(2, nil)
	engine.UnloadAdapter(second)
	s.same("with the other one unloaded", s.alone(1), want[1])
	if second, err = load(b); err != nil {
		t.Fatal(err)
	}
	engine.SetMix(2, []runtime.Scaled{{Adapter: second, Scale: 1}})
	s.same("loaded again", s.alone(2), want[2])
	tok := s.tokens(1, 1)[0]
	if n := testing.AllocsPerRun(5, func() {
		s.Batch().Reset()
		for m := range uint8(3) {
			s.SeqRemove(runtime.Seq(m), 0, -1)
			s.Batch().UseMix(m)
			s.Batch().Add(tok, 0, runtime.Seq(m), true)
		}
		s.mustDecode()
	}); n != 0 {
		t.Errorf("a Decode of three mixes allocates %v times", n)
	}
}

const adapted = 6 // tokens of a text

// alone returns the last row of a text that is computed with a mix, in sequence 0.
func (s *subject) alone(mix uint8) []float32 {
	s.Helper()
	defer s.empty(0)
	s.Batch().Reset()
	s.Batch().UseMix(mix)
	row := s.add(0, 0, s.tokens(1, adapted)...)
	s.mustDecode()
	return s.logits(row)
}

// together computes a text with each mix in one batch, and the next token of each in another.
func (s *subject) together(want [][]float32) {
	defer s.empty(0, 1, 2, 3, 4)
	s.Batch().Reset()
	var last [5]int
	for i, tok := range s.tokens(1, adapted) { // row by row, so that a mix's rows are not neighbors
		for q := range 5 {
			s.Batch().UseMix(uint8(q % 4))
			last[q] = s.Batch().Add(tok, runtime.Pos(i), runtime.Seq(q), i == adapted-1)
		}
	}
	s.mustDecode()
	for q, row := range last {
		got := s.logits(row)
		s.near("a text beside other mixes", want[q%4], got)
		if tok, most := s.argmax(row); most != slices.Max(got) || got[tok] != most {
			s.Errorf("sequence %d: the largest logit is %v of token %d, the row's is %v", q, most, tok, slices.Max(got))
		}
		if p, ok := s.Engine.(runtime.RowProber); ok {
			var st runtime.RowStats
			if !p.ProbeRow(row, nil, &st) || st.Max != slices.Max(got) {
				s.Errorf("sequence %d: the probe says %+v", q, st)
			}
		}
	}
	next := s.tokens(3, 1)[0]
	var rows [5]int
	s.Batch().Reset()
	for q := range 5 {
		s.Batch().UseMix(uint8(q % 4))
		rows[q] = s.Batch().Add(next, adapted, runtime.Seq(q), true)
	}
	s.mustDecode()
	s.near("equal mixes", s.logits(rows[0]), s.logits(rows[4]))
	s.differ("other mixes", s.logits(rows[0]), s.logits(rows[1]))
	if e, ok := s.Engine.(runtime.Embedder); ok {
		s.Batch().Reset()
		for q := range 5 {
			s.Batch().UseMix(uint8(q % 4))
			rows[q] = s.Batch().AddFor(next, adapted+1, runtime.Seq(q), runtime.RowEmbedding)
		}
		s.mustDecode()
		hidden := slices.Clone(e.Embedding(rows[0]))
		s.near("hidden states of equal mixes", hidden, e.Embedding(rows[4]))
		s.differ("hidden states of other mixes", hidden, e.Embedding(rows[1]))
	}
}

// halves computes the second half of a text with a mix in the batch of the first one, without.
func (s *subject) halves() {
	defer s.empty(0, 1)
	tokens := s.tokens(1, adapted)
	s.Batch().Reset()
	s.add(0, 0, tokens[:adapted/2]...)
	s.Batch().UseMix(1)
	row := s.add(0, adapted/2, tokens[adapted/2:]...)
	s.mustDecode()
	got := s.logits(row)
	s.decode(1, 0, tokens[:adapted/2]...)
	s.Batch().Reset()
	s.Batch().UseMix(1)
	row = s.add(1, adapted/2, tokens[adapted/2:]...)
	s.mustDecode()
	s.near("a text whose first half has no adapter", s.logits(row), got)
}

func (s *subject) argmax(row int) (runtime.Token, float32) {
	if a, ok := s.Engine.(runtime.RowScanner); ok {
		return a.Argmax(row)
	}
	l := s.logits(row)
	i := slices.Index(l, slices.Max(l))
	return runtime.Token(i), l[i]
}
