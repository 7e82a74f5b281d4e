package sched_test

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// An answer runs when a prompt of 60 tokens arrives. The policy uma cuts the prompt into chunks, so that the answer's
// next token comes within the tick budget. The loop below is what the daemon's decode loop does, with a made-up engine
// that takes 1 ms a step and 0.5 ms a token.
func Example() {
	s, err := sched.New(sched.Config{
		Policy: "uma", MaxRunning: 4, Cells: 256, MaxBatch: 64, MaxQueue: 8,
		TickBudget: 12 * time.Millisecond, StartBudget: 21, // tokens, until steps are measured
	})
	if err != nil {
		panic(err)
	}
	var now sched.Instant
	left := map[sched.ReqID]int{1: 6, 2: 2} // tokens that each request generates
	events := []sched.Event{sched.EvArrive{Req: 1, Spec: &sched.Spec{Prompt: 4, MaxTokens: 8}}}
	for step := 1; ; step++ {
		plan := s.Step(now, sched.List(events...))
		fmt.Printf("%2d ms:", time.Duration(now).Milliseconds())
		for _, slice := range plan.Batch {
			fmt.Printf("  request %d: %d tokens at %d", slice.Req, slice.N, slice.Start)
		}
		for _, release := range plan.Release {
			fmt.Printf("  request %d ended: %s", release.Req, release.Reason)
		}
		fmt.Println()
		if len(plan.Batch) == 0 {
			return
		}

		took := time.Millisecond + time.Duration(plan.Tokens)*time.Millisecond/2
		now = now.Add(took)
		events = []sched.Event{sched.EvStep{Outcome: sched.StepOK, Took: took}}
		for _, slice := range plan.Batch {
			if slice.Row < 0 {
				continue // the prompt continues in a later step
			}
			if left[slice.Req]--; left[slice.Req] > 0 {
				events = append(events, sched.EvToken{Req: slice.Req})
			} else {
				events = append(events, sched.EvFinish{Req: slice.Req, Reason: reason.Stop})
			}
		}
		if step == 1 {
			events = append(events, sched.EvArrive{Req: 2, Spec: &sched.Spec{Prompt: 60, MaxTokens: 8}})
		}
	}
	// Output:
	//  0 ms:  request 1: 4 tokens at 0
	//  3 ms:  request 1: 1 tokens at 4  request 2: 20 tokens at 0
	// 14 ms:  request 1: 1 tokens at 5  request 2: 20 tokens at 20
	// 26 ms:  request 1: 1 tokens at 6  request 2: 20 tokens at 40
	// 37 ms:  request 1: 1 tokens at 7  request 2: 1 tokens at 60
	// 39 ms:  request 1: 1 tokens at 8  request 2 ended: stop
	// 41 ms:  request 1 ended: stop
}
