package sched

import "github.com/uma-serve/uma-serve/sched/cost"

// Many requests that arrive at once wait for each other in any case: the question is where. If each answer begins as
// soon as its prompt is computed, every further step computes its row too, and leaves the other prompts less of the ITL
// target. With 16 equal requests the last first token then comes up to 2.9 times as late as when prompts go first (135
// M, AVX2), and steps of few rows at the end make all of them later. So where the answers to come would leave prompts
// little of a step, the prompts are computed up to their last token, and complete in one step.

// together is the state of a group of prompts that complete in one step.
type together struct {
	ended uint64  // groups before this one
	since Instant // when the first prompt began to wait; 0 = none waits
	steps int     // since then
}

// holdsLast reports whether the prompts of this step are left without their last token, because they are to complete
// together. budget is the step's, base what it computes without prompts.
func (p *predictive) holdsLast(base cost.Load, budget *stepBudget) bool {
	s := p.s
	waiting, left := 0, 0
	all, rows := base, base
	target := float64(p.cfg.ITLTarget) / 1e6
	for _, r := range p.pre {
		if !awaitsFirstToken(r) {
			continue
		}
		if r.entry.Deadline != never || r.spec.Whole || r.spec.EveryRow || r.spec.PromptRows ||
			r.turns.group > 0 && r.turns.group <= p.group.ended {
			return false // it has reasons not to wait, or has waited
		}
		waiting++
		left += r.left() - 1
		all.AddPrompt(r.computed, r.left())
		rows.AddRows(r.prompt, 1)
		if t := s.itlTarget(r); t > 0 {
			target = min(target, float64(t)/1e6)
		}
	}
	if waiting < togetherLeast || left == 0 || s.cost.Prompts() == 0 {
		return false
	}
	// The answers leave the prompts enough of each step to begin one by one.
	if s.cost.Upper(rows) < mul(1-togetherShare, target) {
		return false
	}
	rest := s.cost.Likely(all)
	if rest <= budget.ms {
		return false // they complete in this step
	}
	if budget.bounded { // answers take their part of each step
		now := s.cost.Predict(base)
		rest = (rest - now) / max(0.05, 1-now/max(budget.ms, 1e-3))
	}
	waited := 0.0
	if p.group.since > 0 {
		waited = float64(s.now-p.group.since) / 1e6
	}
	return waited+rest <= float64(togetherFor)/1e6 && p.group.steps < togetherSteps*p.cfg.MaxRunning
}

// note counts a step in which prompts did or did not wait for each other.
func (g *together) note(now Instant, held bool) {
	switch {
	case !held && g.since > 0:
		*g = together{ended: g.ended + 1}
	case !held:
	case g.since == 0:
		g.since, g.steps = max(now, 1), 1
	default:
		g.steps++
	}
}
