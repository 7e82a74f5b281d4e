//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestReferenceSampler compares the wrapper with what a chain of these parameters must do, stage by stage, and the
// draws of Sample against the probabilities of Probs.
func TestReferenceSampler(t *testing.T) {
	logits := []float32{1, 3, 2, 0, -1, float32(math.Inf(-1)), 2.5, 0.5}
	off := ReferenceParams{Temperature: 1, TopP: 1, RepeatPenalty: 1, Seed: 1}

	t.Run("softmax", func(t *testing.T) {
		s := NewReferenceSampler(off)
		defer s.Close()
		var z float64
		for _, l := range logits {
			z += math.Exp(float64(l))
		}
		probs := s.Probs(logits)
		if len(probs) != len(logits) {
			t.Fatalf("%d candidates, want all %d", len(probs), len(logits))
		}
		for _, c := range probs {
			if want := math.Exp(float64(logits[c.Token])) / z; math.Abs(float64(c.P)-want) > 1e-6 {
				t.Errorf("token %d: p = %g, want %g", c.Token, c.P, want)
			}
		}
	})
	t.Run("top_k", func(t *testing.T) {
		p := off
		p.TopK = 3
		s := NewReferenceSampler(p)
		defer s.Close()
		probs := s.Probs(logits)
		if len(probs) != 3 || probs[0].Token != 1 || probs[1].Token != 6 || probs[2].Token != 2 {
			t.Errorf("candidates %v, want tokens 1, 6, 2", probs)
		}
	})
	t.Run("greedy", func(t *testing.T) {
		p := off
		p.Temperature = 0
		s := NewReferenceSampler(p)
		defer s.Close()
		if got := s.Sample(logits); got != 1 {
			t.Errorf("temperature 0 chose %d, want 1", got)
		}
	})
	t.Run("penalties", func(t *testing.T) {
		p := off
		p.PenaltyLastN, p.PresencePenalty, p.TopK = 8, 100, 1
		s := NewReferenceSampler(p)
		defer s.Close()
		if a, b := s.Sample(logits), s.Sample(logits); a != 1 || b != 6 {
			t.Errorf("drew %d then %d, want 1 then, that one penalised, 6", a, b)
		}
	})
	t.Run("draws", func(t *testing.T) {
		const n = 20_000
		s := NewReferenceSampler(ReferenceParams{Temperature: 0.7, TopK: 6, TopP: 0.95, MinP: 0.02, RepeatPenalty: 1,
			Seed: 7})
		defer s.Close()
		want := map[int32]float64{}
		for _, c := range s.Probs(logits) {
			want[c.Token] = float64(c.P)
		}
		got := map[int32]int{}
		for range n {
			got[s.Sample(logits)]++
		}
		for tok, k := range got {
			p := want[tok]
			if sigma := math.Sqrt(p * (1 - p) / n); math.Abs(float64(k)/n-p) > 5*sigma {
				t.Errorf("token %d drawn %d times of %d, want about %.0f", tok, k, n, p*n)
			}
		}
	})
	t.Run("seed", func(t *testing.T) {
		row := make([]float32, 1000)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		a, b := NewReferenceSampler(off), NewReferenceSampler(off)
		defer a.Close()
		defer b.Close()
		for i := range 50 {
			if x, y := a.Sample(row), b.Sample(row); x != y {
				t.Fatalf("draw %d: %d and %d from the same seed", i, x, y)
			}
		}
	})
}
