package sampler

import (
	"math"
	"slices"
)

// The stages that few requests ask for. They see the candidates as a list, most probable first, and every one of them is
// applied in llama-server's order; what top_k, top_p, min_p and the temperature do alone takes the shorter ways of row.go.

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
	size := v.count // candidates that a stage would see if none were left out for being negligible
	var cands []candidate
	if p.TopK > 0 {
		cands = s.selectK(logits, p.TopK)
		size = len(cands)
		for i := range cands {
			if cands[i].logit < floor {
				cands, size = cands[:i], i
				break
			}
		}
	} else {
		bound := negligible(v.max, len(logits), max(1, p.Temperature+p.DynatempRange))
		cands = s.sorted(logits, max(floor, bound))
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
	kept(c.typical(cands))
	kept(c.topP(cands))
	kept(c.minP(cands))
	kept(c.xtc(cands))
	switch {
	case p.DynatempRange > 0:
		s.temperature = c.dynamic(cands, size)
		if s.temperature <= 0 {
			return cands[:1]
		}
	case p.Temperature <= 0:
		return cands[:1]
	}
	return cands
}

// sorted is the candidates from a logit on, most probable first.
func (s *Scratch) sorted(logits []float32, floor float32) []candidate {
	s.cands, s.floor = s.cands[:0], floor
	s.each(logits, collect)
	slices.SortFunc(s.cands, compare)
	return s.cands
}

// spread tells of the adjusted row: how many logits are numbers above -Inf, the largest, their standard deviation.
type spread struct {
	count      int
	max        float32
	deviation  float64
	sum, sumSq float64 // of what exceeds the first of them
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

// typical keeps the candidates whose surprise is nearest to the expected one, the entropy, until they have more than
// typical_p of the mass (Meister et al., arXiv 2202.00666).
func (c *Chain) typical(cands []candidate) []candidate {
	if c.p.TypicalP <= 0 || c.p.TypicalP >= 1 || len(cands) < 2 {
		return cands
	}
	total := weigh(cands, 1)
	top := cands[0].logit
	logZ := math.Log(total)
	surprise := func(k *candidate) float64 { return logZ - float64(k.logit-top) }
	entropy := 0.0
	for i := range cands {
		if cands[i].p > 0 {
			entropy += float64(cands[i].p) / total * surprise(&cands[i])
		}
	}
	slices.SortFunc(cands, func(a, b candidate) int {
		x, y := math.Abs(surprise(&a)-entropy), math.Abs(surprise(&b)-entropy)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return compare(a, b)
	})
	run := 0.0
	for i := range cands {
		if run += float64(cands[i].p) / total; run > float64(c.p.TypicalP) {
			cands = cands[:i+1]
			break
		}
	}
	slices.SortFunc(cands, compare)
	return cands
}

// xtc drops, with its probability, every candidate of at least the threshold's probability but the least probable of
// those: what the model is sure of is passed over where there is a choice.
func (c *Chain) xtc(cands []candidate) []candidate {
	if c.p.XTCProbability <= 0 || c.p.XTCThreshold > 0.5 || len(cands) < 2 || c.uniform() > float64(c.p.XTCProbability) {
		return cands
	}
	total := weigh(cands, 1)
	last := 0
	for i := range cands {
		if float64(cands[i].p)/total < float64(c.p.XTCThreshold) {
			break
		}
		last = i
	}
	return cands[last:]
}

// dynamic is the temperature for candidates whose entropy lies between 0 and that of size equally probable ones.
func (c *Chain) dynamic(cands []candidate, size int) float32 {
	low, high := max(0, c.p.Temperature-c.p.DynatempRange), c.p.Temperature+c.p.DynatempRange
	if len(cands) < 2 {
		return high
	}
	total := weigh(cands, 1)
	entropy := 0.0
	for i := range cands {
		if q := float64(cands[i].p) / total; q > 0 {
			entropy -= q * math.Log(q)
		}
	}
	share := math.Pow(entropy/math.Log(float64(size)), float64(c.p.DynatempExponent))
	return low + (high-low)*float32(share)
}

// mirostatTop is how many of the most probable tokens version 1 estimates Zipf's exponent from.
const mirostatTop = 100

// mirostat keeps candidates whose surprise its feedback allows (Basu et al., arXiv 2007.14966): version 2 by that bound
// itself, version 1 by the top_k that Zipf's law makes of it.
func (s *Scratch) mirostat(c *Chain, logits []float32, v spread) []candidate {
	t := c.p.Temperature
	if t <= 0 {
		return s.selectK(logits, 1)
	}
	if c.p.Mirostat == 2 {
		cands := s.sorted(logits, negligible(v.max, len(logits), t))
		total := weigh(cands, t)
		for i := range cands {
			if -math.Log2(float64(cands[i].p)/total) > c.mu {
				return cands[:max(i, 1)]
			}
		}
		return cands
	}
	cands := s.selectK(logits, mirostatTop)
	products, squares := 0.0, 0.0
	for i := range len(cands) - 1 {
		rank := math.Log(float64(i+2) / float64(i+1))
		products += rank * float64(cands[i].logit-cands[i+1].logit) / float64(t)
		squares += rank * rank
	}
	exponent := products / squares
	above := exponent - 1
	k := math.Pow(above*math.Pow(2, c.mu)/(1-math.Pow(float64(v.count), -above)), 1/exponent)
	if k < float64(len(cands)) {
		return cands[:max(int(k), 1)]
	}
	// More than those, or no finite answer: equally probable tokens, an exponent of 1, a single candidate.
	cands = s.sorted(logits, negligible(v.max, len(logits), t))
	if k < float64(len(cands)) {
		cands = cands[:int(k)]
	}
	return cands
}

// surprise is Mirostat's feedback: the probability that the drawn token had among the candidates.
func (c *Chain) surprise(p float64) {
	if c.p.Mirostat > 0 {
		c.mu -= float64(c.p.MirostatEta) * (-math.Log2(p) - float64(c.p.MirostatTau))
	}
}
