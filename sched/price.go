package sched

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
)

// ComputeTime predicts how long computing n tokens of a prompt takes, from position start on: alone by the cost model,
// beside running requests at the pace of recent steps if that is slower. 0 = too little was measured.
func (s *Scheduler) ComputeTime(start, n int) time.Duration {
	if n < 1 || s.cost.Prompts() < learnedSteps {
		return 0
	}
	var l cost.Load
	l.AddPrompt(start, n)
	// Each further step reads what lies before its chunk.
	l.More = float64((n - 1) / s.cfg.MaxBatch)
	l.Read += mul(l.More, float64(start)+mul(float64(s.cfg.MaxBatch), 0.5*(l.More+1)))
	ns := mul(s.cost.Predict(l), 1e6)
	if len(s.running) > 0 {
		ns = max(ns, mul(s.promptPace(), float64(n)))
	}
	return max(1, time.Duration(ns))
}
