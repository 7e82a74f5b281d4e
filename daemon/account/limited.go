package account

import (
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// limitReasons are the scheduler's reasons in the order of metrics.LimitReasons; a test holds them against it.
var limitReasons = [...]reason.Reason{reason.PrefillTarget, reason.PrefillFloor, reason.PrefillHeld, reason.PrefillLate,
	reason.ThinkHeld}

// The log has one line when the ITL target limits at least manyLimited requests a step, on average of limitedSteps
// steps or more. One is normal: on every machine a prompt beside answers is computed in small chunks.
const (
	manyLimited  = 2
	limitedSteps = 100
)

// Limited decides when to log that the ITL target limits requests.
type Limited struct {
	limited, steps uint64 // at the beginning of these steps
	told           bool
}

// Tell takes the counts so far. atOnce is the average number of limited requests a step since the last check; tell is
// true the first time that it reaches manyLimited.
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
