package sched

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
)

// Outlook describes this engine's answers to the other engines on the same device: when they are due, and the duration
// of a step of them. The zero value is that of a scheduler without answers.
type Outlook struct {
	// Target is the tightest ITL target of the answers that get a token in the newest plan's batch: their next tokens
	// are due so long after its end. 0 = there are none.
	Target time.Duration
	// Due is the deadline of the most urgent answer that gets no token in that batch; 0 = each gets one.
	Due Instant
	// Step is the duration that a batch of the answers alone stays below in 95 of 100 cases; 0 = there are none.
	Step time.Duration
	// Least is the duration of the shortest useful batch: Step, or that of the smallest chunk of a prompt.
	Least time.Duration
	// Background: no running request is interactive.
	Background bool
}

// Outlook describes the running requests after a Step. An answer is due when its ITL target ends, a thinking request
// when Config.ThinkFloor does.
func (s *Scheduler) Outlook() Outlook {
	o := Outlook{Background: true}
	var answers cost.Load
	var prompt *request
	for _, r := range s.running {
		if r.paused {
			continue
		}
		o.Background = o.Background && r.entry.Class == Background
		if !r.decoding() {
			if prompt == nil || r.left() < prompt.left() {
				prompt = r
			}
			continue
		}
		answers.AddRows(r.computed, 1)
		// Without a token in this batch it is due by its newest one; Target has the answers with one.
		if target := s.dueAfter(r); r.turns.lastStep != s.step && target > 0 && r.timing.emitted {
			if due := r.timing.lastEmit.Add(target); o.Due == 0 || due < o.Due {
				o.Due = due
			}
		}
	}
	for i, r := range s.out.batch {
		if r == nil || s.plan.Batch[i].Row < 0 || r.paused {
			continue
		}
		if target := s.dueAfter(r); target > 0 && (o.Target == 0 || target < o.Target) {
			o.Target = target
		}
	}
	answers.More = passes(s.running)
	if answers.Decode > 0 {
		o.Step = time.Duration(s.cost.Upper(answers) * 1e6)
	}
	if o.Least = o.Step; prompt != nil && answers.Decode == 0 {
		answers.AddPrompt(prompt.computed, min(prompt.left(), s.cfg.MinPrefill))
		o.Least = time.Duration(s.cost.Upper(answers) * 1e6)
	}
	return o
}

// dueAfter returns the longest gap between two tokens of r; 0 = r has no target.
func (s *Scheduler) dueAfter(r *request) time.Duration {
	if r.phase == Think {
		return max(s.cfg.ThinkFloor, s.itlTarget(r))
	}
	return s.itlTarget(r)
}

// othersLeave returns the largest chunk of at most most prompt tokens from position start on that fits beside base into
// the time that other engines leave (EvLimit); at least Config.MinPrefill. It is for policies that do not predict.
func (s *Scheduler) othersLeave(base cost.Load, start, most int) int {
	if s.clock.limit == 0 {
		return most
	}
	return max(s.cost.Fits(s.limitMs(), base, start, most), min(most, s.cfg.MinPrefill))
}
