package enginetest

import (
	"errors"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
)

// RunEncoder tests the engines that open makes of models that only read (ModelInfo.Encoder).
func RunEncoder(t *testing.T, open func(t *testing.T, o runtime.Options) runtime.Engine) {
	small := runtime.Options{ContextTokens: 128, Batch: 256, MicroBatch: 256, Sequences: 8}
	for _, c := range []struct {
		name string
		run  func(*testing.T, *subject)
	}{
		{"Facts", encoderFacts},
		{"WholeTexts", wholeTexts},
		{"Company", encoderCompany},
		{"Allocations", embeddingAllocations},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := open(t, small)
			defer e.Close()
			c.run(t, &subject{T: t, Engine: e, o: small})
		})
	}
}

// exact is same where a row's result depends on nothing beside it (docs/adr/0007-cpu-kernels.md), else near.
func (s *subject) exact(what string, a, b []float32) {
	s.Helper()
	if goruntime.GOARCH == "amd64" {
		s.same(what, a, b)
		return
	}
	s.near(what, a, b)
}

// embedding returns a copy of a row's hidden state.
func (s *subject) embedding(row int) []float32 {
	s.Helper()
	e, ok := s.Engine.(runtime.Embedder)
	if !ok {
		s.Fatal("MaxEmbeddingRows is not 0, and the engine is no Embedder")
	}
	v := e.Embedding(row)
	if len(v) != s.Model().Embedding {
		s.Fatalf("row %d has an embedding of %d values, the model's width is %d", row, len(v), s.Model().Embedding)
	}
	return slices.Clone(v)
}

// embed decodes tokens as one batch with an embedding for each and returns these.
func (s *subject) embed(seq runtime.Seq, tokens ...runtime.Token) (out [][]float32) {
	s.Helper()
	s.Batch().Reset()
	for i, t := range tokens {
		s.Batch().AddFor(t, runtime.Pos(i), seq, runtime.RowEmbedding)
	}
	s.mustDecode()
	for i := range tokens {
		out = append(out, s.embedding(i))
	}
	return out
}

// embeddings tests hidden states beside logits.
func embeddings(t *testing.T, s *subject) {
	most := s.Capabilities().MaxEmbeddingRows
	e, ok := s.Engine.(runtime.Embedder)
	if !ok && most > 0 {
		t.Fatalf("no Embedder, and MaxEmbeddingRows is %d", most)
	}
	b := s.Batch()
	if most == 0 {
		b.AddFor(s.tokens(1, 1)[0], 0, 0, runtime.RowEmbedding)
		if err := s.Decode(); !errors.Is(err, runtime.ErrDecode) {
			t.Errorf("a row of an engine that is no Embedder: %v, want ErrDecode", err)
		}
		return
	}
	for i, tok := range s.tokens(1, 8) {
		b.AddFor(tok, runtime.Pos(i), 0, int8(i%4))
	}
	s.mustDecode()
	for i := range 8 {
		if got, want := s.Logits(i) != nil, i%4&int(runtime.RowLogits) != 0; got != want {
			t.Errorf("row %d has logits: %v, want %v", i, got, want)
		}
		if got, want := e.Embedding(i) != nil, i%4&int(runtime.RowEmbedding) != 0; got != want {
			t.Errorf("row %d has an embedding: %v, want %v", i, got, want)
		}
	}
	for _, i := range []int{-1, 8, 1000} {
		if e.Embedding(i) != nil {
			t.Errorf("row %d is not in the batch and has an embedding", i)
		}
	}
	s.differ("rows 2 and 3", s.embedding(2), s.embedding(3))
	third, logits := s.embedding(3), s.logits(3)
	b.Reset()
	b.Add(0, 8, 0, false)
	s.same("an embedding after refilling the batch", third, s.embedding(3))
	s.same("logits after refilling the batch", logits, s.logits(3))

	// A row's embedding does not depend on whether logits are wanted too, nor on chunks.
	s.empty(0)
	whole := s.embed(1, s.tokens(1, 8)...)
	s.exact("an embedding without logits", third, whole[3])
	s.empty(1)
	s.decode(1, 0, s.tokens(1, 7)...)
	b.Reset()
	row := b.AddFor(s.tokens(1, 8)[7], 7, 1, runtime.RowEmbedding)
	s.mustDecode()
	s.exact("the last row behind a chunk", whole[7], s.embedding(row))
	if s.Logits(row) != nil || e.Embedding(row) == nil {
		t.Error("a row for an embedding alone has logits, or no embedding")
	}
	s.empty(1)

	// Answers do not change beside them, nor they beside answers.
	prompt := s.tokens(2, 12)
	s.decode(0, 0, prompt...)
	alone := s.decode(0, 12, prompt[0])
	s.empty(0)
	s.decode(0, 0, prompt...)
	b.Reset()
	answer := s.add(0, 12, prompt[0])
	from := b.Len()
	for i, tok := range s.tokens(1, 8) {
		b.AddFor(tok, runtime.Pos(i), 1, runtime.RowEmbedding)
	}
	s.mustDecode()
	s.exact("an answer beside embeddings", alone, s.logits(answer))
	for i := range 8 {
		s.exact("an embedding beside an answer", whole[i], s.embedding(from+i))
	}
	s.empty(0, 1)

	// The next step without embeddings has none.
	s.decode(0, 0, prompt...)
	if e.Embedding(0) != nil || e.Embedding(11) != nil {
		t.Error("there are embeddings of rows that were decoded for logits")
	}
	b.Reset()
	for i, tok := range s.tokens(3, most) {
		b.AddFor(tok, runtime.Pos(i), 1, runtime.RowEmbedding)
	}
	s.mustDecode()
	s.differ("the first and the last of MaxEmbeddingRows", s.embedding(0), s.embedding(most-1))
}

func embeddingAllocations(t *testing.T, s *subject) {
	if invariants.Enabled {
		t.Skip("checks allocate")
	}
	e := s.Engine.(runtime.Embedder)
	s.embed(0, s.tokens(1, 4)...)
	if n := testing.AllocsPerRun(50, func() { e.Embedding(1); e.Embedding(-1) }); n != 0 {
		t.Errorf("an embedding allocates %v times", n)
	}
}

func encoderFacts(t *testing.T, s *subject) {
	c, m := s.Capabilities(), s.Model()
	if !m.Encoder || m.KVBytesPerToken != 0 || m.Embedding < 1 || m.Name == "" || m.Architecture == "" {
		t.Errorf("model info: %+v", m)
	}
	if c.ContextTokens < 1 || c.ContextTokens > s.o.ContextTokens || c.MaxBatch < c.ContextTokens ||
		c.MaxMicroBatch != c.MaxBatch || c.MaxEmbeddingRows != c.MaxBatch || c.CanShift || c.Seals {
		t.Errorf("capabilities: %+v", c)
	}
	if cap(s.Batch().Token) != c.MaxBatch {
		t.Errorf("the batch takes %d rows, MaxBatch is %d", cap(s.Batch().Token), c.MaxBatch)
	}
}

func wholeTexts(t *testing.T, s *subject) {
	text := s.tokens(1, 9)
	first := s.embed(0, text...)
	if s.Logits(0) != nil {
		t.Error("an encoder has logits")
	}
	s.wantRange("after a decode", 0, -1, -1)
	again := s.embed(3, text...)
	for i := range first {
		s.same("the same text in another sequence", first[i], again[i])
	}
	changed := slices.Clone(text)
	changed[8] = s.tokens(2, 1)[0]
	if changed[8] == text[8] {
		changed[8] = s.tokens(3, 1)[0]
	}
	s.differ("the first row, with another last token", first[0], s.embed(0, changed...)[0])

	// A text that does not begin at its first position is no whole text.
	s.Batch().Reset()
	s.Batch().AddFor(text[0], 3, 0, runtime.RowEmbedding)
	if err := s.Decode(); !errors.Is(err, runtime.ErrDecode) {
		t.Errorf("a text from position 3 on: %v, want ErrDecode", err)
	}
	// Nothing is kept: sequences are empty, and operations on them do nothing.
	s.SeqCopy(0, 1, 0, -1)
	s.empty(0, 1)
	if !s.SeqRemove(0, 2, 4) {
		t.Error("a range of an empty sequence cannot be removed")
	}
	if err := s.SeqAdd(0, 0, 1, 1); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("shift: %v, want ErrUnsupported", err)
	}
	if _, err := s.SnapshotSize(0, 0, -1); err == nil {
		t.Error("a snapshot of nothing has a size")
	}
	if err := s.Restore([]byte{1, 2, 3}, 0, 1); !errors.Is(err, runtime.ErrSnapshot) {
		t.Errorf("restore: %v, want ErrSnapshot", err)
	}
}

// encoderCompany: a text's rows depend on nothing beside it in the batch, whatever their number.
func encoderCompany(t *testing.T, s *subject) {
	text := s.tokens(1, 13)
	want := s.embed(0, text...)
	for _, others := range [][]int{{1}, {2}, {5, 3}, {40, 2, 9}, {100}} {
		b := s.Batch()
		b.Reset()
		for k, n := range others {
			for i, tok := range s.tokens(k+2, n) {
				b.AddFor(tok, runtime.Pos(i), runtime.Seq(k+1), runtime.RowEmbedding)
			}
		}
		from := b.Len()
		for i, tok := range text {
			b.AddFor(tok, runtime.Pos(i), 0, runtime.RowEmbedding)
		}
		s.mustDecode()
		for i := range want {
			s.exact("beside other texts", want[i], s.embedding(from+i))
		}
	}
	full := s.tokens(7, s.Capabilities().ContextTokens)
	s.differ("the longest text", s.embed(0, full...)[0], want[0])
}
