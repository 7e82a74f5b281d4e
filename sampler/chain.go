package sampler

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// ErrNoCandidate: every logit of the row is NaN or -Inf, so that no token can be chosen: the model's output is broken,
// or logit_bias and ignore_eos forbid every token.
var ErrNoCandidate = errors.New("no token has a finite logit")

// VocabFacts are the properties of the model's vocabulary that a chain needs.
type VocabFacts struct {
	Size int     // logits per row
	EOG  []int32 // the tokens that end a generation, which IgnoreEOS forbids
	// Piece is a token's text, "" for a control token; only Infill asks for it.
	Piece func(token int32) []byte
}

// TokenLogprob is a token and the natural logarithm of its probability.
type TokenLogprob struct {
	Token   int32
	Logprob float32
}

// Choice is a sampled token. Logprob and Top are set only if Params.Logprobs requests them. They are the log-softmax of
// the raw logits, before any bias, penalty or truncation: the model's own distribution. With Params.PostSampling they
// are those of the distribution that the token was drawn from, after all stages, and tokens that could not be drawn are
// left out. Top is in descending order and valid until the next Sample on the same Scratch.
type Choice struct {
	Token   int32
	Logprob float32
	Top     []TokenLogprob
}

// Chain is the sampler of one session. It is not safe for concurrent use. Different chains may share a Scratch if only
// one goroutine at a time samples.
//
// The stages and their order are llama-server's:
//
//	mask → logit bias, ignore_eos → penalties → DRY, bad words → top_n_sigma → top_k → typical_p → top_p → min_p →
//	XTC → temperature (or dynamic temperature) → draw
//
// Mirostat replaces the stages from top_n_sigma on, except the temperature. AllowedTokens and MinTokens apply from the
// first stage on.
//
// Params.Order has another order, or further stages (order.go).
//
// top_p uses the softmax of the candidates that top_k left, at temperature 1; min_p compares logits. Among equal
// logits, whose order llama.cpp's sort leaves undefined, the lower token id wins.
type Chain struct {
	p       Params
	vocab   VocabFacts
	scratch *Scratch
	rng     rand.PCG
	// sorted by id, one entry each; includes ignore_eos and, for the early tokens, what MinTokens forbids
	bias    []candidate
	later   []candidate // bias from MinTokens on
	early   int         // tokens to sample before later applies
	begun   bool        // the prompt has ended
	allowed []int32     // sorted; nil: all
	window  window
	words   words
	dry     dry
	shaped  bool    // stages other than top_k, top_p, min_p and temperature are on: see Scratch.shape
	mu      float64 // Mirostat's bound on the surprise, in bits
	mask    Mask    // see Restrict
	argmax  bool
	minLog  float32 // ln(MinP), -Inf when off
}

// New makes a chain from validated parameters. It does not use scratch, so any goroutine may call it. Biases of tokens
// outside the vocabulary have no effect.
func New(p Params, vocab VocabFacts, scratch *Scratch) *Chain {
	c := &Chain{p: p, vocab: vocab, scratch: scratch, minLog: float32(math.Log(float64(p.MinP)))}
	c.p.LogitBias = nil
	c.rng.Seed(p.Seed, 0x9e3779b97f4a7c15)
	for _, b := range p.LogitBias {
		if b.Token >= 0 && int(b.Token) < vocab.Size {
			c.bias = append(c.bias, candidate{id: b.Token, logit: b.Bias})
		}
	}
	if p.IgnoreEOS {
		c.bias = forbid(c.bias, vocab.EOG...)
	}
	for _, w := range p.BadWords {
		if len(w) == 1 {
			c.bias = forbid(c.bias, w[0])
		}
	}
	if p.MinTokens > 0 {
		c.early, c.later = p.MinTokens, merge(slices.Clone(c.bias))
		c.bias = forbid(forbid(c.bias, vocab.EOG...), p.StopTokens...)
	}
	c.bias = merge(c.bias)
	if p.AllowedTokens != nil {
		c.allowed = slices.Clone(p.AllowedTokens)
		slices.Sort(c.allowed)
		c.allowed = slices.Compact(c.allowed)
	}
	if p.PenaltyLastN != 0 && (p.RepeatPenalty != 1 || p.FrequencyPenalty != 0 || p.PresencePenalty != 0) {
		c.window.init(p.PenaltyLastN)
	}
	c.words.init(p.BadWords)
	c.dry.init(&c.p)
	c.mu = 2 * float64(p.MirostatTau)
	typical := p.TypicalP > 0 && p.TypicalP < 1
	xtc := p.XTCProbability > 0 && p.XTCThreshold <= 0.5
	dynamic := p.DynatempRange > 0
	c.shaped = p.Mirostat > 0 || p.Order != nil || p.TopK != 1 && (typical || xtc || dynamic || p.TopNSigma > 0 &&
		p.Temperature > 0)
	c.argmax = c.greedy() && !c.window.on && !c.dry.on && c.allowed == nil && c.words.longest == 0 && p.Logprobs == 0
	for _, list := range [][]candidate{c.bias, c.later} {
		for _, b := range list {
			c.argmax = c.argmax && b.logit <= 0
		}
	}
	return c
}

func forbid(bias []candidate, tokens ...int32) []candidate {
	for _, t := range tokens {
		bias = append(bias, candidate{id: t, logit: float32(math.Inf(-1))})
	}
	return bias
}

// merge sorts biases by token and adds up those of the same token, as llama.cpp does.
func merge(bias []candidate) []candidate {
	slices.SortStableFunc(bias, func(a, b candidate) int { return int(a.id) - int(b.id) })
	n := 0
	for _, b := range bias {
		if n > 0 && bias[n-1].id == b.id {
			bias[n-1].logit += b.logit
			continue
		}
		bias[n] = b
		n++
	}
	return bias[:n]
}

// greedy reports whether Sample returns the largest logit: no stage can remove it, and there is no draw.
func (c *Chain) greedy() bool { return !c.shaped && (c.p.Temperature <= 0 || c.p.TopK == 1) }

// IsArgmax reports whether Sample returns the row's largest logit (lowest id among equals) whenever Takes accepts that
// token. A caller with a faster way to find it (runtime.RowScanner) may then use that. The result never changes.
func (c *Chain) IsArgmax() bool { return c.argmax }

// Takes reports whether the row's largest raw logit is still the largest after the biases. With IsArgmax no bias is
// above 0, so it is, unless the token itself has a bias (an end of generation under ignore_eos) or is not in the mask.
func (c *Chain) Takes(token int32) bool {
	if c.mask != nil && !c.mask.Has(token) {
		return false
	}
	for i := range c.bias {
		if c.bias[i].id == token {
			return false
		}
	}
	return true
}

// Accept adds a token of the sequence to the penalties' windows, in order: first those of the prompt, as in
// llama-server, then each sampled one.
func (c *Chain) Accept(token int32) {
	if c.window.on {
		c.window.push(token)
	}
	if c.dry.on {
		c.dry.push(token)
	}
	if !c.begun {
		return
	}
	c.words.push(token)
	if c.early > 0 {
		if c.early--; c.early == 0 {
			c.bias = c.later
		}
	}
}

// Begin marks the end of the prompt: later tokens are the answer, to which MinTokens and BadWords apply.
func (c *Chain) Begin() { c.begun = true }

// Sample chooses a token from a row of raw logits, which it does not change. It fails with ErrNoCandidate.
func (c *Chain) Sample(logits []float32) (Choice, error) {
	if c.argmax {
		var id int32
		if c.scratch.known != nil {
			id = c.scratch.known.Argmax
		} else {
			id, _ = Argmax(logits)
		}
		if id < 0 {
			return Choice{Token: -1}, ErrNoCandidate
		}
		if c.Takes(id) {
			return Choice{Token: id}, nil
		}
	}
	s := c.scratch
	cands := s.candidates(c, logits)
	id := c.draw(cands, s.temperature)
	if id < 0 {
		return Choice{Token: -1}, ErrNoCandidate
	}
	choice := Choice{Token: id}
	switch {
	case c.p.Logprobs > 0 && c.p.PostSampling:
		choice.Logprob, choice.Top = s.drawn(cands, id, c.p.Logprobs)
	case c.p.Logprobs > 0:
		choice.Logprob, choice.Top = s.logprobs(logits, id, c.p.Logprobs)
	}
	return choice, nil
}

// SampleProbed is Sample for a row whose statistics are known, so that it reads less of the row: nothing if the largest
// logit is the answer (greedy; penalties and biases are allowed unless they change that token), one pass less for
// min_p, top_p and temperature alone, and no summing pass for top_p without top_k. Token and log-probabilities are the
// same to the bit. known must be of this row. A row with NaN or +Inf entries is read as by Sample.
func (c *Chain) SampleProbed(logits []float32, known *runtime.RowStats) (Choice, error) {
	if known.NonFinite == 0 {
		c.scratch.known = known
		defer func() { c.scratch.known = nil }()
	}
	return c.Sample(logits)
}

// draw draws one of the candidates from the softmax of their logits over the temperature; -1 when there are none.
func (c *Chain) draw(cands []candidate, temperature float32) int32 {
	switch {
	case len(cands) == 0:
		return -1
	case len(cands) == 1:
		c.surprise(1)
		return cands[0].id
	}
	total := weigh(cands, temperature)
	target := c.uniform() * total
	last := -1
	run := 0.0
	for i := range cands {
		w := float64(cands[i].p)
		if w == 0 {
			continue
		}
		last = i
		if run += w; run > target {
			break
		}
	} // the sums differ only by rounding: take the last one
	c.surprise(float64(cands[last].p) / total)
	return cands[last].id
}

// uniform returns a random number in [0, 1).
func (c *Chain) uniform() float64 { return float64(c.rng.Uint64()>>11) / (1 << 53) }

// weigh sets each candidate's p to its weight relative to the largest logit and returns the sum of the weights.
func weigh(cands []candidate, temperature float32) (total float64) {
	top := float32(math.Inf(-1))
	for i := range cands {
		top = max(top, cands[i].logit)
	}
	top /= temperature
	for i := range cands {
		l := cands[i].logit / temperature
		w := exp(l - top)
		if l == top { // even when both are infinite
			w = 1
		}
		cands[i].p = float32(w)
		total += float64(cands[i].p)
	}
	return total
}
