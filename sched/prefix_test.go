package sched

import (
	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// The engine's part of Config.Prefix: it shares and restores at random, holds requests at random, and pins.

// pool is the cells that requests cannot have and do not own: shared ones, counted once for each holder, and pinned
// ones.
func (e *engine) pool() int {
	n := e.pinned
	for _, r := range e.live {
		n += r.shared
	}
	return n
}

// spare is the cells that requests can have.
func (e *engine) spare() int {
	n := e.cfg.Cells - e.pool()
	for _, r := range e.live {
		n -= r.own()
	}
	return n
}

// tell is the EvCells that is due.
func (e *engine) tell() []Event {
	if !e.cfg.Prefix {
		return nil
	}
	e.told = e.pool()
	return []Event{EvCells{Cells: e.spare()}}
}

// givenUp draws how many cells the end of each request gives up: what it owned at its start, less what later ones
// share.
func (e *engine) givenUp(ev []Event) {
	e.kept = 0
	ended := map[ReqID]bool{}
	end := func(id ReqID) int {
		r := e.live[id]
		if !e.cfg.Prefix || r == nil || ended[id] {
			return 0
		}
		ended[id] = true
		cells := rapid.IntRange(0, r.own()).Draw(e.t, "given up")
		e.kept += r.own() - cells
		return cells
	}
	for i := range ev {
		switch x := ev[i].(type) {
		case EvStep:
			if x.Outcome == StepFailed {
				for _, sl := range e.plan.Batch { // the scheduler ends these itself
					ended[sl.Req] = true
				}
			}
		case EvFinish:
			x.Cells = end(x.Req)
			ev[i] = x
		case EvCancel:
			x.Cells = end(x.Req)
			ev[i] = x
		}
	}
}

// ready draws which held requests may go on.
func (e *engine) ready(all bool) (ev []Event) {
	for _, id := range e.ids() {
		if r := e.live[id]; r.deferred && (all || rapid.Bool().Draw(e.t, "ready")) {
			r.deferred = false
			ev = append(ev, EvReady{Req: id, Shared: rapid.SampledFrom([]int{0, 0, 3, 500}).Draw(e.t, "hint")})
		}
	}
	return ev
}

// answer draws the answers to the plan's starts.
func (e *engine) answer() (ev []Event) {
	t := e.t
	for _, st := range e.plan.Start {
		r := e.live[st.Req]
		if r.deferred = rapid.IntRange(0, 3).Draw(t, "hold") == 3; r.deferred {
			delete(e.seq, r.seq)
			r.seq = -1
			ev = append(ev, EvDefer{Req: st.Req,
				Reason: rapid.SampledFrom([]Reason{reason.Joining, reason.Restoring}).Draw(t, "why")})
			continue
		}
		if rapid.IntRange(0, 20).Draw(t, "gone") == 20 {
			ev = append(ev, EvCancel{Req: st.Req})
			continue
		}
		// Shared cells leave the free ones with it; what is restored needs its own cells.
		r.cells = rapid.IntRange(0, max(0, min(r.history()-1, e.spare()))).Draw(t, "cached")
		r.shared = rapid.IntRange(0, r.cells).Draw(t, "shared")
		if !r.everRan {
			r.everRan, e.first[st.Req] = true, len(e.first)
		}
		ev = append(ev, EvStarted{Req: st.Req, Cached: r.cells, Shared: r.shared})
	}
	return ev
}

// preempted checks a preemption: an answer is preempted only when no running request has not begun its answer; and no
// request is preempted for one that was preempted for it or that started after it, unless it lost its rank: by a
// pause, or because it was thinking while the other one answered.
func (e *engine) preempted(rel Release) {
	if !e.cfg.Prefix {
		return
	}
	v := e.s.requests[rel.Req]
	if v == nil || rel.Reason != reason.PreemptCells && rel.Reason != reason.PreemptFull {
		return // it ended in the same Step, or it made way by its class or pause
	}
	answers := func(r *request) bool { return r.phase == Output && r.generated > 0 }
	for _, b := range e.s.running {
		if b.place.starting || b.paused || b == v {
			continue
		}
		if answers(v) && !answers(b) && !v.paused {
			e.t.Fatalf("answer %d makes way while %d does not answer\n%s", v.id, b.id, e.trace)
		}
		if e.s.claim(v).Compare(e.s.claim(b)) < 0 {
			e.ever[v.id] = true
		}
	}
	for _, b := range e.s.running {
		if b.place.starting || b.paused || b == v || e.ever[v.id] || e.ever[b.id] {
			continue
		}
		urgent := b.entry.Deadline != never && b.entry.Due < v.entry.Due
		if e.lost[[2]ReqID{b.id, v.id}] || e.first[b.id] > e.first[v.id] && !urgent {
			e.t.Fatalf("request %d makes way for %d, which made way for it or started after it\n%s", v.id, b.id,
				e.trace)
		}
		e.lost[[2]ReqID{v.id, b.id}] = true
	}
}

// parkedFirst: what was preempted comes back before new requests of its user and class. Those of other users go
// before it when its user runs its share already; TestShareOfSequences holds that.
func (e *engine) parkedFirst(id ReqID) {
	r := e.s.requests[id]
	if r == nil || r.place.ran {
		return
	}
	for _, o := range e.s.requests {
		if o.entry.Queued && o.entry.Started && o.entry.Class == r.entry.Class &&
			o.log.entry[(o.log.next-1+logSize)%logSize].Last < e.now &&
			o.entry.User == r.entry.User {
			e.t.Fatalf("request %d starts before %d, which was preempted\n%s", id, o.id, e.trace)
		}
	}
}
