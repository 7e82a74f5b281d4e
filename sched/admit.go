package sched

import (
	"fmt"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// room returns the number of KV cells that requests can still be given, after this Step's releases.
func (s *Scheduler) room() int { return s.cells + s.freed - s.lost }

// owned returns the number of cells that the running requests would free together if all of them were preempted.
func (s *Scheduler) owned() (n int) {
	for _, r := range s.running {
		n += r.own()
	}
	return n
}

// capacity returns the number of cells that running requests can own in all: the free ones and their own.
func (s *Scheduler) capacity() int { return s.room() + s.owned() }

// preemptForCells preempts requests of lowest rank until every other running request has the cells of its least slice,
// which is one token, or a prompt that is computed whole. So the first in rank always progresses, and because ranks do
// not change no request is preempted for one that was preempted for it.
func (s *Scheduler) preemptForCells() {
	if len(s.running) == 0 {
		s.lost = 0 // no request holds cells: the engine may have all of them
	}
	for len(s.running) > 0 {
		need := 0
		for _, r := range s.running {
			if !r.paused {
				need += r.least()
			}
		}
		if need == 0 || need <= s.room() {
			s.asked = false
			return
		}
		if len(s.running) == 1 {
			r := s.running[0]
			// The engine had no cells for its smallest slice, and there is nothing left to preempt.
			if s.kvTokens > 0 && s.kvTokens <= r.least() {
				s.lost = 0
				s.finaliseUntold(r, reason.KVFull)
				return
			}
			if short := need - s.cells - s.freed; short > 0 {
				// Pinned prefixes, or cells shared with requests that were just preempted, hold its cells.
				// The caller was asked once (Plan.Reclaim), and the cells did not come.
				if s.asked {
					s.asked = false
					s.finaliseUntold(r, reason.KVFull)
					return
				}
				s.asked = true
				s.plan.Reclaim, s.plan.Again = short, true
				return
			}
			// The ledger has cells that the engine seemed to lack after StepKVFull. With nothing left to preempt the
			// request tries them, 64 at a time.
			s.lost = max(0, s.cells+s.freed-64)
			return
		}
		v, share := s.nextVictim()
		why := reason.PreemptCells
		switch {
		case share:
			why = reason.PreemptShare
		case s.lost > 0:
			why = reason.PreemptFull
		}
		s.preempt(v, why)
	}
}

// last returns the running request of lowest rank among those that ok accepts (nil: all), or nil.
func (s *Scheduler) last(ok func(*request) bool) *request {
	var v *request
	for _, r := range s.running {
		if (ok == nil || ok(r)) && (v == nil || s.before(v, r)) {
			v = r
		}
	}
	return v
}

// admit gives sequences to waiting requests while there are sequences and cells. No other request of its class, or of a
// lower one, overtakes the first of the queue for want of cells: a large prompt waits until it fits, and does not
// starve.
func (s *Scheduler) admit() {
	for {
		class, overdue, ok := s.nextClass()
		if !ok {
			return
		}
		r := s.first(class)
		if why := s.blocked(r); why != reason.None && !s.makeRoom(r) {
			s.plan.Waiting[class] = why
			if overdue && s.waitsForOwn(r) && s.admitPast() {
				continue
			}
			// No request will end and free cells, so cached prefixes must.
			if len(s.running) == 0 {
				s.plan.Reclaim = s.lacks(r)
			}
			if other := 1 - class; s.byClass[other].queued > 0 && s.plan.Waiting[other] == reason.None {
				s.plan.Waiting[other] = reason.WaitTurn
			}
			return
		}
		s.start(r)
		if overdue {
			r.yielded = true // else the interactive requests that it overtook would preempt it at once
		}
	}
}

// waitsForOwn reports whether r, a background request, would lack cells or a sequence even without all interactive
// requests: others of its class have them. Then it gains nothing by holding interactive ones back.
func (s *Scheduler) waitsForOwn(r *request) bool {
	reserve := max(0, s.cfg.DecodeReserve)
	short, left := s.shortage(r), len(s.running)
	for _, o := range s.running {
		if o.flow.class == Interactive {
			short -= o.footprint(reserve)
			left--
		}
	}
	return short > 0 || left >= s.cfg.MaxRunning
}

// admitPast starts the first interactive request past a background one, and reports whether it could.
func (s *Scheduler) admitPast() bool {
	limit := s.cfg.Limits[Interactive].MaxRunning
	if c := &s.byClass[Interactive]; c.queued == 0 || limit > 0 && c.running >= limit {
		return false
	}
	r := s.first(Interactive)
	if s.blocked(r) != reason.None && !s.makeRoom(r) {
		return false
	}
	s.start(r)
	return true
}

// nextClass picks the class whose first request is tried next. overdue says that it is Background because that class
// has waited Config.BackgroundEvery behind Interactive.
func (s *Scheduler) nextClass() (class Class, overdue, ok bool) {
	may := func(class Class) bool {
		c, limit := &s.byClass[class], s.cfg.Limits[class].MaxRunning
		if c.queued == 0 {
			return false
		}
		if limit > 0 && c.running >= limit {
			s.plan.Waiting[class] = reason.WaitClass
			return false
		}
		return true
	}
	interactive, background := may(Interactive), may(Background)
	// The wait for an interactive target is bounded, so that background requests do not starve.
	if background && s.risk && s.now.Sub(s.byClass[Background].servedAt) < s.cfg.BackgroundEvery {
		s.plan.Waiting[Background] = reason.WaitEndangered
		background = false
	}
	switch {
	case background && interactive && s.now.Sub(s.byClass[Background].servedAt) >= s.cfg.BackgroundEvery &&
		!s.dueBefore(s.first(Interactive), s.first(Background)):
		return Background, true, true
	case interactive:
		return Interactive, false, true
	case background:
		return Background, false, true
	}
	return 0, false, false
}

// blocked returns why r cannot start now, or reason.None.
func (s *Scheduler) blocked(r *request) Reason {
	switch {
	case len(s.running) == 0:
		if s.lacks(r) > 0 {
			return reason.WaitCells
		}
		return reason.None
	case len(s.running) == s.cfg.MaxRunning:
		return reason.WaitSequence
	case s.shortage(r) > 0:
		return reason.WaitCells
	}
	return reason.None
}

// lacks returns the number of cells that are missing for r to run alone. Cached prefixes hold them: arrive accepts only
// requests whose history fits into the whole pool.
func (s *Scheduler) lacks(r *request) int {
	return max(0, r.history()+min(1, r.growth())-r.hint-s.cells-s.freed-s.owned())
}

// shortage returns the number of cells that must become free before r may start; ≤ 0 = it may. Each running request
// keeps Config.DecodeReserve cells to grow into.
func (s *Scheduler) shortage(r *request) int {
	reserve := max(0, s.cfg.DecodeReserve)
	n := r.footprint(reserve) - s.room()
	for _, o := range s.running {
		n += o.footprint(reserve) - o.own()
	}
	return n
}

// makeRoom preempts requests so that r can start: those whose client has not read for Config.PauseGrace, for an
// interactive r background ones that have not made way before, and those of users that run more than their share. It
// preempts none if that would not be enough.
func (s *Scheduler) makeRoom(r *request) bool {
	reserve := max(0, s.cfg.DecodeReserve)
	short, left, enough := s.shortage(r), len(s.running), false
	for !enough {
		v := s.last(func(o *request) bool { return o.preemptFor == reason.None && s.preemptable(o, r) != reason.None })
		if v == nil {
			break
		}
		v.preemptFor = s.preemptable(v, r)
		v.user.leaving++
		left--
		short -= v.footprint(reserve)
		// A request that runs alone needs no reserve, as in blocked.
		enough = left > 0 && short <= 0 || left == 0 && s.lacks(r) == 0
	}
	for i := len(s.running); i > left; i-- {
		v := s.last(func(o *request) bool { return o.preemptFor != reason.None })
		// The marks are removed in any case; requests are preempted only if all of them together make room.
		why := v.preemptFor
		v.preemptFor = reason.None
		v.user.leaving--
		if !enough {
			continue
		}
		if why == reason.PreemptYield {
			v.yielded = true
		}
		s.preempt(v, why)
	}
	return enough
}

// preemptable returns why o may be preempted to let r in, or reason.None.
func (s *Scheduler) preemptable(o, r *request) Reason {
	switch {
	case o.paused && s.now.Sub(o.pausedAt) >= s.cfg.PauseGrace:
		return reason.PreemptPaused
	case o.flow.class > r.flow.class && !o.yielded:
		return reason.PreemptYield
	case s.overShare(o, r):
		return reason.PreemptShare
	}
	return reason.None
}

// start gives r a sequence. With Config.Prefix the caller then answers with EvStarted (how much of its history is
// cached) or EvDefer.
func (s *Scheduler) start(r *request) {
	if len(s.running) == 0 {
		s.lost = 0 // as in preemptForCells, when the last one was preempted for r
	}
	s.unqueue(r)
	f := r.flow
	c := &s.byClass[f.class]
	if !r.started {
		r.started = true
		s.unwait(r)
		s.rejected = max(0, s.rejected-1)
	}
	r.user.running++
	r.startedAt = s.now
	// Else a request that starts would count as the least recently served one and go before those that wait for their
	// turn.
	r.lastStep, r.lastTurn = s.step, s.turn
	r.state = Prefill
	r.seq = s.takeSeq()
	c.running++
	c.servedAt = s.now
	s.running = append(s.running, r)
	f.pending += r.owed()
	s.flows[f.class].fix(f)
	if s.cfg.Prefix {
		r.starting = true
		s.starting++
		s.plan.Start = append(s.plan.Start, Start{Req: r.id, Seq: r.seq})
		s.plan.Again = true
		return
	}
	if !r.ran {
		s.begins(r)
	}
	r.log.add(s.now, reason.Started, 0)
}

// begins counts a request that has its first sequence.
func (s *Scheduler) begins(r *request) {
	s.begun++
	r.ran, r.nth = true, s.begun
}

// onStarted takes the caller's answer that part of r's history is in its sequence.
func (s *Scheduler) onStarted(r *request, e *EvStarted) {
	switch {
	case !r.starting:
		panic(fmt.Sprintf("sched: EvStarted of request %d, which no Plan.Start named", r.id))
	case e.Cached < 0 || e.Cached >= r.history():
		panic(fmt.Sprintf("sched: EvStarted of request %d with Cached %d; it must be 0…%d, all but the last token of "+
			"its history", r.id, e.Cached, r.history()-1))
	case e.Shared < 0 || e.Shared > e.Cached:
		panic(fmt.Sprintf("sched: EvStarted of request %d with Shared %d of Cached %d", r.id, e.Shared, e.Cached))
	}
	r.starting = false
	s.starting--
	r.computed, r.shared, r.hint, r.spared, r.restore, r.stops = e.Cached, e.Shared, 0, 0, 0, e.Stops
	// Flows are charged for tokens that are computed, not for cached ones.
	was := r.owed()
	r.charged = max(r.charged, r.computed)
	r.flow.pending -= was - r.owed()
	s.flows[r.flow.class].fix(r.flow)
	if !r.ran {
		s.begins(r)
		r.rank = s.rankByTarget(r)
	}
	r.reason = reason.Started
	r.log.add(s.now, reason.Started, e.Cached)
}

// onDefer takes the caller's answer that r waits for a prefix: r gives its sequence back and leaves its queue, so that
// other requests can start. A request that never ran counts against Config.MaxQueue again.
func (s *Scheduler) onDefer(r *request, e *EvDefer) {
	switch {
	case !r.starting:
		panic(fmt.Sprintf("sched: EvDefer of request %d, which no Plan.Start named", r.id))
	case e.Reason != reason.Joining && e.Reason != reason.Restoring:
		panic(fmt.Sprintf("sched: EvDefer of request %d with reason %q; it must be %q or %q", r.id, e.Reason,
			reason.Joining, reason.Restoring))
	}
	s.vacate(r, 0)
	r.state = Queued
	r.deferred, r.reason = e.Reason, e.Reason
	s.deferred++
	s.count[e.Reason]++
	r.log.add(s.now, e.Reason, 0)
	if !r.ran {
		r.started = false
		s.await(r)
	}
}

// onReady lets a deferred request into its queue again.
func (s *Scheduler) onReady(r *request, e *EvReady) {
	if r.deferred == reason.None {
		s.ignored++
		return
	}
	s.deferred--
	r.deferred = reason.None
	r.setHint(e.Shared)
	s.requeue(r)
}

// setHint records how much of r's history running requests hold, as far as the caller knows.
func (r *request) setHint(shared int) {
	if shared < 0 {
		panic(fmt.Sprintf("sched: event of request %d with Shared %d", r.id, shared))
	}
	r.hint = min(shared, r.history()-1)
}
