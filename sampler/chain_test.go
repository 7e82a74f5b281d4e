package sampler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

// reference is the chain as its definition reads, in float64 over the whole row, sorted: the probabilities of the
// tokens that may be drawn.
func reference(p Params, vocab VocabFacts, history []int32, generated int, logits []float32) map[int32]float64 {
	type tok struct {
		id int32
		l  float64
		p  float64
	}
	counts := map[int32]int{}
	if n := p.PenaltyLastN; n != 0 {
		from := 0
		if n > 0 {
			from = max(0, len(history)-n)
		}
		for _, t := range history[from:] {
			counts[t]++
		}
	}
	var toks []tok
	for i, l := range logits {
		t := tok{id: int32(i), l: float64(l)}
		for _, b := range p.LogitBias {
			if b.Token == t.id {
				t.l += float64(b.Bias)
			}
		}
		if p.IgnoreEOS && slices.Contains(vocab.EOG, t.id) {
			t.l = math.Inf(-1)
		}
		if n := counts[t.id]; n > 0 {
			if t.l <= 0 {
				t.l *= float64(p.RepeatPenalty)
			} else {
				t.l /= float64(p.RepeatPenalty)
			}
			t.l -= float64(n)*float64(p.FrequencyPenalty) + float64(p.PresencePenalty)
		}
		t.l -= dryPenalty(p, history, t.id)
		if !math.IsNaN(t.l) && !math.IsInf(t.l, -1) {
			toks = append(toks, t)
		}
	}
	toks = constrained(p, vocab, history, generated, toks, func(t *tok) (int32, *float64) { return t.id, &t.l })
	slices.SortStableFunc(toks, func(a, b tok) int { return cmp.Compare(b.l, a.l) })
	softmax := func(temp float64) {
		sum := 0.0
		for i := range toks {
			toks[i].p = math.Exp((toks[i].l - toks[0].l) / temp)
			sum += toks[i].p
		}
		for i := range toks {
			toks[i].p /= sum
		}
	}
	if len(toks) == 0 {
		return nil
	}
	if p.Mirostat > 0 {
		if p.Temperature <= 0 {
			return map[int32]float64{toks[0].id: 1}
		}
		softmax(float64(p.Temperature))
		mu, keep := 2*float64(p.MirostatTau), 1 // of a chain that has drawn nothing
		if p.Mirostat == 2 {
			for keep < len(toks) && -math.Log2(toks[keep].p) <= mu {
				keep++
			}
		} else {
			sumTB, sumTT := 0.0, 0.0
			for i := range min(99, len(toks)-1) {
				rank := math.Log(float64(i+2) / float64(i+1))
				sumTB += rank * math.Log(toks[i].p/toks[i+1].p)
				sumTT += rank * rank
			}
			s := sumTB / sumTT
			k := math.Pow((s-1)*math.Pow(2, mu)/(1-math.Pow(float64(len(toks)), 1-s)), 1/s)
			if keep = len(toks); k < float64(keep) {
				keep = max(int(k), 1)
			}
		}
		toks = toks[:keep]
		softmax(float64(p.Temperature))
		probs := map[int32]float64{}
		for _, t := range toks {
			probs[t.id] = t.p
		}
		return probs
	}
	if p.TopNSigma > 0 {
		mean, variance := 0.0, 0.0
		for _, t := range toks {
			mean += t.l / float64(len(toks))
		}
		for _, t := range toks {
			variance += (t.l - mean) * (t.l - mean) / float64(len(toks))
		}
		low := toks[0].l - float64(p.TopNSigma)*math.Sqrt(variance)
		toks = slices.DeleteFunc(toks, func(t tok) bool { return t.l < low })
	}
	if p.TopK > 0 && p.TopK < len(toks) {
		toks = toks[:p.TopK]
	}
	if p.TypicalP > 0 && p.TypicalP < 1 && len(toks) > 1 {
		softmax(1)
		entropy := 0.0
		for _, t := range toks {
			entropy -= t.p * math.Log(max(t.p, 1e-300))
		}
		far := func(t tok) float64 { return math.Abs(-math.Log(max(t.p, 1e-300)) - entropy) }
		slices.SortStableFunc(toks, func(a, b tok) int { return cmp.Compare(far(a), far(b)) })
		run := 0.0
		for i := range toks {
			if run += toks[i].p; run > float64(p.TypicalP) {
				toks = toks[:i+1]
				break
			}
		}
		slices.SortStableFunc(toks, func(a, b tok) int { return cmp.Compare(b.l, a.l) })
	}
	if p.TopP < 1 {
		softmax(1)
		run := 0.0
		for i := range toks {
			if run += toks[i].p; run >= float64(p.TopP) {
				toks = toks[:i+1]
				break
			}
		}
	}
	if p.MinP > 0 {
		for i := range toks {
			if toks[i].l < toks[0].l+math.Log(float64(p.MinP)) {
				toks = toks[:i]
				break
			}
		}
	}
	if p.XTCProbability == 1 && p.XTCThreshold <= 0.5 && len(toks) > 1 {
		softmax(1)
		sure := 0
		for sure < len(toks) && toks[sure].p >= float64(p.XTCThreshold) {
			sure++
		}
		toks = toks[max(0, sure-1):]
	}
	temperature := float64(p.Temperature)
	if d := float64(p.DynatempRange); d > 0 && len(toks) > 1 {
		softmax(1)
		entropy := 0.0
		for _, t := range toks {
			if t.p > 0 {
				entropy -= t.p * math.Log(t.p)
			}
		}
		low, high := max(0, temperature-d), temperature+d
		temperature = low + (high-low)*math.Pow(entropy/math.Log(float64(len(toks))), float64(p.DynatempExponent))
	}
	if temperature <= 0 {
		return map[int32]float64{toks[0].id: 1}
	}
	softmax(temperature)
	probs := map[int32]float64{}
	for _, t := range toks {
		probs[t.id] = t.p
	}
	return probs
}

// constrained returns the candidates that MinTokens, AllowedTokens, BadWords and DRY leave, by their definitions. The
// last generated tokens of history were sampled, the others are the prompt.
func constrained[T any](
	p Params, vocab VocabFacts, history []int32, generated int, toks []T, of func(*T) (int32, *float64),
) []T {
	answer := history[len(history)-generated:]
	return slices.DeleteFunc(toks, func(t T) bool {
		id, _ := of(&t)
		switch {
		case p.AllowedTokens != nil && !slices.Contains(p.AllowedTokens, id):
			return true
		case generated < p.MinTokens && (slices.Contains(vocab.EOG, id) || slices.Contains(p.StopTokens, id)):
			return true
		}
		for _, w := range p.BadWords {
			if n := len(w) - 1; w[n] == id && len(answer) >= n && slices.Equal(w[:n], answer[len(answer)-n:]) {
				return true
			}
		}
		return false
	})
}

// dryPenalty is DRY's penalty of a token by its definition: the longest end of the history, not reaching across a
// breaker, that was followed by this token before.
func dryPenalty(p Params, history []int32, id int32) float64 {
	if p.DryMultiplier <= 0 || p.DryPenaltyLastN == 0 {
		return 0
	}
	if n := p.DryPenaltyLastN; n > 0 {
		history = history[max(0, len(history)-n):]
	}
	limit := len(history)
	for i := len(history) - 1; i >= 0 && limit == len(history); i-- {
		longest := -1
		for _, tail := range p.DrySequenceBreaks[history[i]] {
			if i+1+len(tail) <= len(history) && slices.Equal(tail, history[i+1:i+1+len(tail)]) {
				longest = max(longest, len(tail))
			}
		}
		if longest >= 0 {
			limit = len(history) - 1 - i - longest
			break
		}
	}
	if slices.ContainsFunc(p.DrySequenceBreaks[id], func(tail []int32) bool { return len(tail) == 0 }) {
		return 0
	}
	best := -1
	for at, t := range history {
		if t != id || at == 0 {
			continue
		}
		n := 0
		for n < at && n < limit && history[at-1-n] == history[len(history)-1-n] {
			n++
		}
		best = max(best, n)
	}
	if best < p.DryAllowedLength || len(history) <= p.DryAllowedLength || limit < p.DryAllowedLength {
		return 0
	}
	exponent := float64(best - p.DryAllowedLength)
	if p.DryBase > 1.000001 {
		exponent = min(exponent, math.Floor(math.Log(math.MaxFloat32)/math.Log(float64(p.DryBase))))
	}
	return float64(p.DryMultiplier) * math.Pow(float64(p.DryBase), exponent)
}

// probs is the distribution that Sample draws from.
func (c *Chain) probs(logits []float32) map[int32]float64 {
	cands := c.scratch.candidates(c, logits)
	if len(cands) == 1 {
		return map[int32]float64{cands[0].id: 1}
	}
	m := map[int32]float64{}
	total := weigh(cands, c.scratch.temperature)
	for _, k := range cands {
		m[k.id] = float64(k.p) / total
	}
	return m
}

// sameDistribution allows a token at the very border of top_p or min_p to be in only one of the two, as rounding in
// float32 may move it across; its weight then shows in the others' probabilities.
func sameDistribution(t *testing.T, got, want map[int32]float64) {
	t.Helper()
	const tol = 1e-5
	for id, w := range want {
		if g := got[id]; math.Abs(g-w) > tol {
			t.Fatalf("token %d: probability %v, want %v (%d candidates, want %d)", id, g, w, len(got), len(want))
		}
	}
	for id, g := range got {
		if _, ok := want[id]; !ok && g > tol {
			t.Fatalf("token %d: probability %v, but it is no candidate", id, g)
		}
	}
}

func randomLogits(r *rand.Rand, n int) []float32 {
	logits := make([]float32, n)
	spread := 0.5 + 4*r.Float64()
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * spread)
	}
	for range r.IntN(20) { // a model that knows what it wants
		logits[r.IntN(n)] += float32(8 + 10*r.Float64())
	}
	return logits
}

func randomParams(r *rand.Rand, n int) Params {
	pick := func(off float32, v float64) float32 {
		if r.IntN(3) == 0 {
			return off
		}
		return float32(v)
	}
	p := Params{
		Temperature: pick(1, 0.05+2*r.Float64()), TopK: []int{0, 0, 1, 2, 5, 40, 40, 128, 300, n / 2,
			2 * n}[r.IntN(11)],
		TopP: pick(1, r.Float64()), MinP: pick(0, 0.3*r.Float64()*r.Float64()), RepeatPenalty: pick(1, 0.8+r.Float64()),
		FrequencyPenalty: pick(0, 2*r.Float64()-0.5), PresencePenalty: pick(0, 2*r.Float64()-0.5),
		PenaltyLastN: []int{-1, 0, 1, 7, 64, 1000}[r.IntN(6)], Seed: r.Uint64(), IgnoreEOS: r.IntN(4) == 0,
	}
	if r.IntN(10) == 0 {
		p.Temperature = 0
	}
	for range r.IntN(4) * r.IntN(5) {
		b := Bias{int32(r.IntN(n)), float32(10*r.Float64() - 5)}
		if r.IntN(4) == 0 {
			b.Bias = -inf
		}
		p.LogitBias = append(p.LogitBias, b)
	}
	return p
}

// TestChainAgainstReference settles that the fast selections change nothing.
func TestChainAgainstReference(t *testing.T) {
	var scratch Scratch
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(2000)
		p := randomParams(r, n)
		if err := p.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		vocab := VocabFacts{Size: n, EOG: []int32{int32(r.IntN(n)), int32(r.IntN(n))}}
		c := New(p, vocab, &scratch)
		var history []int32
		for range r.IntN(300) {
			tok := int32(r.IntN(min(n, 80)))
			history = append(history, tok)
			c.Accept(tok)
		}
		logits := randomLogits(r, n)
		kept := slices.Clone(logits)
		want := reference(p, vocab, history, 0, logits)
		got := c.probs(logits)
		t.Run("", func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d, n %d, %+v", seed, n, p)
				}
			}()
			sameDistribution(t, got, want)
			choice, err := c.Sample(logits)
			if err != nil && len(want) > 0 {
				t.Fatal(err)
			}
			if err == nil && want[choice.Token] == 0 {
				t.Fatalf("chose token %d, which is no candidate", choice.Token)
			}
		})
		if !slices.Equal(kept, logits) {
			t.Fatalf("seed %d: the row was written to", seed)
		}
	}
}

func TestSampleEdges(t *testing.T) {
	def := DefaultParams()
	greedy := Params{Temperature: 0, RepeatPenalty: 1, TopP: 1}
	open := Params{Temperature: 1, RepeatPenalty: 1, TopP: 1}
	topP0 := Params{Temperature: 1, RepeatPenalty: 1, TopP: 0}
	noEOS := greedy
	noEOS.IgnoreEOS = true
	for _, c := range []struct {
		name   string
		p      Params
		logits []float32
		want   int32 // -1: ErrNoCandidate
	}{
		{"greedy tie", greedy, []float32{1, 3, 3, 2}, 1},
		{"greedy NaN", greedy, []float32{nan, 1, nan, 2, nan}, 3},
		{"greedy -Inf", greedy, []float32{-inf, -inf}, -1},
		{"greedy NaN only", greedy, []float32{nan, nan, nan, nan, nan, nan, nan, nan, nan}, -1},
		{"greedy +Inf", greedy, []float32{0, inf, inf}, 1},
		{"greedy empty", greedy, nil, -1},
		{"greedy long tail", greedy, []float32{0, 0, 0, 0, 0, 0, 0, 0, 0, 5}, 9},
		{"ignore_eos", noEOS, []float32{1, 2, 9}, 1},
		{"only eos", noEOS, []float32{-inf, nan, 9}, -1},
		{"default one", def, []float32{-inf, 2, nan}, 1},
		{"default none", def, []float32{-inf, nan}, -1},
		{"default +Inf", def, []float32{0, inf, 1}, 1},
		{"open one", open, []float32{-inf, 2, nan}, 1},
		{"open none", open, []float32{-inf, nan}, -1},
		{"open +Inf", open, []float32{0, inf, 1}, 1},
		{"top_p 0 keeps one", topP0, []float32{1, 2, 2, 0}, 1},
		{"far apart", open, []float32{-3e38, 3e38}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := New(c.p, VocabFacts{Size: len(c.logits), EOG: []int32{2}}, new(Scratch)).Sample(c.logits)
			if got.Token != c.want || (err != nil) != (c.want < 0) || err != nil && !errors.Is(err, ErrNoCandidate) {
				t.Errorf("token %d, %v; want %d", got.Token, err, c.want)
			}
		})
	}
}

func TestSeed(t *testing.T) {
	draw := func(seed uint64) (toks []int32) {
		p := DefaultParams()
		p.Seed, p.Temperature = seed, 1.5
		c := New(p, VocabFacts{Size: 500}, new(Scratch))
		r := rand.New(rand.NewPCG(9, 9))
		for range 50 {
			choice, err := c.Sample(randomLogits(r, 500))
			if err != nil {
				t.Fatal(err)
			}
			toks = append(toks, choice.Token)
		}
		return toks
	}
	if !slices.Equal(draw(1), draw(1)) {
		t.Error("the same seed gives different tokens")
	}
	if slices.Equal(draw(1), draw(2)) {
		t.Error("different seeds give the same tokens")
	}
}

// rows are logits as a language model gives them: a few hundred likely tokens over a wide bulk.
func rows(n int) (out [][]float32) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		row := make([]float32, n)
		for i := range row {
			row[i] = float32(r.NormFloat64() * 2.5)
		}
		for range 200 {
			row[r.IntN(n)] = float32(6 + 4*r.ExpFloat64())
		}
		out = append(out, row)
	}
	return out
}

var benchParams = []struct {
	name string
	p    Params
}{
	{"greedy", Params{RepeatPenalty: 1, TopP: 1}},
	{"default_top_k_40", DefaultParams()},
	{"top_k_40_penalties", Params{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1,
		PenaltyLastN: 64}},
	{"top_p_0.95", Params{Temperature: 0.8, TopP: 0.95, RepeatPenalty: 1}},
	{"min_p_0.05", Params{Temperature: 0.8, TopP: 1, MinP: 0.05, RepeatPenalty: 1}},
	{"temperature_alone", Params{Temperature: 0.8, TopP: 1, RepeatPenalty: 1}},
	{"greedy_logprobs_5", Params{RepeatPenalty: 1, TopP: 1, Logprobs: 5}},
}

// shapeParams have one stage each that few requests ask for, and one with all of them.
var shapeParams = []struct {
	name string
	p    Params
}{
	{"typical_p", Params{Temperature: 0.8, TopP: 1, RepeatPenalty: 1, TypicalP: 0.8}},
	{"top_n_sigma", Params{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopNSigma: 1}},
	{"xtc_dynatemp", Params{Temperature: 1, TopK: 40, TopP: 1, RepeatPenalty: 1, XTCProbability: 0.5, XTCThreshold: 0.1,
		DynatempRange: 0.5, DynatempExponent: 1}},
	{"mirostat_1", Params{Temperature: 1, TopP: 1, RepeatPenalty: 1, Mirostat: 1, MirostatTau: 5, MirostatEta: 0.1}},
	{"mirostat_2", Params{Temperature: 1, TopP: 1, RepeatPenalty: 1, Mirostat: 2, MirostatTau: 5, MirostatEta: 0.1}},
	{"dry_200", Params{Temperature: 0.8, TopK: 40, TopP: 0.95, RepeatPenalty: 1, DryMultiplier: 0.8, DryBase: 1.75,
		DryAllowedLength: 2, DryPenaltyLastN: 200, DrySequenceBreaks: Breakers{5: {nil}, 6: {{7}}}}},
	{"bad_words", Params{RepeatPenalty: 1, TopP: 1, BadWords: [][]int32{{1, 2, 3}, {4}, {7, 8}}, MinTokens: 4,
		StopTokens: []int32{3}}},
	{"allowed", Params{Temperature: 0.8, TopK: 40, TopP: 0.95, RepeatPenalty: 1,
		AllowedTokens: []int32{9, 3, 1, 700, 44}}},
}

func BenchmarkSample(b *testing.B) {
	for _, n := range []int{49_152, 152_064} {
		rows := rows(n)
		for _, c := range benchParams {
			b.Run(name(n, c.name), func(b *testing.B) {
				chain := New(c.p, VocabFacts{Size: n}, new(Scratch))
				for i := range int32(200) {
					chain.Accept(i * 37)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					choice, err := chain.Sample(rows[i%len(rows)])
					if err != nil {
						b.Fatal(err)
					}
					chain.Accept(choice.Token)
					i++
				}
			})
		}
	}
}

func name(n int, chain string) string { return fmt.Sprintf("%d/%s", n, chain) }

func TestSampleAllocs(t *testing.T) {
	rows := rows(5000)
	for _, c := range slices.Concat(benchParams, shapeParams) {
		chain := New(c.p, VocabFacts{Size: 5000}, new(Scratch))
		i := 0
		turn := func() {
			choice, err := chain.Sample(rows[i%len(rows)])
			if err != nil {
				t.Fatal(err)
			}
			chain.Accept(choice.Token)
			i++
		}
		chain.Begin()
		for range 60 * len(rows) { // the scratch grows to what the rows need, DRY's window to its limit
			turn()
		}
		if n := testing.AllocsPerRun(200, turn); n != 0 {
			t.Errorf("%s: %v allocations a token", c.name, n)
		}
	}
}

func TestLogprobs(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		n := 1 + r.IntN(500)
		p := randomParams(r, n)
		p.Logprobs = 1 + r.IntN(MaxLogprobs)
		logits := randomLogits(r, n)
		if seed%5 == 0 {
			logits[r.IntN(n)] = nan
			logits[r.IntN(n)] = -inf
		}
		choice, err := New(p, VocabFacts{Size: n}, new(Scratch)).Sample(logits)
		if errors.Is(err, ErrNoCandidate) {
			continue
		}
		sum := 0.0
		type pair struct {
			id int32
			l  float32
		}
		var all []pair
		for i, l := range logits {
			if l == l && l != -inf {
				sum += math.Exp(float64(l))
				all = append(all, pair{int32(i), l})
			}
		}
		slices.SortStableFunc(all, func(a, b pair) int { return cmp.Compare(b.l, a.l) })
		check := func(got float32, logit float32) {
			t.Helper()
			if want := float64(logit) - math.Log(sum); math.Abs(float64(got)-want) > 1e-4 {
				t.Fatalf("seed %d: logprob %v, want %v", seed, got, want)
			}
		}
		check(choice.Logprob, logits[choice.Token])
		if want := min(p.Logprobs, len(all)); len(choice.Top) != want {
			t.Fatalf("seed %d: %d top tokens, want %d", seed, len(choice.Top), want)
		}
		for i, top := range choice.Top {
			if top.Token != all[i].id {
				t.Fatalf("seed %d: top token %d is %d, want %d", seed, i, top.Token, all[i].id)
			}
			check(top.Logprob, all[i].l)
		}
	}
	// A row with NaN must not put a NaN into a client's JSON.
	p := DefaultParams()
	p.Logprobs = 3
	choice, err := New(p, VocabFacts{Size: 3}, new(Scratch)).Sample([]float32{1, inf, -3e38})
	if err != nil || choice.Token != 1 || choice.Logprob != 0 || choice.Top[1].Logprob != minLogprob {
		t.Errorf("%+v, %v", choice, err)
	}
}

// TestPostSampling: the log-probabilities of the draw are those of the distribution that Sample draws from.
func TestPostSampling(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 5))
		n := 1 + r.IntN(300)
		p := randomParams(r, n)
		if seed%2 == 0 {
			p = randomShape(r, p, n)
		}
		p.Logprobs, p.PostSampling, p.Mirostat = 1+r.IntN(MaxLogprobs), true, 0
		p.XTCProbability = 0 // its own draw comes before
		logits := randomLogits(r, n)
		vocab := VocabFacts{Size: n}
		want := New(p, vocab, new(Scratch)).probs(logits)
		choice, err := New(p, vocab, new(Scratch)).Sample(logits)
		if errors.Is(err, ErrNoCandidate) {
			continue
		}
		possible := 0
		for _, w := range want {
			if w > 0 {
				possible++
			}
		}
		close := func(token int32, logprob float32) {
			t.Helper()
			if got := math.Exp(float64(logprob)); math.Abs(got-want[token]) > 1e-6 || want[token] == 0 {
				t.Fatalf("seed %d, token %d: probability %v, want %v", seed, token, got, want[token])
			}
		}
		close(choice.Token, choice.Logprob)
		if len(choice.Top) != min(p.Logprobs, possible) {
			t.Fatalf("seed %d: %d top tokens of %d that can be drawn, logprobs %d", seed, len(choice.Top), possible,
				p.Logprobs)
		}
		for i, top := range choice.Top {
			if close(top.Token, top.Logprob); i > 0 && top.Logprob > choice.Top[i-1].Logprob {
				t.Fatalf("seed %d: %v is not in descending order", seed, choice.Top)
			}
		}
	}
	p := DefaultParams()
	p.Logprobs, p.PostSampling = 5, true
	chain, row := New(p, VocabFacts{Size: 5000}, new(Scratch)), rows(5000)[0]
	chain.Begin()
	if a := testing.AllocsPerRun(200, func() { chain.Sample(row) }); a != 0 {
		t.Errorf("%v allocations a token", a)
	}
}

func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 200_000 {
		x := float32(-r.Float64() * 700)
		if r.IntN(2) == 0 {
			x = float32(-r.Float64())
		}
		want := math.Exp(float64(x))
		if got := exp(x); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float32]float64{0: 1, -701: 0, -inf: 0} {
		if got := exp(x); got != want {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if got := exp(nan); got != 0 {
		t.Errorf("exp(NaN) = %v, want 0", got)
	}
}

// TestWindow: the counts are those of the last n tokens, whatever n.
func TestWindow(t *testing.T) {
	for _, lastN := range []int{-1, 1, 5, 256, 300, 5000} {
		var w window
		w.init(lastN)
		r := rand.New(rand.NewPCG(6, 6))
		var history []int32
		for range 2000 {
			id := int32(r.IntN(50)) - 1
			w.push(id)
			w.check()
			if id >= 0 {
				history = append(history, id)
			}
			from := 0
			if lastN > 0 {
				from = max(0, len(history)-lastN)
			}
			want := map[int32]int32{}
			for _, h := range history[from:] {
				want[h]++
			}
			got := map[int32]int32{}
			for _, c := range w.counts {
				got[c.id] = c.n
			}
			if !maps.Equal(got, want) {
				t.Fatalf("last %d, after %d tokens: %v, want %v", lastN, len(history), got, want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	ok := DefaultParams()
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(p *Params)
		want   string // "" = valid
	}{
		{func(p *Params) { p.Temperature = nan }, "temperature is NaN; it must be a number of -100…100"},
		{func(p *Params) { p.Temperature = inf }, "temperature is +Inf; it must be a number of -100…100"},
		{func(p *Params) { p.Temperature = -1 }, ""},
		{func(p *Params) { p.TopP = 1.5 }, "top_p is 1.5; it must be a number of 0…1"},
		{func(p *Params) { p.TopP = nan }, "top_p is NaN; it must be a number of 0…1"},
		{func(p *Params) { p.TopP = 0 }, ""},
		{func(p *Params) { p.MinP = -0.1 }, "min_p is -0.1; it must be a number of 0…1"},
		{func(p *Params) { p.RepeatPenalty = 0 }, "repeat_penalty is 0; it must be a number of 0.01…10"},
		{func(p *Params) { p.FrequencyPenalty = -11 }, "frequency_penalty is -11; it must be a number of -10…10"},
		{func(p *Params) { p.PresencePenalty = 11 }, "presence_penalty is 11; it must be a number of -10…10"},
		{func(p *Params) { p.TopK = -1 }, ""},
		{func(p *Params) { p.TopK = math.MaxInt64 }, "top_k is 9223372036854775807; it must be -2147483648…2147483647"},
		{func(p *Params) { p.PenaltyLastN = -2 }, "repeat_last_n is -2; it must be -1…134217728"},
		{func(p *Params) { p.Logprobs = 21 }, "logprobs is 21; it must be 0…20"},
		{func(p *Params) { p.LogitBias = []Bias{{-1, 0}} }, "logit_bias names token -1; it must be a token id of 0 " +
			"or more"},
		{func(p *Params) { p.LogitBias = []Bias{{7, nan}} }, "logit_bias of token 7 is NaN; it must be a number of " +
			"-1000…1000, or -Inf to forbid the token"},
		{func(p *Params) { p.LogitBias = []Bias{{7, inf}} }, "logit_bias of token 7 is +Inf; it must be a number of " +
			"-1000…1000, or -Inf to forbid the token"},
		{func(p *Params) { p.LogitBias = []Bias{{7, -inf}} }, ""},
		{func(p *Params) { p.LogitBias = make([]Bias, 1025) }, "logit_bias has 1025 entries; it may have up to 1024"},
	} {
		p := ok
		c.change(&p)
		got := ""
		if err := p.Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// randomShape adds what few requests ask for to params.
func randomShape(r *rand.Rand, p Params, n int) Params {
	some := func(of int, set func()) {
		if r.IntN(of) == 0 {
			set()
		}
	}
	token := func() int32 { return int32(r.IntN(n)) }
	some(3, func() { p.TopNSigma = float32(0.2 + 3*r.Float64()) })
	some(3, func() { p.TypicalP = float32(0.05 + 0.9*r.Float64()) })
	some(3, func() { p.XTCProbability, p.XTCThreshold = 1, float32(0.6*r.Float64()) })
	some(3, func() { p.DynatempRange, p.DynatempExponent = float32(2*r.Float64()), float32(0.2+2*r.Float64()) })
	some(6, func() { p.Mirostat, p.MirostatTau, p.MirostatEta = 1+r.IntN(2), float32(0.5+4*r.Float64()), 0.1 })
	some(3, func() { p.MinTokens = r.IntN(8) })
	for range r.IntN(3) {
		p.StopTokens = append(p.StopTokens, token())
	}
	some(3, func() {
		for range 1 + r.IntN(min(n, 60)) {
			p.AllowedTokens = append(p.AllowedTokens, token())
		}
	})
	for range r.IntN(6) {
		w := []int32{token()}
		for range r.IntN(3) {
			w = append(w, int32(r.IntN(min(n, 4))))
		}
		p.BadWords = append(p.BadWords, w)
	}
	some(2, func() {
		p.DryMultiplier, p.DryBase, p.DryAllowedLength = float32(0.1+2*r.Float64()), float32(1+r.Float64()), r.IntN(4)
		p.DryPenaltyLastN = []int{-1, 0, 1, 5, 40, 1000}[r.IntN(6)]
		some(2, func() {
			p.DrySequenceBreaks = Breakers{int32(r.IntN(min(n, 4))): {nil},
				int32(r.IntN(min(n, 4))): {{int32(r.IntN(min(n, 4)))}, {0, 1}}}
		})
	})
	return p
}

// TestShapesAgainstReference: every stage beyond the usual ones, alone and together, against its definition in float64.
func TestShapesAgainstReference(t *testing.T) {
	var scratch Scratch
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 11))
		n := 1 + r.IntN(800)
		p := randomShape(r, randomParams(r, n), n)
		if err := p.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		vocab := VocabFacts{Size: n, EOG: []int32{int32(r.IntN(n))}}
		c := New(p, vocab, &scratch)
		var history []int32
		accept := func(count int) {
			for range count {
				tok := int32(r.IntN(min(n, 4)))
				history = append(history, tok)
				c.Accept(tok)
			}
		}
		accept(r.IntN(60))
		c.Begin()
		generated := r.IntN(60)
		accept(generated)
		logits := randomLogits(r, n)
		kept := slices.Clone(logits)
		want := reference(p, vocab, history, generated, logits)
		got := c.probs(logits)
		t.Run("", func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d, n %d, history %v, generated %d, %+v", seed, n, history, generated, p)
				}
			}()
			sameDistribution(t, got, want)
			choice, err := c.Sample(logits)
			if (err != nil) != (len(want) == 0) {
				t.Fatalf("%v with %d candidates", err, len(want))
			}
			if err == nil && got[choice.Token] == 0 {
				t.Fatalf("chose token %d, which is no candidate", choice.Token)
			}
		})
		if !slices.Equal(kept, logits) {
			t.Fatalf("seed %d: the row was written to", seed)
		}
	}
}

// TestMirostatFeedback: over many draws the mean surprise comes to the target, from either side.
func TestMirostatFeedback(t *testing.T) {
	logits := make([]float32, 4000)
	for i := range logits {
		logits[i] = float32(-1.1 * math.Log(float64(i+1))) // Zipf
	}
	for _, version := range []int{1, 2} {
		for _, tau := range []float32{2, 5} {
			p := Params{Temperature: 1, TopP: 1, RepeatPenalty: 1, Mirostat: version, MirostatTau: tau,
				MirostatEta: 0.1, Seed: 3}
			c := New(p, VocabFacts{Size: len(logits)}, new(Scratch))
			total := 0.0
			const draws = 3000
			for range draws {
				cands := c.scratch.candidates(c, logits)
				sum := weigh(cands, c.scratch.temperature)
				probs := map[int32]float64{}
				for _, k := range cands {
					probs[k.id] = float64(k.p) / sum
				}
				total -= math.Log2(probs[c.draw(cands, c.scratch.temperature)])
			}
			if mean := total / draws; math.Abs(mean-float64(tau)) > 0.2 {
				t.Errorf("version %d: a mean surprise of %.2f bits, the target is %v", version, mean, tau)
			}
		}
	}
}

// TestXTCProbability: the most probable token is passed over as often as asked.
func TestXTCProbability(t *testing.T) {
	p := Params{Temperature: 0, TopP: 1, RepeatPenalty: 1, XTCProbability: 0.3, XTCThreshold: 0.1, Seed: 4}
	c := New(p, VocabFacts{Size: 3}, new(Scratch))
	second := 0
	const draws = 10_000
	for range draws {
		choice, err := c.Sample([]float32{2, 1.5, -4})
		if err != nil || choice.Token == 2 {
			t.Fatal(choice, err)
		}
		second += int(choice.Token)
	}
	if share := float64(second) / draws; math.Abs(share-0.3) > 0.02 {
		t.Errorf("passed over in %.3f of the draws", share)
	}
}

// TestFits: parameters that name what the vocabulary lacks, or leave no token, are told by the fields' names.
func TestFits(t *testing.T) {
	vocab := VocabFacts{Size: 4, EOG: []int32{3}}
	ban := func(tokens ...int32) (list []Bias) {
		for _, t := range tokens {
			list = append(list, Bias{t, -inf})
		}
		return list
	}
	for _, c := range []struct {
		p    Params
		want string // "" = fits
	}{
		{Params{}, ""},
		{Params{LogitBias: ban(0, 1, 2)}, ""},
		{Params{LogitBias: ban(0, 1, 2, 3)}, "logit_bias forbids every token of the vocabulary; at least one must be " +
			"left"},
		{Params{LogitBias: ban(0, 1, 2), IgnoreEOS: true}, "logit_bias, ignore_eos together forbid every token of " +
			"the vocabulary; at least one must be left"},
		{Params{LogitBias: ban(0, 1, 2), MinTokens: 1}, "logit_bias, min_tokens together forbid every token of the " +
			"vocabulary; at least one must be left"},
		{Params{AllowedTokens: []int32{1, 1}, LogitBias: ban(1)}, "logit_bias, allowed_token_ids together forbid " +
			"every token of the vocabulary; at least one must be left"},
		{Params{AllowedTokens: []int32{1, 2}, BadWords: [][]int32{{1}, {2}}}, "bad_words, allowed_token_ids together " +
			"forbid every token of the vocabulary; at least one must be left"},
		{Params{AllowedTokens: []int32{1, 2}, BadWords: [][]int32{{1}, {2, 2}}}, ""},
		{Params{AllowedTokens: []int32{}}, "allowed_token_ids forbids every token of the vocabulary; at least one " +
			"must be left"},
		{Params{AllowedTokens: []int32{1, 4}}, "allowed_token_ids[1]: token 4 is not in the vocabulary (0…3)"},
		{Params{StopTokens: []int32{-1}}, "stop_token_ids[0]: token -1 is not in the vocabulary (0…3)"},
		{Params{LogitBias: []Bias{{4, 1}}}, "logit_bias: token 4 is not in the vocabulary (0…3)"},
	} {
		got := ""
		if err := c.p.Fits(vocab); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.p, got, c.want)
		}
		if rows := []float32{1, 2, 3, 4}; got == "" {
			if _, err := New(c.p, vocab, new(Scratch)).Sample(rows); err != nil {
				t.Errorf("%+v fits, but %v", c.p, err)
			}
		}
	}
}
