package front

import (
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/seat"
	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// The front's part of the arbiter: it makes the table of leases, gives each engine process a seat in it, and takes the
// lease from a process that has ended within a step.

// takeSeat gives a seat to the process of m that is about to start; nil where the table is full or there is none.
func (f *Front) takeSeat(m *served) *lease.Seat {
	if f.leases == nil {
		return nil
	}
	seat, err := f.leases.Enter(m.name)
	if err != nil {
		f.log.Warn("a model computes without the arbiter, beside the others", "model", m.name, "error", err)
		return nil
	}
	return &seat
}

// leaveSeat takes back the seat of the process of m, which has ended.
func (f *Front) leaveSeat(m *served) {
	if m.seat != nil {
		f.leases.Leave(*m.seat)
		m.seat = nil
	}
}

// closeLeases frees the table, after the last engine process has ended. One that could not be waited for keeps it.
func (f *Front) closeLeases() {
	for _, m := range f.models {
		if m.proc != nil {
			return
		}
	}
	if f.leases != nil {
		if err := f.leases.Close(); err != nil {
			f.log.Debug("the table of leases cannot be freed", "error", err)
		}
	}
}

// degradedFor is the time for which health reports a step without the lease.
const degradedFor = 10 * time.Second

// arbiter returns the devices' part of health; nil where no leases are taken. Poller's goroutine.
func (f *Front) arbiter() *reports.HealthArbiter {
	if f.leases == nil {
		return nil
	}
	a := &reports.HealthArbiter{Status: "ok", Devices: []reports.DeviceUse{}}
	for _, v := range f.leases.Views() {
		a.Devices = append(a.Devices, reports.DeviceUse{Device: seat.DeviceName(v.Device), Holder: v.Holder,
			HeldMs: wire.Ms(v.Since), Waiting: v.Waiting})
	}
	var texts []string
	for _, m := range f.models {
		if m.seat == nil {
			if m.proc != nil {
				texts = append(texts, fmt.Sprintf("model %s takes no lease", m.name))
			}
			continue
		}
		if steps, ago := f.leases.Without(*m.seat); steps > 0 && ago < degradedFor {
			texts = append(texts, fmt.Sprintf("model %s has computed %d steps without the lease of its device, the "+
				"last %v ago, because another model did not pass it on", m.name, steps, ago.Round(time.Millisecond)))
		}
	}
	if len(texts) > 0 {
		a.Status, a.Text = "degraded", strings.Join(texts, "; ")
	}
	return a
}
