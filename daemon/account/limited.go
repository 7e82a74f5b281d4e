package account

import (
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// limitReasons are the scheduler's reasons in the order of metrics.LimitReasons; a test holds them against it.
var limitReasons = [...]reason.Reason{reason.PrefillTarget, reason.PrefillFloor, reason.PrefillHeld, reason.PrefillLate,
	reason.ThinkHeld, reason.WaitEndangered}

// The ITL target is worth a line in the log when it limits so many requests at once, on average of so many steps: one
// prompt beside answers is computed in small chunks on every machine.
const (
	manyLimited  = 2
	limitedSteps = 100
)

// Limited finds out whether an operator should hear that the ITL target keeps requests waiting.
type Limited struct {
	limited, steps uint64 // at the beginning of these steps
	told           bool
}

// Tell takes the counts of the newest step, and returns how many requests are limited at once when that is to be told:
// once.
func (l *Limited) Tell(s *metrics.Scheduler, steps uint64) (atOnce float64, tell bool) {
	if l.told || steps < l.steps+limitedSteps {
		return 0, false
	}
	limited := uint64(0)
	for _, n := range s.Limited {
		limited += n
	}
	atOnce = float64(limited-l.limited) / float64(steps-l.steps)
	l.limited, l.steps = limited, steps
	l.told = atOnce >= manyLimited
	return atOnce, l.told
}
