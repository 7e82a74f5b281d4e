package sampler

import "math"

// The less common stages, in llama-server's order. Each stage is a bound or a selection in time linear in the number of
// candidates, because a slow row would delay all other sequences. row.go has shorter ways for top_k, top_p, min_p and
// temperature alone.

// shape runs the whole chain up to the draw.
func (s *Scratch) shape(c *Chain, logits []float32) []candidate {
	p := &c.p
	v := s.survey(logits)
	switch {
	case v.count == 0:
		return nil
	case math.IsInf(float64(v.max), 1):
		return s.selectK(logits, 1)
	case p.Mirostat > 0:
		return s.mirostat(c, logits, v)
	}
	floor := float32(math.Inf(-1))
	if p.TopNSigma > 0 {
		floor = v.max - p.TopNSigma*float32(v.deviation)
	}
	size := v.count // number of candidates, including the negligible ones that were left out
	var cands []candidate
	if p.TopK > 0 {
		all := s.selectK(logits, p.TopK)
		cands = above(all, floor)
		size = len(cands)
	} else {
		bound := negligible(v.max, len(logits), max(1, p.Temperature+p.DynatempRange))
		cands = s.from(logits, max(floor, bound))
		if floor > bound {
			size = len(cands)
		}
	}
	kept := func(after []candidate) {
		if len(after) < len(cands) {
			size = len(after)
		}
		cands = after
	}
	kept(s.typical(c, cands))
	if p.TopP < 1 && len(cands) > 1 {
		n, _ := massPrefix(cands, float64(p.TopP)*weigh(cands, 1), 0)
		kept(cands[:n])
	}
	if p.MinP > 0 {
		kept(above(cands, largest(cands).logit+c.minLog))
	}
	kept(c.xtc(cands))
	s.temperature = p.Temperature
	if p.DynatempRange > 0 {
		s.temperature = c.dynamic(cands, size)
	}
	if s.temperature <= 0 {
		cands[0] = largest(cands)
		return cands[:1]
	}
	return cands
}

// from returns the candidates at or above a logit.
func (s *Scratch) from(logits []float32, floor float32) []candidate {
	s.cands, s.floor = s.cands[:0], floor
	s.each(logits, collect)
	return s.cands
}

// above keeps the candidates at or above a logit, in place.
func above(cands []candidate, floor float32) []candidate {
	n := 0
	for _, k := range cands {
		if k.logit >= floor {
			cands[n] = k
			n++
		}
	}
	return cands[:n]
}

// largest returns the first candidate in their order.
func largest(cands []candidate) candidate {
	best := cands[0]
	for i := range cands {
		if cands[i].before(&best) {
			best = cands[i]
		}
	}
	return best
}

// spread describes the adjusted row: the number of logits above -Inf, the largest, their standard deviation.
type spread struct {
	count      int
	max        float32
	deviation  float64
	sum, sumSq float64 // of the differences to the first of them
	first      float64
}

func (s *Scratch) survey(logits []float32) spread {
	s.spread = spread{max: float32(math.Inf(-1))}
	s.each(logits, survey)
	v := &s.spread
	if n := float64(v.count); n > 0 {
		v.deviation = math.Sqrt(max(0, v.sumSq/n-(v.sum/n)*(v.sum/n)))
	}
	return *v
}

func survey(s *Scratch, part []float32, _ int32) {
	v := &s.spread
	for _, l := range part {
		if !(l > float32(math.Inf(-1))) {
			continue
		}
		if v.count == 0 {
			v.first = float64(l)
		}
		x := float64(l) - v.first
		v.count++
		v.max = max(v.max, l)
		v.sum += x
		v.sumSq += x * x
	}
}

// surprisal returns the mass of candidates relative to the largest one's, whose logit is top, and their entropy in
// nats.
func surprisal(cands []candidate) (total float64, top float32, entropy float64) {
	total, top = weigh(cands, 1), largest(cands).logit
	for i := range cands {
		entropy -= float64(cands[i].p) * float64(cands[i].logit-top)
	}
	return total, top, math.Log(total) + entropy/total
}

// typical keeps the candidates whose surprise is nearest to the entropy, until they have more than typical_p of the
// mass (Meister et al., arXiv 2202.00666).
func (s *Scratch) typical(c *Chain, cands []candidate) []candidate {
	if c.p.TypicalP <= 0 || c.p.TypicalP >= 1 || len(cands) < 2 {
		return cands
	}
	total, top, entropy := surprisal(cands)
	logZ := math.Log(total)
	// They are selected by mass as for top_p, in the order of their distances; id is the index in cands.
	s.near = s.near[:0]
	for i := range cands {
		far := math.Abs(logZ - float64(cands[i].logit-top) - entropy)
		s.near = append(s.near, candidate{id: int32(i), logit: -float32(far), p: cands[i].p})
	}
	n, _ := massPrefix(s.near, float64(c.p.TypicalP)*total, 0)
	for i := range s.near[:n] {
		s.near[i] = cands[s.near[i].id]
	}
	return s.near[:n]
}

// xtc removes, with its probability, all candidates of at least the threshold's probability except the least probable
// of them, so that less obvious tokens are drawn.
func (c *Chain) xtc(cands []candidate) []candidate {
	if c.p.XTCProbability <= 0 || c.p.XTCThreshold > 0.5 || len(cands) < 2 ||
		c.uniform() > float64(c.p.XTCProbability) {
		return cands
	}
	total := weigh(cands, 1)
	var last *candidate
	for i := range cands {
		if k := &cands[i]; float64(k.p)/total >= float64(c.p.XTCThreshold) && (last == nil || last.before(k)) {
			last = k
		}
	}
	if last == nil {
		return cands
	}
	least, n := *last, 0
	for _, k := range cands {
		if !k.before(&least) {
			cands[n] = k
			n++
		}
	}
	return cands[:n]
}

// dynamic returns the temperature for the candidates' entropy, between 0 and that of size equally probable candidates.
func (c *Chain) dynamic(cands []candidate, size int) float32 {
	low, high := max(0, c.p.Temperature-c.p.DynatempRange), c.p.Temperature+c.p.DynatempRange
	if len(cands) < 2 {
		return high
	}
	_, _, entropy := surprisal(cands)
	share := math.Pow(max(0, entropy)/math.Log(float64(size)), float64(c.p.DynatempExponent))
	return low + (high-low)*float32(share)
}

// mirostatTop is the number of most probable tokens from which version 1 estimates Zipf's exponent.
const mirostatTop = 100

// mirostat keeps candidates whose surprise its feedback allows (Basu et al., arXiv 2007.14966): version 2 by that
// bound, version 1 by the top_k that Zipf's law derives from it.
func (s *Scratch) mirostat(c *Chain, logits []float32, v spread) []candidate {
	t := c.p.Temperature
	if t <= 0 {
		return s.selectK(logits, 1)
	}
	if c.p.Mirostat == 2 {
		cands := s.from(logits, negligible(v.max, len(logits), t))
		// -log2(p) ≤ mu, as a bound on the logits; the largest one remains.
		least := math.Log(weigh(cands, t)) - c.mu*math.Ln2
		return above(cands, min(v.max, v.max+t*float32(least)))
	}
	cands := s.selectK(logits, mirostatTop)
	products, squares := 0.0, 0.0
	for i := range len(cands) - 1 {
		rank := math.Log(float64(i+2) / float64(i+1))
		products += rank * float64(cands[i].logit-cands[i+1].logit) / float64(t)
		squares += rank * rank
	}
	exponent := products / squares
	over := exponent - 1
	k := math.Pow(over*math.Pow(2, c.mu)/(1-math.Pow(float64(v.count), -over)), 1/exponent)
	if k < float64(len(cands)) {
		return cands[:max(int(k), 1)]
	}
	// More than those, or no finite answer: equally probable tokens, an exponent of 1, a single candidate.
	cands = s.from(logits, negligible(v.max, len(logits), t))
	if k < float64(len(cands)) {
		split(cands, int(k))
		cands = cands[:int(k)]
	}
	return cands
}

// surprise updates Mirostat's bound from the probability that the drawn token had among the candidates.
func (c *Chain) surprise(p float64) {
	if c.p.Mirostat > 0 {
		c.mu -= float64(c.p.MirostatEta) * (-math.Log2(p) - float64(c.p.MirostatTau))
	}
}
