// Package viewing says when the images of requests are decoded and encoded, beside the steps of others: one at a time,
// in turns of users (turns.go), and while the decode loop gives way.
package viewing

import (
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// Viewing are the requests whose images are decoded and encoded, each on a goroutine of its request: one picture at a
// time, so that the pixels of one at most are in memory, and in turns of users. The zero value has none.
type Viewing[J comparable] struct {
	turns viewTurns

	mu   sync.Mutex
	jobs map[J]*viewed
	busy J // the one that has the turn; the zero value: none
}

// viewed is a request whose images are encoded.
type viewed struct {
	since time.Time
	stop  chan struct{} // closed by a cancel
}

// Turn returns what a request of owner needs to be served in turns. It gives up when stop is closed or goOn says so.
func (v *Viewing[J]) Turn(owner uint32, stop <-chan struct{}, goOn func() bool) prepare.Turn {
	return prepare.Turn{
		Take: func() bool {
			if !v.turns.take(owner, stop) {
				return false
			}
			if !goOn() {
				v.turns.give()
				return false
			}
			return true
		},
		Give: v.turns.give,
		GoOn: goOn,
	}
}

// Begin is Turn for a request that Each tells of until End, and that Cancel wakes.
func (v *Viewing[J]) Begin(j J, owner uint32, goOn func() bool) prepare.Turn {
	stop := make(chan struct{})
	v.mu.Lock()
	if v.jobs == nil {
		v.jobs = map[J]*viewed{}
	}
	v.jobs[j] = &viewed{since: time.Now(), stop: stop}
	v.mu.Unlock()
	turn := v.Turn(owner, stop, goOn)
	take, give := turn.Take, turn.Give
	turn.Take = func() bool {
		ok := take()
		if ok {
			v.setBusy(j)
		}
		return ok
	}
	turn.Give = func() {
		var none J
		v.setBusy(none)
		give()
	}
	return turn
}

func (v *Viewing[J]) setBusy(j J) {
	v.mu.Lock()
	v.busy = j
	v.mu.Unlock()
}

// End is called when a request waits for no turn any more.
func (v *Viewing[J]) End(j J) {
	v.mu.Lock()
	delete(v.jobs, j)
	v.mu.Unlock()
}

// Cancel wakes the request for which is returns true, if it waits for its turn.
func (v *Viewing[J]) Cancel(is func(J) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for j, w := range v.jobs {
		if is(j) && w.stop != nil {
			close(w.stop)
			w.stop = nil
		}
	}
}

// Each calls f with the requests, the times at which they began to wait, and whether they have the turn.
func (v *Viewing[J]) Each(f func(j J, since time.Time, busy bool)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for j, w := range v.jobs {
		f(j, w.since, v.busy == j)
	}
}

// Of returns eng as a reader of images; nil: its model reads none.
func Of(eng runtime.Engine) runtime.Viewer {
	if v, ok := eng.(runtime.Viewer); ok && v.Images() != nil {
		return v
	}
	return nil
}

// mostGiven is the longest time between two steps that an image is given, where no answer waits for its next token.
const mostGiven = 200 * time.Millisecond

// Given returns the time that an image which is being encoded is given before a step. A step with tokens of answers
// gives at most twice its own time, and never so much that an answer would miss the ITL target.
func Given(plan *sched.Plan, target time.Duration) time.Duration {
	for i := range plan.Batch {
		if plan.Batch[i].Kind != sched.SlicePrefill {
			if target <= 0 {
				return min(2*plan.Predicted, mostGiven)
			}
			return min(2*plan.Predicted, target*4/5-plan.Predicted, mostGiven)
		}
	}
	return min(plan.Predicted/2, mostGiven)
}
