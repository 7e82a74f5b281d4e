package bench

import (
	"math"
	"strings"
	"testing"
)

// Two runs whose thoughts are in a fixed ratio have an interval without a width; two that differ at random have one
// that holds the difference.
func TestEATCheckCompares(t *testing.T) {
	const n, repeat = 400, 2
	var free, half, mixed []answered
	for i := range n {
		a := answered{right: i%10 != 0, think: 40 + i%7*20}
		free = append(free, a)
		half = append(half, answered{right: a.right, think: a.think / 2})
		b := a
		if i%4 < 2 { // every other problem
			b.think /= 2
		}
		b.right = a.right && i%40 != 1
		mixed = append(mixed, b)
	}
	var c EATCheck
	c.compare(free, half, repeat, 1)
	if c.Saved != 0.5 || c.SavedCI95 != [2]float64{0.5, 0.5} || c.Gained != 0 || c.GainedCI95 != [2]float64{} {
		t.Errorf("half the thinking: %+v", c)
	}
	c.compare(free, mixed, repeat, 1)
	if math.Abs(c.Saved-0.25) > 0.01 || math.Abs(c.Gained+0.025) > 1e-9 {
		t.Errorf("saved %v, gained %v; want a quarter saved and ten right answers of 400 lost", c.Saved, c.Gained)
	}
	if lo, hi := c.SavedCI95[0], c.SavedCI95[1]; lo >= c.Saved || hi <= c.Saved || hi-lo > 0.2 || hi-lo < 0.02 {
		t.Errorf("saved %v in %v … %v", c.Saved, lo, hi)
	}
	if lo, hi := c.GainedCI95[0], c.GainedCI95[1]; lo >= c.Gained || hi <= c.Gained || lo < -0.06 || hi > 0 {
		t.Errorf("gained %v in %v … %v", c.Gained, lo, hi)
	}
}

func TestEATTable(t *testing.T) {
	free := EvalScore{Asked: 200, Right: 190, Accuracy: 0.95, CI95: [2]float64{0.91, 0.97}, ThinkTokens: 100}
	eat := free
	eat.ThinkTokens = 80
	r := EATReport{
		Points: []EATPoint{{"free", 0, free}, {"eat", 0.01, eat}, {"rpdi", 2, eat}, {"cap", 40, eat}},
		Checks: []EATCheck{{Kind: "rpdi", Value: 2, Free: free, Score: eat,
			Saved: 0.2, SavedCI95: [2]float64{0.15, 0.25},
			Gained: -0.005, GainedCI95: [2]float64{-0.02, 0.01}}},
	}
	var b strings.Builder
	r.Markdown(&b)
	for _, want := range []string{
		"| as the model decides | 190 of 200 = 95.0 % | 91.0 … 97.0 % | 100.0 | 0.0 % |\n",
		"| EAT, δ = 0.01 nats² | 190 of 200 = 95.0 % | 91.0 … 97.0 % | 80.0 | 20.0 % |\n",
		"| cap of 40 tokens |",
		"| RPDI, λ = 2 | 190 of 200 = 95.0 % | 91.0 … 97.0 % | 80.0 | 20.0 % | 15.0 … 25.0 % | -0.5 | -2.0 … +1.0 |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
}
