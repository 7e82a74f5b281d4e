//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// apply is the head of the Ranking for a row of hidden states, in float64.
func apply(c *runtime.Classifier, h []float32) float64 {
	product := func(m, bias []float32, v []float64) (out []float64) {
		for i := range len(m) / len(v) {
			sum := float64(bias[i])
			for j, x := range v {
				sum += float64(m[i*len(v)+j]) * x
			}
			out = append(out, sum)
		}
		return out
	}
	v := make([]float64, len(h))
	for i, x := range h {
		v[i] = float64(x)
	}
	v = product(c.Dense, c.DenseBias, v)
	for i := range v {
		v[i] = math.Tanh(v[i])
	}
	return product(c.Out, c.OutBias, v)[0]
}

// TestRanking: the head that Ranking returns makes of the hidden states what llama.cpp's own pooling "rank" makes of
// the pair.
func TestRanking(t *testing.T) {
	for kind, near := range map[ggufgen.Type]float64{
		ggufgen.F32: 0.02, ggufgen.F16: 0.02,
		ggufgen.Q8_0: 0.1, // where llama.cpp rounds the state to 8 bits too
	} {
		cfg := ggufgen.TinyRank()
		cfg.Type = kind
		e := openEmbedder(t, cfg, runtime.Options{})
		r, err := e.Ranking()
		if err != nil {
			t.Fatal(err)
		}
		cls, sep := e.Vocab().Find("[CLS]"), e.Vocab().Find("[SEP]")
		if !slices.Equal(r.Begin, []runtime.Token{cls}) || !slices.Equal(r.Between, []runtime.Token{sep}) || r.Last ||
			r.Classifier.Softmax || r.Template != "" || len(r.Classifier.Dense) != cfg.Embedding*cfg.Embedding ||
			len(r.Classifier.Out) != cfg.Embedding {
			t.Fatalf("%s: %+v", kind, r)
		}
		var scores []float64
		for n := 1; n <= 40; n += 13 {
			pair := slices.Clone(r.Begin)
			for i := range n {
				pair = append(pair, runtime.Token(20+(i*7+n)%300))
			}
			pair = append(append(pair, r.Between...), 40, 41)
			e.Batch().Reset()
			for i, tok := range pair {
				e.Batch().AddFor(tok, runtime.Pos(i), 0, runtime.RowEmbedding)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			got := apply(&r.Classifier, e.Embedding(0))
			want, err := e.referenceScore(pair)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got-float64(want)) > near {
				t.Errorf("%s, a pair of %d tokens: %g, llama.cpp says %g", kind, len(pair), got, want)
			}
			scores = append(scores, got)
		}
		if slices.Max(scores)-slices.Min(scores) < 0.1 {
			t.Errorf("%s: the scores %v hardly differ", kind, scores)
		}
	}
}

// TestRankingRefused: models that cannot rank say why.
func TestRankingRefused(t *testing.T) {
	none := ggufgen.TinyEmbed()
	none.Pooling = "rank"
	for want, cfg := range map[string]ggufgen.Config{
		`does not say that it ranks`: ggufgen.TinyBert(),
		`architecture "llama"`:       none,
	} {
		if r, err := openEmbedder(t, cfg, runtime.Options{}).Ranking(); r != nil || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", cfg.Name, err, want)
		}
	}
	// A file of the right kind without the head.
	path := ggufgen.Cached(t, ggufgen.TinyBert())
	if _, err := readClassifier(path, 64); err == nil || !strings.Contains(err.Error(), "no classifier") {
		t.Errorf("without a head: %v", err)
	}
	if _, err := readClassifier(ggufgen.Cached(t, ggufgen.TinyRank()), 32); err == nil ||
		!strings.Contains(err.Error(), "do not fit a state of 32") {
		t.Errorf("a narrower state: %v", err)
	}
	if _, err := readClassifier(path+".missing", 64); err == nil || !strings.Contains(err.Error(), "opened again") {
		t.Errorf("a missing file: %v", err)
	}
}
