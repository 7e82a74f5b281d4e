package daemon

import (
	"fmt"
	"math"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
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

// kvQuestion asks for the cells and cached prefixes, or for an operation on them.
type kvQuestion struct {
	s   *Server
	q   wire.KVQuestion
	uid uint32
}

func (k *kvQuestion) answer(q *inquiry, l *loop, now time.Time) *wire.Event {
	if k.q.Op == wire.KVShow {
		rep := l.kvReport(k.q.Tree, k.uid, now)
		for i := range rep.Entries {
			if uid := rep.Entries[i].UID; uid <= math.MaxUint32 {
				rep.Entries[i].Owner = k.s.in.Access.OwnerName(uint32(uid))
			}
		}
		return wire.JSONEvent(wire.KindKV, q.id, rep)
	}
	done, drop, err := l.stores.Command(k.q, k.uid)
	switch {
	case err != nil:
		return wire.ErrorEvent(&wire.Error{ID: q.id, Code: wire.BadRequest, Message: err.Error()})
	case drop == nil:
		return wire.JSONEvent(wire.KindKV, q.id, done)
	}
	go func() { // deleting files and fabric entries is slow
		if err := l.stores.Drop(drop, done); err != nil {
			q.refuse(&wire.Error{Code: wire.InternalFailure, Message: err.Error()})
			return
		}
		q.c.ReplyEvent(wire.JSONEvent(wire.KindKV, q.id, done))
	}()
	return nil
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
