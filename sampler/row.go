package sampler

import (
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// candidate is a token that may be chosen. p is scratch space of the current stage.
type candidate struct {
	id    int32
	logit float32
	p     float32
}

// before orders candidates: larger logits first, lower ids among equals.
func (a *candidate) before(b *candidate) bool {
	return a.logit > b.logit || a.logit == b.logit && a.id < b.id
}

func compare(a, b candidate) int {
	switch {
	case a.before(&b):
		return -1
	case b.before(&a):
		return 1
	}
	return 0
}

// Scratch is the memory of one sampling call, shared by all chains of a goroutine. It grows to the largest call's
// needs. The zero value is ready to use.
type Scratch struct {
	overlay []candidate
	cands   []candidate
	top     []TokenLogprob
	one     [1]float32
	known   *runtime.RowStats // of the current row, nil when it was not probed
	only    bool              // only tokens of the overlay may be chosen
	mask    Mask              // of the current row, nil: all tokens
	near    []candidate       // for typical
	extra   []candidate       // changes of logits by DRY and bad words, by token
	dry     dryScratch
	spread  spread // of the current row, see survey

	temperature float32 // temperature of the draw

	// State of a scan over a row, see each.
	max   float32 // largest logit so far
	floor float32 // only larger (take) or equal (sumMass, collect) logits become candidates
	k     int     // number of candidates that take keeps
	sum   float64 // Σ e^(logit-max)
}

// Argmax returns the largest logit of a row and its token, the lowest id among equals. NaN and -Inf are never chosen: a
// row of nothing else gives token -1.
func Argmax(logits []float32) (token int32, logit float32) {
	token, logit = -1, float32(math.Inf(-1))
	i := 0
	// Compare eight logits at a time with a value that is soon close to the largest: rarely true, so well predicted.
	for ; i+8 <= len(logits); i += 8 {
		b := logits[i : i+8 : i+8]
		if b[0] > logit || b[1] > logit || b[2] > logit || b[3] > logit ||
			b[4] > logit || b[5] > logit || b[6] > logit || b[7] > logit {
			for j, v := range b {
				if v > logit {
					token, logit = int32(i+j), v
				}
			}
		}
	}
	for ; i < len(logits); i++ {
		if logits[i] > logit {
			token, logit = int32(i), logits[i]
		}
	}
	return token, logit
}

// adjust fills the overlay: the tokens whose logits biases, penalties, DRY and bad words change, by id, with the
// changed logits; with AllowedTokens exactly those tokens. The row remains unchanged; scans of the row skip the
// overlay's tokens.
func (s *Scratch) adjust(c *Chain, logits []float32) { s.adjustBy(c, logits, true, true) }

// adjustBy is adjust with or without the penalties, and with or without DRY: an order of stages may have them later.
func (s *Scratch) adjustBy(c *Chain, logits []float32, penalties, sequences bool) {
	s.overlay, s.only, s.mask = s.overlay[:0], c.allowed != nil, c.mask
	s.extra = s.extra[:0]
	if c.dry.on && sequences || c.words.longest > 0 {
		s.penaliseSequences(c, len(logits), sequences)
	}
	bias, counts, extra, allowed := c.bias, c.window.counts, s.extra, c.allowed
	if !penalties {
		counts = nil
	}
	for len(bias) > 0 || len(counts) > 0 || len(extra) > 0 || len(allowed) > 0 {
		id := int32(math.MaxInt32)
		if len(bias) > 0 {
			id = bias[0].id
		}
		if len(counts) > 0 {
			id = min(id, counts[0].id)
		}
		if len(extra) > 0 {
			id = min(id, extra[0].id)
		}
		if len(allowed) > 0 {
			id = min(id, allowed[0])
		}
		if int(id) >= len(logits) {
			return
		}
		logit := logits[id]
		if len(bias) > 0 && bias[0].id == id {
			logit += bias[0].logit
			bias = bias[1:]
		}
		if len(counts) > 0 && counts[0].id == id {
			logit = c.p.penalise(logit, counts[0].n)
			counts = counts[1:]
		}
		if len(extra) > 0 && extra[0].id == id {
			logit += extra[0].logit
			extra = extra[1:]
		}
		if s.only {
			if len(allowed) == 0 {
				return
			} else if allowed[0] != id {
				continue
			}
			allowed = allowed[1:]
		}
		if s.mask == nil || s.mask.Has(id) {
			s.overlay = append(s.overlay, candidate{id: id, logit: logit})
		}
	}
}

// each passes the adjusted row to scan, in the order of the tokens: the parts of the row between the overlay's tokens,
// and the overlay's tokens one by one. base is the token of part[0].
func (s *Scratch) each(logits []float32, scan func(s *Scratch, part []float32, base int32)) {
	from := int32(0)
	for i := range s.overlay {
		o := &s.overlay[i]
		if o.id > from && !s.only {
			s.part(logits, from, o.id, scan)
		}
		s.one[0] = o.logit
		scan(s, s.one[:], o.id)
		from = o.id + 1
	}
	if !s.only {
		s.part(logits, from, int32(len(logits)), scan)
	}
}

// part passes logits[from:to] to scan, or what the mask leaves of it.
func (s *Scratch) part(logits []float32, from, to int32, scan func(s *Scratch, part []float32, base int32)) {
	if s.mask == nil {
		scan(s, logits[from:to], from)
		return
	}
	s.runs(logits, from, to, scan)
}

// best returns the first candidate of the adjusted row, id -1 when there is none. It uses the statistics of the raw
// row, unless their largest logit is one of the overlay's tokens.
func (s *Scratch) best() (b candidate, ok bool) {
	if s.known == nil || s.only {
		return b, false
	}
	b = candidate{id: s.known.Argmax, logit: s.known.Max}
	first := b.id
	if s.mask != nil && !s.mask.Has(first) {
		return b, false
	}
	for i := range s.overlay {
		o := &s.overlay[i]
		if o.id == first {
			return b, false
		}
		if o.before(&b) {
			b = *o
		}
	}
	return b, true
}

// candidates runs the chain up to the draw and returns the tokens that may be chosen, in an order that depends only on
// the row. For a greedy chain it is one token. Valid until the next call.
func (s *Scratch) candidates(c *Chain, logits []float32) []candidate {
	if c.p.Order == nil || c.p.Mirostat > 0 {
		s.adjust(c, logits)
	}
	s.temperature = c.p.Temperature
	switch {
	case c.p.Order != nil && c.p.Mirostat == 0:
		return s.ordered(c, logits)
	case c.shaped:
		return s.shape(c, logits)
	case c.greedy():
		if b, ok := s.best(); ok {
			if s.cands = s.cands[:0]; b.id >= 0 {
				s.cands = append(s.cands, b)
			}
			return s.cands
		}
		return s.selectK(logits, 1)
	case c.p.TopK > 0:
		return c.minP(c.topP(s.selectK(logits, c.p.TopK)))
	}
	return s.selectMass(c, logits)
}

// topP keeps the shortest prefix of sorted candidates whose probabilities reach top_p, and at least one.
func (c *Chain) topP(cands []candidate) []candidate {
	if c.p.TopP >= 1 || len(cands) == 0 {
		return cands
	}
	total := float32(0)
	for i := range cands {
		cands[i].p = float32(exp(cands[i].logit - cands[0].logit))
		total += cands[i].p
	}
	run := float32(0)
	for i := range cands {
		if run += cands[i].p / total; run >= c.p.TopP {
			return cands[:i+1]
		}
	}
	return cands
}

// minP keeps the sorted candidates that are at least min_p times as probable as the first.
func (c *Chain) minP(cands []candidate) []candidate {
	if c.p.MinP <= 0 || len(cands) == 0 {
		return cands
	}
	floor := cands[0].logit + c.minLog
	for i := 1; i < len(cands); i++ {
		if cands[i].logit < floor {
			return cands[:i]
		}
	}
	return cands
}

// minLogprob is the lowest log-probability reported, so that it is always finite; OpenAI's value.
const minLogprob = -9999

// Logprobs returns the log-softmax of a raw row for token, and the row's n most probable tokens, which are valid until
// the next use of s. No parameter of a chain applies.
func (s *Scratch) Logprobs(logits []float32, token int32, n int) (float32, []TokenLogprob) {
	s.known = nil
	return s.logprobs(logits, token, n)
}

// drawn returns the log-probability of token among the candidates that draw has weighed, and the n most probable of
// them.
func (s *Scratch) drawn(cands []candidate, token int32, n int) (logprob float32, top []TokenLogprob) {
	s.top = s.top[:0]
	if len(cands) == 1 {
		s.top = append(s.top, TokenLogprob{Token: token})
		return 0, s.top
	}
	total := 0.0
	for _, k := range cands {
		if total += float64(k.p); k.p == 0 {
			continue
		}
		if k.id == token {
			logprob = k.p // a weight for now, as in top
		}
		at := len(s.top)
		for at > 0 && (s.top[at-1].Logprob < k.p || s.top[at-1].Logprob == k.p && s.top[at-1].Token > k.id) {
			at--
		}
		if at == n {
			continue
		}
		if len(s.top) < n {
			s.top = append(s.top, TokenLogprob{})
		}
		copy(s.top[at+1:], s.top[at:])
		s.top[at] = TokenLogprob{k.id, k.p}
	}
	of := func(weight float32) float32 { return float32(math.Log(float64(weight) / total)) }
	for i := range s.top {
		s.top[i].Logprob = of(s.top[i].Logprob)
	}
	return of(logprob), s.top
}

// logprobs returns the log-softmax of the raw row for token, and the row's n most probable tokens.
func (s *Scratch) logprobs(logits []float32, token int32, n int) (float32, []TokenLogprob) {
	var top float32
	if s.known != nil {
		top = s.known.Max
	} else {
		_, top = Argmax(logits)
	}
	sum := 0.0
	for _, v := range logits {
		sum += exp(v - top)
	}
	lse := float64(top) + math.Log(sum)
	if math.IsInf(float64(top), 1) { // a broken row: the token with +Inf has all the mass
		lse = math.MaxFloat64
	}
	of := func(logit float32) float32 {
		if logit == top && lse == math.MaxFloat64 {
			return 0
		}
		return float32(max(float64(logit)-lse, minLogprob))
	}
	s.overlay, s.only, s.mask = s.overlay[:0], false, nil
	s.top = s.top[:0]
	for _, c := range s.selectK(logits, n) {
		s.top = append(s.top, TokenLogprob{c.id, of(c.logit)})
	}
	return of(logits[token]), s.top
}
