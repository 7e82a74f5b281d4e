package sched

import "math"

// request is one generation's whole record. Records are reused: id is 0 while one lies in the free list, and
// no ReqID of a live request is 0.
type request struct {
	id   ReqID
	flow *flow // whose request it is, as the policy sees it; its class too
	user *user // whose request it is, whatever the policy

	class     Class  // as it came; the flow's can be another
	owner     uint32 // likewise
	arrivedAt Instant
	log       decisions

	// rank orders requests for life: in one class, the smaller one never gives up cells for the larger one. It
	// is the arrival number, until a pause costs the request its place.
	//
	// With Config.Prefix it is given when the request first starts, so that nobody makes way for one that started after
	// it; and one that makes way for an answer although it came before it goes behind it, so that the answer does not
	// make way for it later.
	rank     uint64
	state    State // Queued … Output; a finalised request has no record
	phase    State // Think or Output: what it decodes after Prefill
	thought  bool  // its think block has ended. Invariant: thought implies phase Output
	paused   bool
	pausedAt Instant // valid while paused

	prompt    int    // tokens
	max       int    // most tokens it may generate. Invariant: prompt + max ≤ Config.Cells
	generated int    // tokens fed back by EvToken
	computed  int    // tokens of its history in its sequence. Invariant: 0 ≤ computed ≤ prompt + generated; 0 without a sequence
	shared    int    // of computed: those whose cells are counted elsewhere. Invariant: 0 ≤ shared ≤ computed
	hint      int    // Event.Shared: the shared it will have if it starts, as far as is known; 0 once it has
	probe     int    // rows of the fork that its next row shall carry; 0 = none
	refused   uint64 // Scheduler.step of the first fork it was refused since it last had one; 0 = none was
	charged   int    // tokens of its history its flow was charged for: computing them again is free

	// Invariant: seq ≥ 0 exactly in Prefill, Think and Output.
	seq      int32
	starting bool   // its Plan.Start is to be answered
	held     Reason // why it waits without being in its queue (EvHold); ReasonNone = it does not
	ran      bool   // its start was not answered with EvHold, once
	started  bool   // had a sequence once: it is no longer bound by MaxQueue and never rejected
	yielded  bool   // made way for an interactive request once, and does not have to again
	awaiting bool   // its row was computed: EvToken, EvFinish or EvCancel must follow in the same list of events

	deadline Instant // wished time of the first token; math.MaxInt64 = none
	tbt      int64   // wished ns between tokens, 0 = none and no guard
	lastEmit Instant // time of the newest token; valid while emitted
	lastGap  int64   // ns between the newest two tokens; 0 after a break that was not the scheduler's doing
	emitted  bool
	readAt   Instant // when a reader at Config.ReadingRate has read the visible answer so far

	lastStep uint64 // Scheduler.step that computed something for it last: round-robin order of prompts
	lastTurn uint64 // Scheduler.turn of its newest slice: round-robin order of answers, within a step too
	reason   Reason // its newest decision

	waits          bool     // is on its user's waiting list: it never started, and counts against Config.MaxQueue
	waitNo         uint64   // order of these lists
	bornAt         uint64   // Scheduler.step of its arrival
	earlier, later *request // on that list
	queuedAt       Instant  // when it was put into its flow's queue last
	startedAt      Instant  // when it last got a sequence
	goes           Reason   // scratch of makeRoom: why it is chosen to make way

	prev, next *request // in its flow's queue
	queued     bool     // is in its flow's queue: Queued, not paused and not held
}

const never = Instant(math.MaxInt64)

// history is how many tokens must be in the KV pool before its next one can be sampled.
func (r *request) history() int { return r.prompt + r.generated }

// left is how many of them still have to be computed, ≥ 1 while it runs.
func (r *request) left() int { return r.history() - r.computed }

// own is the cells that are counted as its own.
func (r *request) own() int { return r.computed - r.shared }

// footprint is the cells of its own that it is expected to hold soon: its history and a little growth.
func (r *request) footprint(reserve int) int {
	return r.history() - max(r.shared, r.hint) + min(reserve, r.max-r.generated)
}

// owed is how many tokens of its prompt its flow will still be charged for.
func (r *request) owed() int64 { return int64(max(0, r.prompt-r.charged)) }

func (r *request) decoding() bool { return r.state == Think || r.state == Output }

// tier is what its cells are worth: a visible answer that stops is seen, a thought that stops is not.
func (r *request) tier() int {
	t := 1 - int(r.flow.class)
	if r.phase == Output && r.generated > 0 {
		t += int(NumClasses)
	}
	return t
}

// before reports whether a outranks b: b gives up its cells before a does.
func (s *Scheduler) before(a, b *request) bool {
	if a.paused != b.paused {
		return b.paused
	}
	if s.cfg.Prefix {
		if ta, tb := a.tier(), b.tier(); ta != tb {
			return ta > tb
		}
	} else if a.flow.class != b.flow.class {
		return a.flow.class < b.flow.class
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.id < b.id
}

// nextRank is the rank after all those given. There is room between them for those that fall back.
func (s *Scheduler) nextRank() uint64 {
	s.rank += 1 << 16
	return s.rank
}

// newRequest takes a record from the free list.
func (s *Scheduler) newRequest() *request {
	if n := len(s.free); n > 0 {
		r := s.free[n-1]
		s.free = s.free[:n-1]
		return r
	}
	return new(request)
}

// lookup finds a live request, or nil. Tokens come in the order of the batch, so the next row's request is
// tried first: a map of 256 streams costs more than the rest of a step.
func (s *Scheduler) lookup(id ReqID) *request {
	for s.cursor < len(s.batch) {
		r := s.batch[s.cursor]
		if r == nil || s.plan.Batch[s.cursor].Row < 0 {
			s.cursor++
			continue
		}
		if r.id == id {
			s.cursor++
			return r
		}
		break
	}
	return s.requests[id]
}

// takeSeq returns the lowest free sequence id, or -1.
func (s *Scheduler) takeSeq() int32 {
	for i, used := range s.seqs {
		if !used {
			s.seqs[i] = true
			return int32(i)
		}
	}
	return -1
}

// leave takes r's sequence and cells away and says so in the plan.
func (s *Scheduler) leave(r *request, why Reason, final bool) {
	rel := Release{Req: r.id, Seq: r.seq, Reason: why, Final: final}
	if s.cfg.Prefix && !final {
		if rel.Phase = Prefill; r.generated > 0 {
			rel.Phase = r.phase
		}
		s.plan.Again = true
	}
	s.plan.Release = append(s.plan.Release, rel)
	s.count[why]++
	r.reason = why
	if !final {
		r.log.add(s.now, why, 0)
	}
	if r.seq >= 0 {
		s.vacate(r)
	}
}

// vacate takes r out of the running ones.
func (s *Scheduler) vacate(r *request) {
	s.seqs[r.seq] = false
	r.seq = -1
	s.live -= r.own()
	r.computed, r.shared, r.probe = 0, 0, 0
	if r.starting {
		r.starting = false
		s.starting--
	}
	for i, o := range s.running {
		if o == r {
			s.running = append(s.running[:i], s.running[i+1:]...)
			break
		}
	}
	s.byClass[r.flow.class].running--
	r.user.running--
	r.flow.pending -= r.owed()
	s.flows[r.flow.class].fix(r.flow)
	for i, o := range s.batch {
		if o == r {
			s.batch[i] = nil
		}
	}
}

// finalise ends r for good.
func (s *Scheduler) finalise(r *request, why Reason) {
	wasRunning := r.seq >= 0
	s.ended.note(r, s.now, why)
	s.unqueue(r)
	s.leave(r, why, true)
	if wasRunning {
		s.finishes.add(s.now)
	}
	s.forget(r)
}

// forget drops r's record.
func (s *Scheduler) forget(r *request) {
	if r.paused {
		s.paused--
	}
	if r.held != ReasonNone {
		s.held--
	}
	if r.deadline != never {
		s.dated--
	}
	delete(s.requests, r.id)
	f, u := r.flow, r.user
	s.unwait(r)
	*r = request{}
	s.free = append(s.free, r)
	s.closeFlow(f)
	s.closeUser(u)
}

// preempt sends r back to its queue: its tokens become a prompt that is computed again.
func (s *Scheduler) preempt(r *request, why Reason) {
	s.preemptions++
	s.leave(r, why, false)
	r.state = Queued
	r.emitted, r.lastGap = false, 0
	switch {
	case r.paused:
		// Whoever took its place must not lose it again to the same request.
		r.rank = s.nextRank()
	case s.cfg.Prefix && (why == ReasonPreemptCells || why == ReasonPreemptFull):
		// One that makes way for a class or a share falls behind none of those that run beside it.
		for _, o := range s.running {
			if !o.paused && o.rank >= r.rank && o.tier() > r.tier() {
				r.rank = o.rank + 1
			}
		}
	}
	s.requeue(r)
}
