package sched

import (
	"fmt"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// room returns the number of KV cells that requests can still be given, after this Step's releases.
func (s *Scheduler) room() int { return s.pool.cells + s.pool.freed - s.pool.lost }

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
		s.pool.lost = 0 // no request holds cells: the engine may have all of them
	}
	for len(s.running) > 0 {
		need := 0
		for _, r := range s.running {
			if !r.paused {
				need += r.least()
			}
		}
		if need == 0 || need <= s.room() {
			s.pool.asked = false
			return
		}
		if len(s.running) == 1 {
			r := s.running[0]
			// The engine had no cells for its smallest slice, and there is nothing left to preempt.
			if s.pool.kvTokens > 0 && s.pool.kvTokens <= r.least() {
				s.pool.lost = 0
				s.finaliseUntold(r, reason.KVFull)
				return
			}
			if short := need - s.pool.cells - s.pool.freed; short > 0 {
				// Pinned prefixes, or cells shared with requests that were just preempted, hold its cells.
				// The caller was asked once (Plan.Reclaim), and the cells did not come.
				if s.pool.asked {
					s.pool.asked = false
					s.finaliseUntold(r, reason.KVFull)
					return
				}
				s.pool.asked = true
				s.plan.Reclaim, s.plan.Again = short, true
				return
			}
			// The ledger has cells that the engine seemed to lack after StepKVFull. With nothing left to preempt the
			// request tries them, 64 at a time.
			s.pool.lost = max(0, s.pool.cells+s.pool.freed-64)
			return
		}
		v, share := s.nextVictim()
		why := reason.PreemptCells
		switch {
		case share:
			why = reason.PreemptShare
		case s.pool.lost > 0:
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
			if other := 1 - class; s.queue.Counts(other).Queued > 0 && s.plan.Waiting[other] == reason.None {
				s.plan.Waiting[other] = reason.WaitTurn
			}
			return
		}
		s.start(r)
		if overdue {
			r.place.yielded = true // else the interactive requests that it overtook would preempt it at once
		}
	}
}

// waitsForOwn reports whether r, a background request, would lack cells or a sequence even without all interactive
// requests: others of its class have them. Then it gains nothing by holding interactive ones back.
func (s *Scheduler) waitsForOwn(r *request) bool {
	reserve := max(0, s.cfg.DecodeReserve)
	short, left := s.shortage(r), len(s.running)
	for _, o := range s.running {
		if o.entry.Class == Interactive {
			short -= o.footprint(reserve)
			left--
		}
	}
	return short > 0 || left >= s.cfg.MaxRunning
}

// admitPast starts the first interactive request past a background one, and reports whether it could.
func (s *Scheduler) admitPast() bool {
	limit := s.cfg.Limits[Interactive].MaxRunning
	if c := s.queue.Counts(Interactive); c.Queued == 0 || limit > 0 && c.Running >= limit {
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
		c, limit := s.queue.Counts(class), s.cfg.Limits[class].MaxRunning
		if c.Queued == 0 {
			return false
		}
		if limit > 0 && c.Running >= limit {
			s.plan.Waiting[class] = reason.WaitClass
			return false
		}
		return true
	}
	interactive, background := may(Interactive), may(Background)
	// The wait for an interactive target is bounded, so that background requests do not starve.
	if background && s.clock.risk && s.now.Sub(s.queue.Counts(Background).ServedAt) < s.cfg.BackgroundEvery {
		s.plan.Waiting[Background] = reason.WaitEndangered
		background = false
	}
	switch {
	case background && interactive && s.now.Sub(s.queue.Counts(Background).ServedAt) >= s.cfg.BackgroundEvery &&
		!s.queue.Precedes(s.queue.First(Interactive), s.queue.First(Background)):
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
	return max(0, r.history()+min(1, r.growth())-r.hint-s.pool.cells-s.pool.freed-s.owned())
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
		v := s.last(func(o *request) bool {
			return o.place.preemptFor == reason.None && s.preemptable(o, r) != reason.None
		})
		if v == nil {
			break
		}
		v.place.preemptFor = s.preemptable(v, r)
		v.entry.User.Leaving++
		left--
		short -= v.footprint(reserve)
		// A request that runs alone needs no reserve, as in blocked.
		enough = left > 0 && short <= 0 || left == 0 && s.lacks(r) == 0
	}
	for i := len(s.running); i > left; i-- {
		v := s.last(func(o *request) bool { return o.place.preemptFor != reason.None })
		// The marks are removed in any case; requests are preempted only if all of them together make room.
		why := v.place.preemptFor
		v.place.preemptFor = reason.None
		v.entry.User.Leaving--
		if !enough {
			continue
		}
		if why == reason.PreemptYield {
			v.place.yielded = true
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
	case o.entry.Class > r.entry.Class && !o.place.yielded:
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
		s.pool.lost = 0 // as in preemptForCells, when the last one was preempted for r
	}
	s.queue.Start(&r.entry)
	r.place.startedAt = s.now
	// Else a request that starts would count as the least recently served one and go before those that wait for their
	// turn.
	r.turns.lastStep, r.turns.lastTurn = s.step, s.turn
	r.state = Prefill
	r.place.seq = s.takeSeq()
	s.running = append(s.running, r)
	if s.cfg.Prefix {
		r.place.starting = true
		s.starting++
		s.plan.Start = append(s.plan.Start, Start{Req: r.id, Seq: r.place.seq})
		s.plan.Again = true
		return
	}
	if !r.place.ran {
		s.begins(r)
	}
	r.log.add(s.now, reason.Started, 0)
}

// begins counts a request that has its first sequence.
func (s *Scheduler) begins(r *request) {
	s.totals.begun++
	r.place.ran, r.turns.nth = true, s.totals.begun
}

// onStarted takes the caller's answer that part of r's history is in its sequence.
func (s *Scheduler) onStarted(r *request, e *EvStarted) {
	switch {
	case !r.place.starting:
		panic(fmt.Sprintf("sched: EvStarted of request %d, which no Plan.Start named", r.id))
	case e.Cached < 0 || e.Cached >= r.history():
		panic(fmt.Sprintf("sched: EvStarted of request %d with Cached %d; it must be 0…%d, all but the last token of "+
			"its history", r.id, e.Cached, r.history()-1))
	case e.Shared < 0 || e.Shared > e.Cached:
		panic(fmt.Sprintf("sched: EvStarted of request %d with Shared %d of Cached %d", r.id, e.Shared, e.Cached))
	}
	r.place.starting = false
	s.starting--
	r.computed, r.shared, r.hint, r.spared, r.restore, r.stops = e.Cached, e.Shared, 0, 0, 0, e.Stops
	s.queue.Spare(&r.entry, r.computed)
	if !r.place.ran {
		s.begins(r)
		r.entry.Rank = s.rankByTarget(r)
	}
	r.turns.reason = reason.Started
	r.log.add(s.now, reason.Started, e.Cached)
}

// onDefer takes the caller's answer that r waits for a prefix: r gives its sequence back and leaves its queue, so that
// other requests can start. A request that never ran counts against Config.MaxQueue again.
func (s *Scheduler) onDefer(r *request, e *EvDefer) {
	switch {
	case !r.place.starting:
		panic(fmt.Sprintf("sched: EvDefer of request %d, which no Plan.Start named", r.id))
	case e.Reason != reason.Joining && e.Reason != reason.Restoring:
		panic(fmt.Sprintf("sched: EvDefer of request %d with reason %q; it must be %q or %q", r.id, e.Reason,
			reason.Joining, reason.Restoring))
	}
	s.vacate(r, 0)
	r.state = Queued
	r.place.deferred, r.turns.reason = e.Reason, e.Reason
	s.deferred++
	s.totals.count[e.Reason]++
	r.log.add(s.now, e.Reason, 0)
	if !r.place.ran {
		s.queue.Await(&r.entry)
	}
}

// onReady lets a deferred request into its queue again.
func (s *Scheduler) onReady(r *request, e *EvReady) {
	if r.place.deferred == reason.None {
		s.totals.ignored++
		return
	}
	s.deferred--
	r.place.deferred = reason.None
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
