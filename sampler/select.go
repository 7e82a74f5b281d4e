package sampler

import (
	"math"
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// selectK returns the first k candidates, sorted. One pass over the row collects logits above the k-th largest known so
// far; at 2k candidates half of them are dropped and the bound rises. With k = 40, a row of 150,000 collects a few
// hundred.
func (s *Scratch) selectK(logits []float32, k int) []candidate {
	s.k = min(k, len(logits))
	s.cands, s.floor = s.cands[:0], float32(math.Inf(-1))
	s.each(logits, take)
	cands := s.cands
	if len(cands) > s.k {
		split(cands, s.k)
		cands = cands[:s.k]
	}
	slices.SortFunc(cands, compare)
	return cands
}

func take(s *Scratch, part []float32, base int32) {
	floor := s.floor
	i := 0
	for ; i+8 <= len(part); i += 8 {
		b := part[i : i+8 : i+8]
		if b[0] > floor || b[1] > floor || b[2] > floor || b[3] > floor ||
			b[4] > floor || b[5] > floor || b[6] > floor || b[7] > floor {
			for j, v := range b {
				if v > floor {
					floor = s.keep(v, base+int32(i+j))
				}
			}
		}
	}
	for ; i < len(part); i++ {
		if part[i] > floor {
			floor = s.keep(part[i], base+int32(i))
		}
	}
}

// keep adds a candidate and returns the bound for the next ones. Ids rise during a scan, so a later logit equal to the
// bound loses to the earlier ones.
func (s *Scratch) keep(logit float32, id int32) float32 {
	s.cands = append(s.cands, candidate{id: id, logit: logit})
	if len(s.cands) >= 2*s.k+32 {
		split(s.cands, s.k)
		s.cands = s.cands[:s.k]
		s.floor = s.cands[s.k-1].logit
	}
	return s.floor
}

// split moves the first k candidates to the front, in any order but with the last of them at k-1 (Hoare's selection). 0
// < k ≤ len(cands).
func split(cands []candidate, k int) {
	lo, hi := 0, len(cands)
	for hi-lo > 1 {
		m := partition(cands, lo, hi)
		switch {
		case k-1 < m:
			hi = m
		case k-1 > m:
			lo = m + 1
		default:
			return
		}
	}
}

// partition orders cands[lo:hi] around one of them and returns its final index.
func partition(cands []candidate, lo, hi int) int {
	a, b, c := lo, (lo+hi)/2, hi-1
	// The median of three keeps sorted rows from being the worst case.
	if cands[b].before(&cands[a]) {
		a, b = b, a
	}
	if cands[c].before(&cands[b]) {
		b = c
		if cands[b].before(&cands[a]) {
			b = a
		}
	}
	cands[b], cands[hi-1] = cands[hi-1], cands[b]
	pivot := cands[hi-1]
	m := lo
	for i := lo; i < hi-1; i++ {
		if cands[i].before(&pivot) {
			cands[i], cands[m] = cands[m], cands[i]
			m++
		}
	}
	cands[m], cands[hi-1] = cands[hi-1], cands[m]
	return m
}

// selectMass returns the candidates that top_p and min_p leave of the whole row, without top_k. Both keep a prefix in
// the order of the logits, so the shorter one is the answer. Neither needs a sort: min_p is a bound on the logits, and
// top_p needs the row's mass and the point at which the prefix reaches its share.
func (s *Scratch) selectMass(c *Chain, logits []float32) []candidate {
	s.max = float32(math.Inf(-1))
	b, known := s.best()
	if known {
		s.max = b.logit
	} else {
		s.each(logits, findMax)
	}
	if s.max == float32(math.Inf(-1)) {
		return nil
	}
	if math.IsInf(float64(s.max), 1) {
		return s.selectK(logits, 1)
	}
	s.cands = s.cands[:0]
	s.floor = float32(math.Inf(-1))
	if c.p.MinP > 0 {
		s.floor = s.max + c.minLog
	}
	if c.p.TopP >= 1 {
		s.floor = max(s.floor, negligible(s.max, len(logits), c.p.Temperature))
		s.each(logits, collect)
		return s.cands
	}
	// n logits this far below the largest have together less mass than top_p leaves out (at least 1-top_p of the
	// largest one's 1), so none of them is needed to reach it. The half allows for rounding.
	if bound := s.max + float32(math.Log(float64(1-c.p.TopP)/2/float64(len(logits)))); bound > s.floor {
		s.floor = bound
	}
	if known && s.known.Entropy < flat && s.mask == nil {
		if n, ok := s.knownPrefix(logits, float64(c.p.TopP)); ok {
			return s.cands[:n]
		}
		s.cands = s.cands[:0]
	}
	s.sum = 0
	s.each(logits, sumMass)
	n, _ := massPrefix(s.cands, float64(c.p.TopP)*s.sum, 0)
	return s.cands[:n]
}

// flat is the entropy, in nats, above which single tokens weigh so little that knownPrefix would often be inconclusive.
const flat = 5

// knownPrefix is massPrefix with the mass from the row's statistics instead of a sum over the row. That mass has the
// accuracy of a prober (runtime.RowProber). If the end of the prefix depends on more, knownPrefix reports that and the
// caller sums: the draw never depends on whether the row was probed.
func (s *Scratch) knownPrefix(logits []float32, topP float64) (n int, ok bool) {
	s.each(logits, collect)
	for i := range s.cands {
		s.cands[i].p = float32(exp(s.cands[i].logit - s.max))
	}
	raw := math.Exp(s.known.LogSumExp - float64(s.max))
	sum := raw
	for _, o := range s.overlay {
		sum += exp(o.logit-s.max) - exp(logits[o.id]-s.max)
	}
	return massPrefix(s.cands, topP*sum, (runtime.LogSumExpError+1e-8)*raw) // 1e-8 is above the error of exp
}

// negligible returns a logit so far below the largest of n that all logits below it have together less than 1e-8 of the
// mass at temperature t, less than a float32 probability resolves.
func negligible(top float32, n int, t float32) float32 {
	return top - t*float32(math.Log(1e8*float64(n)))
}

func findMax(s *Scratch, part []float32, _ int32) {
	if id, v := Argmax(part); id >= 0 && v > s.max {
		s.max = v
	}
}

// collect makes candidates of the logits at or above the finite floor.
func collect(s *Scratch, part []float32, base int32) {
	floor := s.floor
	i := 0
	for ; i+8 <= len(part); i += 8 {
		b := part[i : i+8 : i+8]
		if b[0] >= floor || b[1] >= floor || b[2] >= floor || b[3] >= floor ||
			b[4] >= floor || b[5] >= floor || b[6] >= floor || b[7] >= floor {
			for j, v := range b {
				if v >= floor {
					s.cands = append(s.cands, candidate{id: base + int32(i+j), logit: v})
				}
			}
		}
	}
	for ; i < len(part); i++ {
		if v := part[i]; v >= floor {
			s.cands = append(s.cands, candidate{id: base + int32(i), logit: v})
		}
	}
}

// sumMass sums the mass of all logits and makes candidates, with p = their mass, of those at or above the floor.
func sumMass(s *Scratch, part []float32, base int32) {
	top, floor, sum := s.max, s.floor, s.sum
	for i, v := range part {
		e := exp(v - top)
		sum += e
		if v >= floor && e > 0 {
			s.cands = append(s.cands, candidate{id: base + int32(i), logit: v, p: float32(e)})
		}
	}
	s.sum = sum
}

// massPrefix moves the shortest prefix of candidates whose masses reach target to the front and returns its length, at
// least one; all of them if they do not reach it. It is Hoare's selection by mass instead of rank. target is known
// within slack (0 = exactly); ok is false when another target within slack could give another order.
func massPrefix(cands []candidate, target, slack float64) (n int, ok bool) {
	lo, hi, run := 0, len(cands), 0.0
	ok = true
	reaches := func(mass float64) bool {
		if slack > 0 && math.Abs(mass-target) <= slack {
			ok = false
		}
		return mass >= target
	}
	for hi-lo > 32 && ok {
		m := partition(cands, lo, hi)
		before := run
		for i := lo; i < m; i++ {
			before += float64(cands[i].p)
		}
		switch pivot := float64(cands[m].p); {
		case reaches(before):
			hi = m
		case reaches(before + pivot):
			return m + 1, ok
		default:
			lo, run = m+1, before+pivot
		}
	}
	slices.SortFunc(cands[lo:hi], compare)
	for i := lo; i < hi; i++ {
		if run += float64(cands[i].p); reaches(run) {
			return i + 1, ok
		}
	}
	return hi, ok
}
