package pooling

import (
	"math"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

func TestRank(t *testing.T) {
	dense := runtime.Classifier{Dense: []float32{1, 2, -1, 0.5}, DenseBias: []float32{0.25, -0.5},
		Out: []float32{2, -3}, OutBias: []float32{0.125}}
	head := func(a, b float64) float64 {
		return 2*math.Tanh(a+2*b+0.25) - 3*math.Tanh(-a+b/2-0.5) + 0.125
	}
	for name, c := range map[string]struct {
		runtime.Ranking
		want float64
	}{
		"the first row":  {runtime.Ranking{Classifier: dense}, head(0.5, -1)},
		"the last row":   {runtime.Ranking{Classifier: dense, Last: true}, head(0.25, 3)},
		"without biases": {runtime.Ranking{Classifier: runtime.Classifier{Out: []float32{4, 1}}}, 1},
		"without projection": {runtime.Ranking{Classifier: runtime.Classifier{Dense: []float32{1, 1}}},
			math.Tanh(-0.5)},
		"of two labels": {runtime.Ranking{Classifier: runtime.Classifier{Out: []float32{1, 0, 0, 1}, Softmax: true}},
			1 / (1 + math.Exp(-1.5))},
		"far apart": {runtime.Ranking{Classifier: runtime.Classifier{Out: []float32{0, 0, 8000, 0}, Softmax: true}}, 0},
	} {
		p := NewRank(&c.Ranking, 2)
		p.Add([]float32{7, 7}) // forgotten
		p.Reset()
		p.Add([]float32{0.5, -1})
		p.Add([]float32{0.25, 3})
		got := p.AppendTo(nil)
		if len(got) != 1 || math.Abs(float64(got[0])-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %g", name, got, c.want)
		}
	}
}
