package enginetest

import (
	"math"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// subject is an engine under test.
type subject struct {
	*testing.T
	runtime.Engine
	o       runtime.Options
	decodes int // calls of mustDecode
}

const passage = "The keeper of the light wrote down what the sea brought in: two planks, a bottle, eleven words of a " +
	"letter. 1, 2, 3!"

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

// decode decodes tokens as one batch, or as many as the engine needs, and returns a copy of the last one's logits.
func (s *subject) decode(seq runtime.Seq, from int, tokens ...runtime.Token) []float32 {
	s.Helper()
	if most := s.Capabilities().MaxBatch; len(tokens) > most {
		s.decode(seq, from, tokens[:most]...)
		return s.decode(seq, from+most, tokens[most:]...)
	}
	s.Batch().Reset()
	row := s.add(seq, from, tokens...)
	s.mustDecode()
	return s.logits(row)
}

// mustDecode decodes the batch; where the engine computes it beside the host, every second time by Submit and Wait.
func (s *subject) mustDecode() {
	s.Helper()
	sub, ok := s.Engine.(runtime.Submitter)
	if s.decodes++; !ok || s.decodes%2 == 0 || !sub.Beside() {
		if err := s.Decode(); err != nil {
			s.Fatalf("decode of %d rows: %v", s.Batch().Len(), err)
		}
		return
	}
	if err := sub.Submit(); err != nil {
		s.Fatalf("submit of %d rows: %v", s.Batch().Len(), err)
	}
	if err := sub.Wait(); err != nil {
		s.Fatalf("wait for %d rows: %v", s.Batch().Len(), err)
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

// onDevice reports whether a device besides the processor computes. Its sums may follow where the cells of a sequence
// are in the pool.
func (s *subject) onDevice() bool { return s.Capabilities().Devices > 1 }

// same requires equal bits, for two ways to the same state with batches of the same shapes; on a device, see near.
func (s *subject) same(what string, a, b []float32) {
	s.Helper()
	if s.onDevice() {
		s.near(what, a, b)
		return
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			s.Fatalf("%s: logit %d is %v and %v", what, i, a[i], b[i])
		}
	}
}

// near allows differences of a hundredth of the row's range, for batches of different shapes. On a device it is two
// hundredths: it computes one row and several by different programs. Tokens that cannot come have -Inf in both rows.
func (s *subject) near(what string, a, b []float32) {
	s.Helper()
	most := slices.Max(a)
	least := most
	for _, x := range a {
		if !math.IsInf(float64(x), -1) {
			least = min(least, x)
		}
	}
	limit := (most - least) / 100
	if s.onDevice() {
		limit *= 2
	}
	for i := range a {
		if d := a[i] - b[i]; a[i] != b[i] && !(max(d, -d) <= limit) {
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
