//go:build cgo && (llama_engine || llama_system) && !race

package sampler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/uma-serve/uma-serve/runtime/llama"
)

// These tests settle that the chain here and llama.cpp's own are the same sampler. (Under the race detector
// llama.cpp would be compiled a second time, for a test without a second goroutine.)

func llamaChain(p Params, seed uint32) *llama.ReferenceSampler {
	return llama.NewReferenceSampler(llamaParams(p, seed))
}

func llamaParams(p Params, seed uint32) llama.ReferenceParams {
	return llama.ReferenceParams{
		Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, RepeatPenalty: p.RepeatPenalty,
		FrequencyPenalty: p.FrequencyPenalty, PresencePenalty: p.PresencePenalty, PenaltyLastN: p.PenaltyLastN,
		Seed:      seed,
		TopNSigma: p.TopNSigma, TypicalP: p.TypicalP, XTCProbability: p.XTCProbability, XTCThreshold: p.XTCThreshold,
		DynatempRange: p.DynatempRange, DynatempExponent: p.DynatempExponent,
		Mirostat: p.Mirostat, MirostatTau: p.MirostatTau, MirostatEta: p.MirostatEta,
	}
}

// TestLlamaShapes compares the candidates of the stages that few requests ask for. llama.cpp sums in float32, so a
// token at the very border of a stage may be on the other side: in few of the cases, and then it is one token.
func TestLlamaShapes(t *testing.T) {
	var scratch Scratch
	const cases = 1500
	borders := 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 12))
		n := 100 + r.IntN(2000)
		p := randomShape(r, randomParams(r, n), n)
		p.RepeatPenalty, p.FrequencyPenalty, p.PresencePenalty, p.DryMultiplier, p.IgnoreEOS = 1, 0, 0, 0, false
		p.LogitBias, p.AllowedTokens, p.BadWords, p.MinTokens = nil, nil, nil, 0
		if p.DynatempRange > 0 || p.TypicalP > 0 {
			p.TopNSigma = 0 // llama.cpp leaves its dropped tokens among those of an entropy, where 0·log 0 is no number
		}
		logits := randomLogits(r, n)
		got := New(p, VocabFacts{Size: n}, &scratch).probs(logits)
		params := llamaParams(p, 1)
		params.VocabSize = n
		ref := llama.NewReferenceSampler(params)
		want := map[int32]float64{}
		for _, c := range ref.Probs(logits) {
			if c.P > 0 {
				want[c.Token] = float64(c.P)
			}
		}
		ref.Close()
		if d := len(got) - len(want); d == 1 || d == -1 {
			borders++
			continue
		}
		t.Run("", func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d, n %d, %+v", seed, n, p)
				}
			}()
			sameDistribution(t, got, want)
		})
	}
	if borders > cases/50 {
		t.Errorf("%d of %d cases differ by a token", borders, cases)
	}
}

// biased is the row that llama-server's logit bias stage leaves, which the reference lacks.
func biased(p Params, vocab VocabFacts, logits []float32) []float32 {
	out := slices.Clone(logits)
	for _, b := range p.LogitBias {
		out[b.Token] += b.Bias
	}
	if p.IgnoreEOS {
		for _, t := range vocab.EOG {
			out[t] += -inf
		}
	}
	return out
}

func randomCase(seed uint64, n int) (r *rand.Rand, p Params, vocab VocabFacts, logits []float32) {
	r = rand.New(rand.NewPCG(seed, 2))
	p = randomParams(r, n)
	return r, p, VocabFacts{Size: n, EOG: []int32{int32(r.IntN(n))}}, randomLogits(r, n)
}

// TestLlamaDistribution compares the candidates and their probabilities. Without penalties: llama.cpp's copy of a
// chain, which the reference makes to change nothing, forgets their counts.
func TestLlamaDistribution(t *testing.T) {
	var scratch Scratch
	for seed := range uint64(600) {
		n := 20 + int(seed*seed)%3000
		if seed%100 == 99 {
			n = 152_064
		}
		_, p, vocab, logits := randomCase(seed, n)
		p.RepeatPenalty, p.FrequencyPenalty, p.PresencePenalty = 1, 0, 0
		got := New(p, vocab, &scratch).probs(logits)
		ref := llamaChain(p, 1)
		want := map[int32]float64{}
		for _, c := range ref.Probs(biased(p, vocab, logits)) {
			if c.P > 0 {
				want[c.Token] = float64(c.P)
			}
		}
		ref.Close()
		t.Run("", func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d, n %d, %+v", seed, n, p)
				}
			}()
			sameDistribution(t, got, want)
		})
	}
}

// TestLlamaGreedy compares greedy sequences of 100 tokens, which the penalties make long-winded.
func TestLlamaGreedy(t *testing.T) {
	var scratch Scratch
	for seed := range uint64(300) {
		n := 20 + int(seed)
		r, p, vocab, logits := randomCase(seed, n)
		p.Temperature = 0
		if p.PenaltyLastN < 0 {
			p.PenaltyLastN = 200 // llama.cpp leaves -1 to its caller
		}
		ref := llamaChain(p, 1)
		c := New(p, vocab, &scratch)
		for i := range 30 {
			c.Accept(int32(i % n))
			ref.Accept(int32(i % n))
		}
		for i := range 100 {
			logits[r.IntN(n)] += float32(r.NormFloat64())
			want := ref.Sample(biased(p, vocab, logits))
			got, err := c.Sample(logits)
			if err != nil || got.Token != want {
				t.Errorf("seed %d, token %d: %d (%v), want %d; n %d, %+v", seed, i, got.Token, err, want, n, p)
				break
			}
			c.Accept(got.Token)
		}
		ref.Close()
	}
}

// TestLlamaDraws compares what is drawn, not only what could be: Pearson's chi-square test of two samples of the same
// size. The seeds are fixed, so a pass is a pass; p-values below 1e-4 would say that the two differ.
func TestLlamaDraws(t *testing.T) {
	const draws = 30_000
	var scratch Scratch
	for seed, p := range []Params{
		DefaultParams(),
		{Temperature: 1, TopP: 1, RepeatPenalty: 1},
		{Temperature: 1.5, TopP: 0.9, RepeatPenalty: 1},
		{Temperature: 0.5, TopK: 200, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1},
	} {
		logits := make([]float32, 400)
		for r, i := rand.New(rand.NewPCG(uint64(seed), 3)), 0; i < len(logits); i++ {
			logits[i] = float32(1.5 * r.NormFloat64())
		}
		p.Seed = uint64(seed)
		c, ref := New(p, VocabFacts{Size: len(logits)}, &scratch), llamaChain(p, uint32(seed))
		ours, theirs := make([]float64, len(logits)), make([]float64, len(logits))
		for range draws {
			choice, err := c.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			ours[choice.Token]++
			theirs[ref.Sample(logits)]++
		}
		ref.Close()
		// Rare tokens share one cell, for the test's approximation needs five or more in each.
		chi2, cells, rareOurs, rareTheirs := 0.0, 0, 0.0, 0.0
		cell := func(a, b float64) {
			if a+b > 0 {
				chi2 += (a - b) * (a - b) / (a + b)
				cells++
			}
		}
		for i := range ours {
			if ours[i]+theirs[i] < 10 {
				rareOurs += ours[i]
				rareTheirs += theirs[i]
				continue
			}
			cell(ours[i], theirs[i])
		}
		cell(rareOurs, rareTheirs)
		pValue := distuv.ChiSquared{K: float64(cells - 1)}.Survival(chi2)
		t.Logf("%+v: %d cells, chi² %.1f, p %.3f", p, cells, chi2, pValue)
		if pValue < 1e-4 {
			t.Errorf("the draws differ")
		}
	}
}

func BenchmarkLlamaChain(b *testing.B) {
	for _, n := range []int{49_152, 152_064} {
		rows := rows(n)
		for _, c := range benchParams {
			if c.p.Logprobs > 0 {
				continue
			}
			b.Run(name(n, c.name), func(b *testing.B) {
				ref := llamaChain(c.p, 1)
				defer ref.Close()
				for i := range int32(200) {
					ref.Accept(i * 37)
				}
				i := 0
				for b.Loop() {
					ref.Sample(rows[i%len(rows)])
					i++
				}
			})
		}
	}
}
