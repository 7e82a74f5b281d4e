package sampler

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// weighed is a token of the reference, in float64.
type weighed struct {
	id   int32
	l, p float64
}

func softmaxOf(toks []weighed) {
	slices.SortStableFunc(toks, func(a, b weighed) int { return cmp.Compare(b.l, a.l) })
	sum := 0.0
	for i := range toks {
		toks[i].p = math.Exp(toks[i].l - toks[0].l)
		sum += toks[i].p
	}
	for i := range toks {
		toks[i].p /= sum
	}
}

// referenceStage is a stage by its definition. The tokens come sorted by logit, with their probabilities.
func referenceStage(p Params, vocab VocabFacts, history []int32, stage Stage, toks []weighed) []weighed {
	softmaxOf(toks)
	switch stage {
	case Penalties:
		for i := range toks {
			from := max(0, len(history)-p.PenaltyLastN)
			if p.PenaltyLastN < 0 {
				from = 0
			}
			n := 0
			for _, h := range history[from:] {
				if h == toks[i].id {
					n++
				}
			}
			if n == 0 {
				continue
			}
			if toks[i].l <= 0 {
				toks[i].l *= float64(p.RepeatPenalty)
			} else {
				toks[i].l /= float64(p.RepeatPenalty)
			}
			toks[i].l -= float64(n)*float64(p.FrequencyPenalty) + float64(p.PresencePenalty)
		}
	case DRY:
		for i := range toks {
			toks[i].l -= dryPenalty(p, history, toks[i].id)
		}
	case TopNSigma:
		mean, variance := 0.0, 0.0
		for _, t := range toks {
			mean += t.l / float64(len(toks))
		}
		for _, t := range toks {
			variance += (t.l - mean) * (t.l - mean) / float64(len(toks))
		}
		if low := toks[0].l - float64(p.TopNSigma)*math.Sqrt(variance); p.TopNSigma > 0 {
			toks = slices.DeleteFunc(toks, func(t weighed) bool { return t.l < low })
		}
	case TopK:
		if p.TopK > 0 {
			toks = toks[:min(p.TopK, len(toks))]
		}
	case TypicalP:
		if p.TypicalP <= 0 || p.TypicalP >= 1 || len(toks) < 2 {
			break
		}
		entropy := 0.0
		for _, t := range toks {
			entropy -= t.p * math.Log(max(t.p, 1e-300))
		}
		far := func(t weighed) float64 { return math.Abs(-math.Log(max(t.p, 1e-300)) - entropy) }
		slices.SortStableFunc(toks, func(a, b weighed) int { return cmp.Compare(far(a), far(b)) })
		run := 0.0
		for i := range toks {
			if run += toks[i].p; run > float64(p.TypicalP) {
				toks = toks[:i+1]
				break
			}
		}
	case TopP:
		run := 0.0
		for i := range toks {
			if run += toks[i].p; p.TopP < 1 && run >= float64(p.TopP) {
				toks = toks[:i+1]
				break
			}
		}
	case MinP:
		toks = slices.DeleteFunc(toks, func(t weighed) bool { return t.p < toks[0].p*float64(p.MinP) })
	case XTC:
		sure := 0
		for sure < len(toks) && toks[sure].p >= float64(p.XTCThreshold) {
			sure++
		}
		if p.XTCProbability == 1 && p.XTCThreshold <= 0.5 && len(toks) > 1 {
			toks = toks[max(0, sure-1):]
		}
	case Temperature:
		if p.Temperature <= 0 {
			return toks[:1]
		}
		for i := range toks {
			toks[i].l /= float64(p.Temperature)
		}
	case Infill:
		toks = referenceInfill(vocab, toks)
	}
	return toks
}

// referenceInfill is llama_sampler_infill_apply, in float64.
func referenceInfill(vocab VocabFacts, toks []weighed) []weighed {
	eog := func(t weighed) bool { return slices.Contains(vocab.EOG, t.id) }
	text, end := 0.0, 0.0
	for _, t := range toks {
		if eog(t) {
			end += t.p
		} else {
			text += t.p
		}
	}
	if 3*end*float64(len(toks)) > text {
		return slices.DeleteFunc(toks, func(t weighed) bool { return !eog(t) })
	}
	gone := make([]bool, len(toks))
	for i := range toks {
		for j := range toks {
			if gone[i] {
				break
			}
			a, b := vocab.Piece(toks[i].id), vocab.Piece(toks[j].id)
			if i == j || gone[j] || len(a) == 0 || !bytes.HasPrefix(b, a) {
				continue
			}
			to, from := i, j
			if toks[j].p > toks[i].p {
				to, from = j, i
			}
			toks[to].p += toks[from].p
			toks[from].p, gone[from] = 0, true
		}
	}
	sum, n := 0.0, 0
	var kept []weighed
	for _, t := range toks {
		if t.p < 0.2 && !eog(t) {
			continue
		}
		if !eog(t) {
			n++
		}
		sum += t.p
		kept = append(kept, t)
	}
	if n == 0 {
		return []weighed{{id: vocab.EOG[0]}}
	}
	return slices.DeleteFunc(kept, func(t weighed) bool { return t.p/sum < 1/float64(n+1) && !eog(t) })
}

// TestAnyOrderAgainstReference: stages in any order, infill among them, against their definitions in float64. A token
// at the very border of a stage may be on its other side, in very few cases.
func TestAnyOrderAgainstReference(t *testing.T) {
	var scratch Scratch
	const cases = 4000
	differ, ended, filled := 0, 0, 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 21))
		n := 2 + r.IntN(200)
		p := randomShape(r, randomParams(r, n), n)
		p.Mirostat, p.DynatempRange = 0, 0
		p.AllowedTokens, p.BadWords, p.MinTokens, p.LogitBias, p.IgnoreEOS = nil, nil, 0, nil, false
		p.Order = make([]Stage, r.IntN(9))
		for i := range p.Order {
			p.Order[i] = Stage(r.IntN(int(Infill) + 1))
		}
		if r.IntN(2) == 0 {
			p.Order = append(p.Order, Infill)
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		pieces := make([][]byte, n)
		for i := range pieces {
			for range r.IntN(4) {
				pieces[i] = append(pieces[i], "ab"[r.IntN(2)])
			}
		}
		vocab := VocabFacts{Size: n, EOG: []int32{int32(r.IntN(n))},
			Piece: func(t int32) []byte { return pieces[t] }}
		pieces[vocab.EOG[0]] = nil
		c := New(p, vocab, &scratch)
		var history []int32
		for range r.IntN(60) {
			history = append(history, int32(r.IntN(min(n, 4))))
			c.Accept(history[len(history)-1])
		}
		c.Begin()
		logits := randomLogits(r, n)
		if r.IntN(2) == 0 {
			logits[vocab.EOG[0]] -= 20 // else most rows end the answer
		}
		var toks []weighed
		for i, l := range logits {
			toks = append(toks, weighed{id: int32(i), l: float64(l)})
		}
		for _, stage := range p.Order {
			toks = referenceStage(p, vocab, history, stage, toks)
		}
		softmaxOf(toks)
		got, same := c.probs(logits), true
		for _, w := range toks {
			same = same && math.Abs(got[w.id]-w.p) < 1e-4
		}
		if same = same && math.Abs(float64(len(got)-len(toks))) < 1; !same {
			if differ++; differ > cases/200 {
				t.Fatalf("seed %d, order %v: %v, want %v", seed, p.Order, got, toks)
			}
		}
		if slices.Contains(p.Order, Infill) && len(got) == 1 {
			if _, ok := got[vocab.EOG[0]]; ok {
				ended++
			} else {
				filled++
			}
		}
		if _, err := c.Sample(logits); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if ended < 50 || filled < 50 {
		t.Errorf("infill ended %d answers and went on with %d", ended, filled)
	}
}

// TestInfillNeverEndsWhatMustGoOn: without an end of generation that may be drawn, infill keeps the best token.
func TestInfillNeverEndsWhatMustGoOn(t *testing.T) {
	p := Params{Temperature: 1, TopP: 1, RepeatPenalty: 1, IgnoreEOS: true, Order: []Stage{Infill}}
	logits := make([]float32, 64)
	logits[7] = 0.1
	for _, eog := range [][]int32{{3}, nil} {
		vocab := VocabFacts{Size: 64, EOG: eog, Piece: func(t int32) []byte { return []byte{byte(t), 'x'} }}
		if got, err := New(p, vocab, new(Scratch)).Sample(logits); err != nil || got.Token != 7 {
			t.Errorf("ends %v: %+v, %v", eog, got, err)
		}
	}
}

// TestOrderAllocs: a chain with an order allocates nothing once its scratch has grown.
func TestOrderAllocs(t *testing.T) {
	vocab := VocabFacts{Size: 4000, EOG: []int32{3}, Piece: func(t int32) []byte { return nil }}
	p := DefaultParams()
	p.Order = []Stage{TopK, TopP, Infill}
	c := New(p, vocab, new(Scratch))
	logits := randomLogits(rand.New(rand.NewPCG(1, 1)), vocab.Size)
	if n := testing.AllocsPerRun(100, func() { c.Sample(logits) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
