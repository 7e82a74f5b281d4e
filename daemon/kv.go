package daemon

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// carryOut executes a step's operations on the engine and the stores, in order, and records the copies in l.result.
func (l *loop) carryOut(ops []core.Op) {
	l.result = core.Result{Copies: l.result.Copies[:0]}
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case core.SeqCopy:
			l.eng.SeqCopy(op.Src, op.Dst, runtime.Pos(op.From), runtime.Pos(op.To))
		case core.SeqRemove:
			if !l.eng.SeqRemove(op.Dst, runtime.Pos(op.From), runtime.Pos(op.To)) {
				panic(fmt.Sprintf("daemon: the engine cannot drop positions %d…%d of sequence %d, and reports no "+
					"Seals",
					op.From, op.To, op.Dst))
			}
		case core.SeqShift:
			if err := l.eng.SeqAdd(op.Dst, runtime.Pos(op.From), runtime.Pos(op.To),
				runtime.Pos(op.Delta)); err != nil {
				panic("daemon: the engine cannot shift positions, but reports CanShift: " + err.Error())
			}
		case core.DraftRemove:
			l.model.draft.Remove(op)
		default:
			l.stores.CarryOut(op)
		}
	}
}

// kvReport reports the cells, the tiers and the cached prefixes: uid's, or those of all users for an operator.
func (l *loop) kvReport(tree bool, uid uint32, now time.Time) *reports.KVReport {
	return l.stores.Report(tree, uid, now, l.instant(now), func(id core.ID) (name, class string) {
		if r := l.requests[id]; r != nil {
			return r.wireID, l.core.TierOf(&r.Request).String()
		}
		return "", ""
	})
}
