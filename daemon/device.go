package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/seat"
	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Engine processes on one device take turns (packages arbiter, lease and seat). A turn lasts from before the plan of a
// step until its tokens are written: sampling beside the compute threads of another engine would cost both.

// beginTurn takes the lease of the engine's devices if there is something to compute, and tells the core how long a
// step may take. It returns the time.
func (l *loop) beginTurn(now time.Time) time.Time {
	d := l.device
	if d == nil || l.end.stop || l.state.requests.Load() == 0 && l.core.Quiet() {
		return now
	}
	if d.Busy() {
		l.settle() // no token waits for the step of another model
	}
	l.aside.Unlock()
	wait := d.Acquire()
	l.aside.Lock()
	d.Wait = wait
	if d.Wait.Took > 0 {
		now = time.Now()
		l.m.DeviceWait.Observe(d.Wait.Took)
		l.takeCommands(now) // commands that arrived during the wait
	}
	d.Warn(now, l.log)
	if in, changed := d.Limit(now); changed {
		l.handle(in, now)
	}
	return now
}

// endTurn passes the lease on, after it has told the other engines when this one's answers are due. from is the time of
// the newest tokens of the batch's answers: the end of its decode, or its start if the decode gave no tokens.
func (l *loop) endTurn(from time.Time) {
	if d := l.device; d != nil {
		d.Pass(d.Claim(l.core.Scheduler().Outlook(), from, l.epoch, l.model.itlTarget))
	}
}

// noteTurn adds the wait of this turn to the requests of the batch, for why, and counts the prompts that made way.
func (l *loop) noteTurn(plan *sched.Plan, now time.Time) {
	d := l.device
	if d == nil {
		return
	}
	yields := false
	for i := range plan.Batch {
		s := &plan.Batch[i]
		yields = yields || s.Reason == reason.PrefillOthers
		if r := l.requests[s.Req]; (d.Wait.Took > 0 || !d.Wait.OK) && s.Kind != sched.SliceProbe {
			r.client().deviceWait.Add(&d.Wait, now)
		}
	}
	if yields {
		l.m.DeviceYields.Inc()
	}
}

// takeSeat gives the loop its place in the table of leases, for the devices that its engine computes on.
func (l *loop) takeSeat(t *lease.Table, at lease.Seat) {
	l.device = seat.Take(t, at, l.model.caps.Devices, l.m)
}
