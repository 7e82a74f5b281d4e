package sampler

import (
	"bytes"
	"math"
	"slices"
)

// Stage is a stage of sampling, for a request with an order of stages. Their names are llama-server's.
type Stage uint8

// The stages, in the usual order, to which Infill does not belong.
const (
	Penalties Stage = iota
	DRY
	TopNSigma
	TopK
	TypicalP
	TopP
	MinP
	XTC
	Temperature
	Infill
)

// MaxStages is the maximum number of stages in Params.Order. A stage may come several times.
const MaxStages = 32

// ordered runs the stages of Params.Order up to the draw. The logits of each stage are those that the stage before has
// left, as in llama.cpp: a temperature before top_p, say, changes what top_p keeps.
func (s *Scratch) ordered(c *Chain, logits []float32) []candidate {
	p, order := &c.p, c.p.Order
	// Penalties that come first change single logits of the row, before anything is selected from it.
	penalties := len(order) > 0 && order[0] == Penalties
	if penalties {
		order = order[1:]
	}
	dry := len(order) > 0 && order[0] == DRY
	if dry {
		order = order[1:]
	}
	s.adjustBy(c, logits, penalties, dry)
	s.temperature = 1
	s.max = float32(math.Inf(-1))
	if s.each(logits, findMax); math.IsInf(float64(s.max), 1) {
		return s.selectK(logits, 1)
	}
	var cands []candidate
	if len(order) > 0 && order[0] == TopK && p.TopK > 0 {
		cands, order = s.selectK(logits, p.TopK), order[1:]
	} else {
		cands = s.from(logits, -math.MaxFloat32)
	}
	for _, stage := range order {
		if len(cands) == 0 {
			return nil
		}
		cands = s.stage(c, stage, cands)
	}
	return cands
}

// stage applies one stage to candidates, in place.
func (s *Scratch) stage(c *Chain, stage Stage, cands []candidate) []candidate {
	p := &c.p
	switch stage {
	case Penalties:
		for i := range cands {
			k := &cands[i]
			if at, ok := slices.BinarySearchFunc(c.window.counts, k.id, byToken); ok {
				k.logit = p.penalise(k.logit, c.window.counts[at].n)
			}
		}
	case DRY:
		s.extra = s.extra[:0]
		if c.dry.on {
			s.repetitions(c, c.vocab.Size)
			s.sortExtra()
		}
		for i := range cands {
			if at, ok := slices.BinarySearchFunc(s.extra, cands[i].id, candidateByToken); ok {
				cands[i].logit += s.extra[at].logit
			}
		}
	case TopNSigma:
		if p.TopNSigma > 0 && len(cands) > 1 {
			cands = above(cands, largest(cands).logit-p.TopNSigma*float32(deviation(cands)))
		}
	case TopK:
		if p.TopK > 0 && p.TopK < len(cands) {
			split(cands, p.TopK)
			cands = cands[:p.TopK]
		}
	case TypicalP:
		cands = cands[:copy(cands, s.typical(c, cands))]
	case TopP:
		if p.TopP < 1 && len(cands) > 1 {
			n, _ := massPrefix(cands, float64(p.TopP)*weigh(cands, 1), 0)
			cands = cands[:n]
		}
	case MinP:
		if p.MinP > 0 {
			cands = above(cands, largest(cands).logit+c.minLog)
		}
	case XTC:
		cands = c.xtc(cands)
	case Temperature:
		t := p.Temperature
		if p.DynatempRange > 0 {
			t = c.dynamic(cands, len(cands))
		}
		if t <= 0 {
			cands[0] = largest(cands)
			return cands[:1]
		}
		for i := range cands {
			cands[i].logit /= t
		}
	case Infill:
		cands = c.infill(cands)
	}
	return cands
}

func byToken(n tokenCount, id int32) int         { return int(n.id) - int(id) }
func candidateByToken(k candidate, id int32) int { return int(k.id) - int(id) }

// deviation returns the standard deviation of the candidates' logits.
func deviation(cands []candidate) float64 {
	mean, variance := 0.0, 0.0
	for i := range cands {
		mean += float64(cands[i].logit)
	}
	mean /= float64(len(cands))
	for i := range cands {
		d := float64(cands[i].logit) - mean
		variance += d * d
	}
	return math.Sqrt(variance / float64(len(cands)))
}

const (
	// maxInfill is the number of candidates, the most probable ones, that infill compares with each other. llama.cpp
	// compares all of them; its clients send top_k before.
	maxInfill = 256
	// infillLeast is the least probability of a token that infill keeps.
	infillLeast = 0.2
)

// infill keeps few tokens, of which the model is sure, or ends the answer, as the sampler of that name in llama.cpp
// does for filling in code: the ends of generation alone if they are probable in relation to the number of
// candidates; else tokens of which one begins with the other count as one, the more probable, and those that are
// improbable after that are dropped. What it keeps is drawn by its logits.
func (c *Chain) infill(cands []candidate) []candidate {
	end, text := 0.0, 0.0
	total := weigh(cands, 1)
	for i := range cands {
		k := &cands[i]
		k.p = float32(float64(k.p) / total)
		if c.ends(k.id) {
			end += float64(k.p)
		} else {
			text += float64(k.p)
		}
	}
	if 3*end*float64(len(cands)) > text {
		return slices.DeleteFunc(cands, func(k candidate) bool { return !c.ends(k.id) })
	}
	if len(cands) > maxInfill {
		split(cands, maxInfill)
		cands = cands[:maxInfill]
	}
	slices.SortFunc(cands, compare)
	best := cands[0]
	c.combine(cands)
	left, kept := 0, 0.0
	cands = slices.DeleteFunc(cands, func(k candidate) bool {
		if c.ends(k.id) {
			kept += float64(k.p)
			return false
		}
		if k.p < infillLeast {
			return true
		}
		kept += float64(k.p)
		left++
		return false
	})
	if left == 0 {
		return append(cands[:0], c.end(best))
	}
	return slices.DeleteFunc(cands, func(k candidate) bool {
		return !c.ends(k.id) && float64(k.p)/kept < 1/float64(left+1)
	})
}

// combine gives the probability of tokens of which one begins with the other to the more probable of them; the other's
// becomes 0.
func (c *Chain) combine(cands []candidate) {
	for i := range cands {
		a := &cands[i]
		piece := c.vocab.Piece(a.id)
		if len(piece) == 0 || a.p == 0 {
			continue
		}
		for j := range cands {
			b := &cands[j]
			if i == j || b.p == 0 || !bytes.HasPrefix(c.vocab.Piece(b.id), piece) {
				continue
			}
			if b.p > a.p {
				b.p, a.p = b.p+a.p, 0
			} else {
				a.p, b.p = a.p+b.p, 0
			}
			if a.p == 0 {
				break
			}
		}
	}
}

// end returns a token that ends the answer, or other if none may. llama.cpp takes the vocabulary's end of turn; any
// ends it.
func (c *Chain) end(other candidate) candidate {
	for _, id := range c.vocab.EOG {
		_, biased := slices.BinarySearchFunc(c.bias, id, candidateByToken)
		_, allowed := slices.BinarySearch(c.allowed, id)
		if !biased && (c.allowed == nil || allowed) && (c.mask == nil || c.mask.Has(id)) {
			return candidate{id: id}
		}
	}
	return other
}

// ends reports whether a token ends a generation.
func (c *Chain) ends(id int32) bool { return slices.Contains(c.vocab.EOG, id) }
