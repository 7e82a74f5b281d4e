package tiers

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
)

// Tiers returns the stores' part of a kv report.
func (s *Stores) Tiers() []reports.KVTier {
	if s.Cache == nil {
		return report.NoStores()
	}
	st := s.Cache.Stats()
	st.Host = s.withThoughts(st.Host)
	out := report.Tiers(&st, s.refused[metrics.Host].Load(), s.refused[metrics.Disk].Load(), s.o.Config.CacheDir != "")
	if s.Remote != nil {
		out = append(out, s.Remote.tier(s.refused[metrics.Fabric].Load()))
	}
	return out
}

// tier returns the fabric's part of a kv report, when the engine has refused so many parts of it. Safe from any
// goroutine.
func (m *Remote) tier(refused uint64) reports.KVTier {
	f, g := m.Out.Stats(), m.Guard.Stats()
	return report.Fabric(&f, &g, m.o.Config.KVBlockTokens, refused)
}

// Entries returns the entries of a kv report for stored parts.
func (s *Stores) Entries(uid uint32, all bool, now time.Time) (out []reports.KVEntry) {
	if s.Cache == nil {
		return nil
	}
	for _, i := range s.Cache.List() {
		if uint64(i.Namespace) == uint64(uid) || all {
			out = append(out, report.Stored(&i, now))
		}
	}
	return out
}
