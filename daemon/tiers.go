package daemon

import (
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// The block ledger knows what each request's own cells are to it; what several share, or nobody's request has, it
// counts as cached. It decides nothing here: the scheduler chooses who is preempted, the tree what is evicted.

// addCells counts n more cells of r's own, by what r does.
func (l *loop) addCells(r *request, n int) {
	tier := meridian.OutputCritical
	switch {
	case r.computed <= r.nPrompt:
		tier = meridian.Prefix
	case r.ctl.Phase() == meridian.ThinkDecode:
		tier = meridian.ThinkActive
	}
	if l.blocks == nil {
		return
	}
	l.blocks.OnCells(meridian.Owner(r.id), tier, n)
}

// demote tells that r's thinking is over.
func (l *loop) demote(r *request) {
	if l.blocks != nil {
		l.blocks.Demote(meridian.Owner(r.id))
	}
}

// freeTiers counts r's cells out: they are cached from now on, or gone.
func (l *loop) freeTiers(r *request, _ *sched.Release) {
	if l.blocks != nil {
		l.blocks.Free(meridian.Owner(r.id))
	}
}
