package workload

import (
	"fmt"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
)

// FromRecording makes a workload of what a running uma-serve recorded (package sched's trace): who arrived when, how
// many tokens each prompt had left to compute, how many tokens it generated and how many of them it thought. A request
// that was cancelled ends where it did. Arrivals are counted from the first step.
func FromRecording(t *sched.Trace) ([]Request, error) {
	if len(t.Steps) == 0 {
		return nil, nil
	}
	var rows []Request
	at := map[sched.ReqID]int{}
	origin := t.Steps[0].Now
	for _, step := range t.Steps {
		for i := range step.Events {
			ev := &step.Events[i]
			if ev.Kind == sched.EvArrive {
				if ev.Prompt > MaxTokens || ev.MaxTokens < 0 {
					return nil, fmt.Errorf("recording: line %d: a prompt of %d tokens: at most %d", step.Line, ev.Prompt, MaxTokens)
				}
				at[ev.Req] = len(rows)
				r := Request{Index: int64(len(rows)), Arrival: max(0, int64(step.Now-origin)/1000), Input: ev.Prompt, Budget: min(ev.MaxTokens, MaxTokens),
					Class: ev.Class.String(), Tenant: fmt.Sprintf("uid%d", ev.Owner)}
				if ev.Thinking {
					r.Think = 1
				}
				rows = append(rows, r)
				continue
			}
			k, known := at[ev.Req]
			if !known {
				continue
			}
			switch r := &rows[k]; ev.Kind {
			case sched.EvToken:
				r.Output++
				if ev.Thinking {
					r.Think = r.Output + 1 // this token and, until told otherwise, the next
				}
			case sched.EvFinish:
				r.Output++
			}
		}
	}
	return rows, nil
}

// StepCosts are the steps of a recording: what each planned and how long it took. They are what a cost model is fitted
// to. The recording is replayed, because only the scheduler knows which tokens each slice attended to.
func StepCosts(t *sched.Trace) ([]latency.Sample, error) {
	var out []latency.Sample
	var open latency.Sample
	err := t.Replay(func(step *sched.TraceStep, plan *sched.Plan) {
		for i := range step.Events {
			if ev := &step.Events[i]; ev.Kind == sched.EvStep && ev.Outcome == sched.StepOK {
				open.Us = float64(ev.Took.Nanoseconds()) / 1000
				out = append(out, open)
			}
		}
		open = latency.Sample{PrefillTokens: plan.PrefillTokens, DecodeTokens: plan.DecodeTokens}
		for i := range plan.Batch {
			open.KVTokens += int64(plan.Batch[i].Start)
		}
	})
	return out, err
}
