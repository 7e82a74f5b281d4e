package sched

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
)

// prefillRate measures how fast prompts are computed: tokens and the time of the steps they were in.
type prefillRate struct {
	tokens, ns average
}

func (p *prefillRate) observe(tokens int, took float64) {
	p.tokens.add(float64(tokens), 0.05)
	p.ns.add(took, 0.05)
}

// firstTokenIn estimates the time to the first token of a prompt with left tokens to compute: at the pace of recent
// steps, or by the cost model if nothing else runs. 0 = nothing was measured.
func (s *Scheduler) firstTokenIn(left int) time.Duration {
	if len(s.running) == 0 && s.cost.Prompts() > 0 {
		var l cost.Load
		l.AddPrompt(0, left)
		return time.Duration(s.cost.Predict(l) * 1e6)
	}
	if !s.rate.tokens.any {
		return 0
	}
	return time.Duration(float64(left) * s.rate.ns.value / max(s.rate.tokens.value, 1e-3))
}

// atRisk counts the requests before their first token that have missed their TTFT target, or will at the pace of recent
// steps. For a waiting request only its own prompt counts.
func (s *Scheduler) atRisk() int {
	n := 0
	if s.dated == 0 {
		return 0
	}
	for _, r := range s.requests {
		if r.deadline == never || r.generated > 0 {
			continue
		}
		if s.now.Add(s.firstTokenIn(r.left())) > r.deadline {
			n++
		}
	}
	return n
}
