package sampler

import (
	"math"
	"slices"
)

// Stages that depend on the order of earlier tokens: bad words and DRY.

// words are the bad words of two tokens or more.
type words struct {
	list    [][]int32
	longest int     // tokens of the longest; 0: no bad words
	recent  []int32 // the last tokens sampled, longest-1 of them at most
}

func (w *words) init(list [][]int32) {
	for _, seq := range list {
		if len(seq) > 1 {
			w.list = append(w.list, seq)
			w.longest = max(w.longest, len(seq))
		}
	}
	if w.longest > 0 {
		w.recent = make([]int32, 0, w.longest-1)
	}
}

func (w *words) push(token int32) {
	if w.longest == 0 {
		return
	}
	if len(w.recent) == w.longest-1 {
		copy(w.recent, w.recent[1:])
		w.recent = w.recent[:len(w.recent)-1]
	}
	w.recent = append(w.recent, token)
}

// dry is a session's DRY state: the tokens in which to look for repetitions.
type dry struct {
	on      bool
	limit   int     // tokens; -1: all
	history []int32 // the last tokens, at least limit of them
	breaks  Breakers
	maxExp  int // keeps the penalty finite
}

func (d *dry) init(p *Params) {
	if p.DryMultiplier <= 0 || p.DryPenaltyLastN == 0 {
		return
	}
	if p.DryBase < 1 {
		p.DryBase = DefaultDryBase
	}
	d.on, d.limit, d.breaks = true, p.DryPenaltyLastN, p.DrySequenceBreaks
	d.maxExp = math.MaxInt32
	if p.DryBase > 1.000001 {
		d.maxExp = int(math.Log(math.MaxFloat32) / math.Log(float64(p.DryBase)))
	}
	room := windowRoom
	if d.limit > 0 {
		room = min(2*d.limit, windowRoom)
	}
	d.history = make([]int32, 0, room)
}

func (d *dry) push(token int32) {
	if d.limit > 0 && len(d.history) >= 2*d.limit { // moved once per limit tokens
		n := copy(d.history, d.history[len(d.history)-d.limit+1:])
		d.history = d.history[:n]
	}
	d.history = append(d.history, token)
}

// last returns the tokens of the window.
func (d *dry) last() []int32 {
	if d.limit > 0 && len(d.history) > d.limit {
		return d.history[len(d.history)-d.limit:]
	}
	return d.history
}

// sinceBreak returns the number of tokens after the last breaker, the bound on a repetition's length.
func (d *dry) sinceBreak(last []int32) int {
	if len(d.breaks) == 0 {
		return len(last)
	}
	for i := len(last) - 1; i >= 0; i-- {
		longest := -1
		for _, tail := range d.breaks[last[i]] {
			if len(tail) > longest && slices.Equal(tail, last[i+1:min(len(last), i+1+len(tail))]) {
				longest = len(tail)
			}
		}
		if longest >= 0 {
			return len(last) - 1 - i - longest
		}
	}
	return len(last)
}

// isBreak reports whether a token is a breaker by itself; such a token is never penalised.
func (d *dry) isBreak(token int32) bool {
	for _, tail := range d.breaks[token] {
		if len(tail) == 0 {
			return true
		}
	}
	return false
}

// dryScratch is DRY's memory for one call.
type dryScratch struct {
	match   []int32 // by distance back: the length of the history's suffix that occurs there too
	longest []int32 // by token: the longest sequence that it would continue, plus 1; all 0 between calls
	found   []int32 // tokens with an entry in longest
}

// penaliseSequences sets extra, by token: -Inf for tokens that would complete a bad word, and DRY's penalties if it is
// asked for them.
func (s *Scratch) penaliseSequences(c *Chain, vocab int, dry bool) {
	if c.dry.on && dry {
		s.repetitions(c, vocab)
	}
	for _, w := range c.words.list {
		n := len(w) - 1
		if r := c.words.recent; len(r) >= n && slices.Equal(w[:n], r[len(r)-n:]) {
			s.extra = append(s.extra, candidate{id: w[n], logit: float32(math.Inf(-1))})
		}
	}
	s.sortExtra()
}

// sortExtra sorts extra by token, one entry each.
func (s *Scratch) sortExtra() {
	slices.SortFunc(s.extra, func(a, b candidate) int { return int(a.id) - int(b.id) })
	n := 0
	for _, e := range s.extra {
		if n > 0 && s.extra[n-1].id == e.id {
			s.extra[n-1].logit += e.logit
			continue
		}
		s.extra[n] = e
		n++
	}
	s.extra = s.extra[:n]
}

// repetitions adds DRY's penalties: for each place where a suffix of the history occurred before, the token that
// followed is penalised by the suffix's length. The lengths come from the Z-function of the reversed history, in linear
// time.
func (s *Scratch) repetitions(c *Chain, vocab int) {
	last := c.dry.last()
	n, allowed := len(last), c.p.DryAllowedLength
	if n <= allowed {
		return
	}
	limit := c.dry.sinceBreak(last)
	if limit < allowed {
		return
	}
	d := &s.dry
	d.match = slices.Grow(d.match[:0], n)[:n]
	if len(d.longest) < vocab {
		d.longest = make([]int32, vocab)
	}
	back := func(i int) int32 { return last[n-1-i] }
	left, right := 0, 0 // the match [left, right) that reaches furthest back
	for k := 1; k < n; k++ {
		z := 0
		if k < right {
			z = min(right-k, int(d.match[k-left]))
		}
		for k+z < n && back(z) == back(k+z) {
			z++
		}
		if d.match[k] = int32(z); k+z > right {
			left, right = k, k+z
		}
		length := min(z, limit)
		if length < allowed {
			continue
		}
		t := back(k - 1)
		if t < 0 || int(t) >= vocab {
			continue
		}
		if d.longest[t] == 0 {
			d.found = append(d.found, t)
		}
		d.longest[t] = max(d.longest[t], int32(length)+1)
	}
	for _, t := range d.found {
		length := int(d.longest[t]) - 1
		d.longest[t] = 0
		if c.dry.isBreak(t) {
			continue
		}
		penalty := float64(c.p.DryMultiplier) * math.Pow(float64(c.p.DryBase),
			float64(min(length-allowed, c.dry.maxExp)))
		s.extra = append(s.extra, candidate{id: t, logit: -float32(min(penalty, math.MaxFloat32))})
	}
	d.found = d.found[:0]
}
