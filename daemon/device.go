package daemon

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"

	"github.com/uma-serve/uma-serve/arbiter"
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// Engine processes on one device take turns (packages arbiter and lease). A turn lasts from before the plan of a step
// until its tokens are written: sampling beside the compute threads of another engine would cost both.

// device is the decode loop's part of the arbiter; nil in a process without a front. It belongs to the loop.
type device struct {
	lease  *lease.Lease
	limit  time.Duration // of a step, as the core was told last; 0 = none
	wait   lease.Wait    // of this turn
	warned time.Time     // time of the last warning about a step without the lease
}

// warnEvery is the shortest time between two warnings about steps without the lease.
const warnEvery = 10 * time.Second

// beginTurn takes the lease of the engine's devices if there is something to compute, and tells the core how long a
// step may take. It returns the time.
func (l *loop) beginTurn(now time.Time) time.Time {
	d := l.device
	if d == nil || l.stop || l.state.requests.Load() == 0 && l.core.Quiet() {
		return now
	}
	if d.lease.Busy() {
		l.settle() // no token waits for the step of another model
	}
	l.aside.Unlock()
	wait := d.lease.Acquire()
	l.aside.Lock()
	d.wait = wait
	if d.wait.Took > 0 {
		now = time.Now()
		l.m.DeviceWait.Observe(d.wait.Took)
		l.takeCommands(now) // commands that arrived during the wait
	}
	if !d.wait.OK && now.Sub(d.warned) >= warnEvery {
		d.warned = now
		l.log.Warn("a step is computed without the lease of the device, beside another model's: that model has not "+
			"passed it on", "holder", d.lease.Name(d.wait.Holder), "waited", d.wait.Took.Round(time.Millisecond),
			"steps_without_lease", d.lease.Stats.Without())
	}
	in := core.Input{Kind: core.Limit, Waited: d.wait.Took}
	if limit, ok := d.lease.Limit(now); ok {
		in.Limit = max(limit, 1)
	}
	if in.Limit != d.limit || in.Waited > 0 {
		d.limit = in.Limit
		l.handle(in, now)
	}
	return now
}

// endTurn passes the lease on, after it has told the other engines when this one's answers are due. from is the time of
// the newest tokens of the batch's answers: the end of its decode, or its start if the decode gave no tokens.
func (l *loop) endTurn(from time.Time) {
	d := l.device
	if d == nil {
		return
	}
	d.lease.Say(l.claim(from))
	d.lease.Release()
	d.wait = lease.Wait{OK: true}
}

// claim returns the scheduler's outlook, with its times converted to the clock of the lease table.
func (l *loop) claim(from time.Time) arbiter.Claim {
	o := l.core.Scheduler().Outlook()
	c := arbiter.Claim{Due: arbiter.Never, Target: o.Target, Step: o.Step, Least: o.Least, Background: o.Background}
	if o.Target > 0 {
		c.Due = l.device.lease.At(from.Add(o.Target))
	}
	if o.Due > 0 {
		c.Due = min(c.Due, l.device.lease.At(l.epoch.Add(time.Duration(o.Due))))
		c.Target = cmp.Or(c.Target, l.itlTarget)
	}
	return c
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
		yields = yields || s.Reason == sched.ReasonPrefillOthers
		if r := l.requests[s.Req]; (d.wait.Took > 0 || !d.wait.OK) && s.Kind != sched.SliceProbe {
			r.client().deviceWait.add(&d.wait, now)
		}
	}
	if yields {
		l.m.DeviceYields.Inc()
	}
}

// deviceWait is a report.DeviceWait whose holder is not named yet.
type deviceWait struct {
	report.DeviceWait
	holder int // the slot of the engine that was waited for last
}

func (w *deviceWait) add(one *lease.Wait, now time.Time) {
	if w.Times == 0 {
		w.First = now
	}
	w.Last, w.holder = now, one.Holder
	w.Took += one.Took
	w.Times++
	if !one.OK {
		w.Without++
	}
}

// named returns the waits, with the name of the model that was waited for last.
func (w *deviceWait) named(d *device) report.DeviceWait {
	out := w.DeviceWait
	if out.Times > 0 {
		out.Holder = d.lease.Name(w.holder)
	}
	return out
}

// takeSeat gives the loop its place in the table of leases, for the devices that its engine computes on.
func (l *loop) takeSeat(t *lease.Table, seat lease.Seat) {
	l.device = &device{lease: t.Lease(seat, l.caps.Devices), wait: lease.Wait{OK: true}}
	l.device.lease.Say(arbiter.Claim{Due: arbiter.Never})
	st := &l.device.lease.Stats
	l.m.BindTurns(func() metrics.Turns {
		return metrics.Turns{Grants: st.Grants.Load(), Contended: st.Contended.Load(),
			Held: time.Duration(st.Held.Load()), Faults: [5]uint64{st.HoldTimeouts.Load(), st.WaitTimeouts.Load(),
				st.Skipped.Load(), st.Lost.Load(), st.Repaired.Load()}}
	})
}

// info returns the device's part of the info report.
func (d *device) info(m *metrics.Metrics) *reports.InfoLease {
	st := &d.lease.Stats
	in := &reports.InfoLease{Grants: st.Grants.Load(), Contended: st.Contended.Load(),
		WaitedMs: wire.Ms(time.Duration(st.Waited.Load())), HeldMs: wire.Ms(time.Duration(st.Held.Load())),
		Yields: m.DeviceYields.Value(), Without: st.Without(), Lost: st.Lost.Load(), Repaired: st.Repaired.Load()}
	for rest := d.lease.Devices(); rest != 0; rest &= rest - 1 {
		in.Devices = append(in.Devices, DeviceName(bits.TrailingZeros32(rest)))
	}
	return in
}

// DeviceName returns the name of a device in the lease table.
func DeviceName(i int) string {
	if i == 0 {
		return "cpu"
	}
	return fmt.Sprintf("gpu%d", i-1)
}
