package front

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/hosttier"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
)

// The host tiers of all models share one budget. Engine processes write what they hold into the table of connections;
// the front tells them their caps.

// hostTier holds a model's cap and use of host memory, as the front knows them.
type hostTier struct {
	cap     int64   // that its process was told, or is told when it is there
	first   int64   // that its process was begun with
	bytes   int64   // bytes
	evicted uint64  // parts, by the table
	more    bool    // it has evicted since the last look
	weight  float64 // requests of late
	counted uint32  // of the table's requests, in weight
}

// lookAtHosts reads what the host tiers hold and divides the budget again.
func (f *Front) lookAtHosts(now time.Time) {
	passed := now.Sub(f.hostsAt)
	f.hostsAt = now
	for _, m := range f.models {
		h := &m.host
		if m.proc == nil {
			h.weight = hosttier.Decay(h.weight, passed, 0)
			continue
		}
		held, evicted := m.proc.table.HostTier()
		// A table is untrusted.
		h.bytes, h.more, h.evicted = min(held, f.limit), evicted != h.evicted, evicted
		begun := m.proc.table.Begun()
		h.weight = hosttier.Decay(h.weight, passed, int(min(begun-h.counted, maxBegun))+m.proc.table.InFlight())
		h.counted = begun
	}
	f.divideHosts()
}

// hostBytes returns the size of all host tiers together.
func (f *Front) hostBytes() (n int64) {
	for _, m := range f.models {
		n += m.host.bytes
	}
	return n
}

// maxBegun bounds the requests of an interval that a table claims.
const maxBegun = 1 << 16

// divideHosts tells the engine processes what they may keep in host memory.
func (f *Front) divideHosts() {
	var of []*served
	var uses []hosttier.Use
	held, told := int64(0), int64(0)
	for _, m := range f.models {
		if m.takesMemory() && m.demand.HostTier {
			of = append(of, m)
			uses = append(uses, hosttier.Use{Bytes: m.host.bytes, Evicting: m.host.more, Weight: m.host.weight,
				Most: min(m.cfg.HostTiers(f.limit), f.hostMost)})
			held, told = held+m.host.bytes, told+m.host.cap
		}
	}
	if len(of) == 0 {
		return
	}
	f.hostBudget = hosttier.Budget(f.hostMost, f.limit-f.used(), held, hostmem.Read())
	caps := hosttier.Divide(f.hostBudget, uses)
	// First what others are to get. Small changes are not worth a message, unless too much has been promised.
	for _, shrink := range []bool{true, false} {
		for i, m := range of {
			n, was := max(caps[i], 1), m.host.cap
			if n < was == shrink && (hosttier.Changed(was, n) || shrink && told > f.hostBudget) {
				m.host.cap = n
				if m.proc != nil {
					m.tellHostTier()
				}
			}
		}
	}
}

// tellHostTier tells the process of m its cap.
func (m *served) tellHostTier() {
	// fails when it has ended
	_ = m.proc.link.Send(link.HostTier, 0, -1, link.HostTierMessage(m.host.cap))
}
