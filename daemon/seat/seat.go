// Package seat is the decode loop's part of the turns that engine processes on one device take (packages arbiter and
// lease): the lease, the limit of a step, and the claim that the other processes read. It knows no request.
package seat

import (
	"cmp"
	"fmt"
	"log/slog"
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

// Seat is a process's place in the table of leases. It belongs to the loop.
type Seat struct {
	Wait   lease.Wait // of this turn
	lease  *lease.Lease
	limit  time.Duration // of a step, as the core was told last; 0 = none
	warned time.Time     // time of the last warning about a step without the lease
}

// Take takes a place in the table of leases, for the devices that an engine computes on.
func Take(t *lease.Table, at lease.Seat, devices uint32, m *metrics.Metrics) *Seat {
	d := &Seat{lease: t.Lease(at, devices), Wait: lease.Wait{OK: true}}
	d.lease.Say(arbiter.Claim{Due: arbiter.Never})
	st := &d.lease.Stats
	m.BindTurns(func() metrics.Turns {
		return metrics.Turns{Grants: st.Grants.Load(), Contended: st.Contended.Load(),
			Held: time.Duration(st.Held.Load()), Faults: [5]uint64{st.HoldTimeouts.Load(), st.WaitTimeouts.Load(),
				st.Skipped.Load(), st.Lost.Load(), st.Repaired.Load()}}
	})
	return d
}

// Busy reports whether another process holds the lease.
func (d *Seat) Busy() bool { return d.lease.Busy() }

// Acquire waits for the lease. The caller sets Wait to the result.
func (d *Seat) Acquire() lease.Wait { return d.lease.Acquire() }

// warnEvery is the shortest time between two warnings about steps without the lease.
const warnEvery = 10 * time.Second

// Warn warns now and then of a step without the lease.
func (d *Seat) Warn(now time.Time, log *slog.Logger) {
	if !d.Wait.OK && now.Sub(d.warned) >= warnEvery {
		d.warned = now
		log.Warn("a step is computed without the lease of the device, beside another model's: that model has not "+
			"passed it on", "holder", d.lease.Name(d.Wait.Holder), "waited", d.Wait.Took.Round(time.Millisecond),
			"steps_without_lease", d.lease.Stats.Without())
	}
}

// Limit returns the core's input about how long the step may take. changed is false where the core knows it.
func (d *Seat) Limit(now time.Time) (in core.Input, changed bool) {
	in = core.Input{Kind: core.Limit, Waited: d.Wait.Took}
	if limit, ok := d.lease.Limit(now); ok {
		in.Limit = max(limit, 1)
	}
	changed = in.Limit != d.limit || in.Waited > 0
	d.limit = in.Limit
	return in, changed
}

// Pass passes the lease on, after it has told the other engines when this one's answers are due.
func (d *Seat) Pass(c arbiter.Claim) {
	d.lease.Say(c)
	d.lease.Release()
	d.Wait = lease.Wait{OK: true}
}

// Claim returns the scheduler's outlook, with its times converted to the clock of the lease table. from is the time of
// the newest tokens, epoch the core's instant 0, target the ITL target of a request that has none.
func (d *Seat) Claim(o sched.Outlook, from, epoch time.Time, target time.Duration) arbiter.Claim {
	c := arbiter.Claim{Due: arbiter.Never, Target: o.Target, Step: o.Step, Least: o.Least, Background: o.Background}
	if o.Target > 0 {
		c.Due = d.lease.At(from.Add(o.Target))
	}
	if o.Due > 0 {
		c.Due = min(c.Due, d.lease.At(epoch.Add(time.Duration(o.Due))))
		c.Target = cmp.Or(c.Target, target)
	}
	return c
}

// Waits is a report.DeviceWait whose holder is not named yet.
type Waits struct {
	report.DeviceWait
	holder int // the slot of the engine that was waited for last
}

// Add adds a wait that ended now.
func (w *Waits) Add(one *lease.Wait, now time.Time) {
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

// Named returns the waits, with the name of the model that was waited for last.
func (w *Waits) Named(d *Seat) report.DeviceWait {
	out := w.DeviceWait
	if out.Times > 0 {
		out.Holder = d.lease.Name(w.holder)
	}
	return out
}

// Info returns the seat's part of the info report.
func (d *Seat) Info(m *metrics.Metrics) *reports.InfoLease {
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
