package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// kvReport reports the cells, the tiers and the cached prefixes: uid's, or those of all users for an operator.
func (l *loop) kvReport(tree bool, uid uint32, now time.Time) *wire.KVReport {
	pool := report.Pool{Cells: l.core.Tree().Cells(), Total: l.cells, CellBytes: l.cellBytes,
		BlockTokens: l.cfg.KVBlockTokens, SeqsMax: l.caps.MaxSequences, Stats: l.core.Tree().Stats()}
	rep := report.KV(&pool, l.stores.tiers())
	if l.stores.cache != nil {
		rep.Snapshots = l.stores.cache.Stats().Snapshots
	}
	all := l.cfg.Privileged(uid)
	for _, e := range l.core.Tree().Entries(nil) {
		if e.NS != uid && !all {
			continue
		}
		w := pool.Prefix(&e, kvsnap.Instant(l.instant(now)))
		if r := l.requests[sched.ReqID(e.Req)]; e.Running && r != nil {
			w.Request, w.Class = r.wireID, l.core.TierOf(&r.Request).String()
		}
		rep.Entries = append(rep.Entries, w)
	}
	rep.Entries = append(rep.Entries, l.stores.entries(uid, all, now)...)
	if tree && all {
		rep.Tree = l.core.Tree().Dump()
	} else if tree {
		rep.Tree = "(only root and the server's user may see the tree: it shows the prefixes of all users)"
	}
	return rep
}

// tiers are the stores' part of a kv report.
func (s *stores) tiers() []wire.KVTier {
	if s.cache == nil {
		return report.NoStores()
	}
	st := s.cache.Stats()
	st.Host = s.withThoughts(st.Host)
	out := report.Tiers(&st, s.l.cellBytes, s.refused[metrics.Host].Load(), s.refused[metrics.Disk].Load(),
		s.l.cfg.CacheDir != "")
	if s.remote != nil {
		out = append(out, s.remote.tier(s.refused[metrics.Fabric].Load()))
	}
	return out
}

// tier is the fabric's part of a kv report, when the engine has refused so many parts of it. Safe from any goroutine.
func (m *remote) tier(refused uint64) wire.KVTier {
	f, g := m.out.Stats(), m.guard.Stats()
	return report.Fabric(&f, &g, m.l.cfg.KVBlockTokens, refused)
}

// entries are the entries of a kv report for stored parts.
func (s *stores) entries(uid uint32, all bool, now time.Time) (out []wire.KVEntry) {
	if s.cache == nil {
		return nil
	}
	for _, i := range s.cache.List() {
		if uint32(i.Namespace) == uid || all {
			out = append(out, report.Stored(&i, now))
		}
	}
	return out
}
