package daemon

import (
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// The block ledger knows what each request's own cells are to it; what several share, or nobody's request has, it
// counts as cached. It decides nothing here: the scheduler chooses who is preempted, the tree what is evicted.

// tierOf is what the cells that r computes now are to it.
func (l *loop) tierOf(r *request) meridian.Tier {
	switch {
	case r.computed <= r.nPrompt:
		return meridian.Prefix
	case r.ctl.Phase() == meridian.ThinkDecode:
		return meridian.ThinkActive
	}
	return meridian.OutputCritical
}

// addCells counts n more cells of r's own.
func (l *loop) addCells(r *request, n int) {
	if n > 0 {
		l.blocks.OnCells(meridian.Owner(r.id), l.tierOf(r), n)
	}
}

// demote tells that r's thinking is over.
func (l *loop) demote(r *request) { l.blocks.Demote(meridian.Owner(r.id)) }

// freeTiers counts r's cells out: they are cached from now on, or gone.
func (l *loop) freeTiers(r *request, rel *sched.Release) {
	if rel.Final {
		l.blocks.Free(meridian.Owner(r.id))
		return
	}
	before := l.blocks.Snapshot().OutputCriticalEvictions
	l.blocks.Evict(meridian.Owner(r.id), meridian.EvictPreempt)
	if n := l.blocks.Snapshot().OutputCriticalEvictions - before; n > 0 && (rel.Reason == sched.ReasonPreemptCells || rel.Reason == sched.ReasonPreemptFull) && l.lowerHas(r) {
		l.avoidable += n
	}
}

// lowerHas reports whether a cached prefix, or a request that is not answering, has cells that the answer of r could
// have been spared for.
func (l *loop) lowerHas(r *request) bool {
	if l.evictable > 0 {
		return true
	}
	for _, o := range l.slots {
		if o != nil && o != r && o.own > 0 && o.class >= r.class && (o.generated() == 0 || o.ctl.Phase() == meridian.ThinkDecode) {
			return true
		}
	}
	return false
}

// countCache tells the ledger what is cached, after anything that changed it.
func (l *loop) countCache() { l.blocks.SetCache(l.tree.Cells().Cached, l.pool) }
