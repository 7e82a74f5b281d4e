package sched

import "time"

// prefillRate measures how fast prompts are computed: tokens and the time of the steps they were in.
type prefillRate struct {
	tokens, ns average
}

func (p *prefillRate) observe(tokens int, took float64) {
	p.tokens.add(float64(tokens), 0.05)
	p.ns.add(took, 0.05)
}

// firstTokenIn guesses how long it takes until the first token of a prompt of which left tokens are still to be
// computed, when ahead tokens of others go before: at the pace of the steps lately, or, with nobody else there, at the
// cost model's. 0 = nothing was measured.
func (s *Scheduler) firstTokenIn(left, ahead int) time.Duration {
	if len(s.running) == 0 && ahead == 0 && s.cost.prompts > 0 {
		var l load
		l.slice(SlicePrefill, 0, left)
		return time.Duration(s.cost.predict(l) * 1e6)
	}
	if !s.rate.tokens.any {
		return 0
	}
	return time.Duration(float64(left+ahead) * s.rate.ns.value / max(s.rate.tokens.value, 1e-3))
}

// ahead is the prompt tokens that are computed before those of a request of class that comes now.
func (s *Scheduler) ahead(class Class) int {
	n := 0
	for _, r := range s.requests {
		if r.flow.class <= class && r.generated == 0 && !r.paused {
			n += r.left()
		}
	}
	return n
}

// hopeless reports whether an arrival that asked to be told (Event.Strict) cannot have its first token in time, and by
// how much it would be late.
func (s *Scheduler) hopeless(e *Event) (late time.Duration, yes bool) {
	if !e.Strict || e.TargetTTFT <= 0 {
		return 0, false
	}
	class, _ := s.policy.lane(e.Class, e.Owner)
	in := s.firstTokenIn(e.Prompt-min(e.Shared, e.Prompt-1), s.ahead(class))
	return in - e.TargetTTFT, in > e.TargetTTFT
}

// atRisk counts the requests before their first token whose wished time has passed or, by the pace of late, will
// have: for a waiting one only its own prompt is reckoned with.
func (s *Scheduler) atRisk() int {
	n := 0
	if s.dated == 0 {
		return 0
	}
	for _, r := range s.requests {
		if r.deadline == never || r.generated > 0 {
			continue
		}
		if s.now.Add(s.firstTokenIn(r.left(), 0)) > r.deadline {
			n++
		}
	}
	return n
}
