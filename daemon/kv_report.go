package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/sched"
)

// kvReport reports the cells, the tiers and the cached prefixes: uid's, or those of all users for an operator.
func (l *loop) kvReport(tree bool, uid uint32, now time.Time) *reports.KVReport {
	pool := report.Pool{Cells: l.core.Tree().Cells(), Total: l.cells, CellBytes: l.cellBytes,
		BlockTokens: l.cfg.KVBlockTokens, SeqsMax: l.caps.MaxSequences, Stats: l.core.Tree().Stats()}
	rep := report.KV(&pool, l.stores.Tiers())
	if l.stores.Cache != nil {
		rep.Snapshots = l.stores.Cache.Stats().Snapshots
	}
	all := l.cfg.Privileged(uid)
	for _, e := range l.core.Tree().Entries(nil) {
		if e.NS != uint64(uid) && !all {
			continue
		}
		w := pool.Prefix(&e, kvsnap.Instant(l.instant(now)))
		if r := l.requests[sched.ReqID(e.Req)]; e.Running && r != nil {
			w.Request, w.Class = r.wireID, l.core.TierOf(&r.Request).String()
		}
		rep.Entries = append(rep.Entries, w)
	}
	rep.Entries = append(rep.Entries, l.stores.Entries(uid, all, now)...)
	if tree && all {
		rep.Tree = l.core.Tree().Dump()
	} else if tree {
		rep.Tree = "(only root and the server's user may see the tree: it shows the prefixes of all users)"
	}
	return rep
}
