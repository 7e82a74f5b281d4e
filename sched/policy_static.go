package sched

import (
	"math"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// meridianStatic is the rule of meridian-core (schedule_batch), kept for comparison.
//
// Rule: a step has Config.OutputSlots places for answers and ⌊slots × Config.ThinkMultiplier⌋ for thinking requests,
// both cut to the free KV cells, answers first; first come, first served. Prompts, which the rule does not mention,
// fill the rest of the batch as under `stock`.
//
// Two corrections let it serve requests at all: a request that got its token goes to the end of its queue instead of
// leaving it, and requests that do not think have a queue.
//
// It optimises: the share of steps that answers get against thinking requests, in places, whatever these cost.
// It gives up: every time bound (prompts stop answers as under `stock`), classes, owners. Thinking gets its places
// although answers wait for them; when cells run short it gets none.
// It is for the simulator. Do not serve with it.
//
// Bounds: an answer gets a token every ⌈answers/OutputSlots⌉ steps while cells last, a thinking request every
// ⌈thinking/⌊OutputSlots × ThinkMultiplier⌋⌉.
type meridianStatic struct {
	predictive
	slots, thinks int
}

func newMeridianStatic(s *Scheduler) *meridianStatic {
	p := &meridianStatic{predictive: newPredictive(s)}
	mult := float64(float32(p.cfg.ThinkMultiplier))
	if p.slots = p.cfg.OutputSlots; p.slots == 0 {
		p.slots = int(math.Ceil(float64(p.cfg.MaxRunning) / (1 + mult)))
	}
	p.thinks = int(math.Floor(float64(p.slots) * mult))
	return p
}

func (p *meridianStatic) lane(Class, uint32) (Class, uint32) { return Interactive, 0 }

func (p *meridianStatic) fill(b *batcher) {
	p.split()
	free := b.cells
	answers := min(len(p.out), p.slots, free, p.cfg.MaxBatch)
	b.decodeAll(p.out, answers, reason.Decode)
	thinks := min(len(p.think), p.thinks, free-answers, b.left)
	b.decodeAll(p.think, thinks, reason.Think)
	for _, r := range p.pre {
		b.prefill(r, p.cfg.MaxBatch, reason.PrefillBatch)
	}
	b.s.plan.Reason = b.whyNotMore()
	if answers < len(p.out) || thinks < len(p.think) {
		b.s.plan.Reason = reason.Budget
	}
	p.finish(b)
}

func (p *meridianStatic) targets() (shared, solo int) { return p.cfg.MaxBatch, p.cfg.MaxBatch }
