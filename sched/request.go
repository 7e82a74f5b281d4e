package sched

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/sched/guess"
	"github.com/uma-serve/uma-serve/sched/queue"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// request is the record of one generation: its parts are grouped by what they are for. Records are reused: id is 0 in
// the free list, and no live request has id 0.
type request struct {
	id  ReqID
	log decisions
	// entry is its place among the requests that wait or run; its class and owner are those that the policy sees, and
	// can differ from spec's. Its rank is the arrival number, until a pause costs the request its place.
	//
	// With Config.Prefix the rank is given at the first start, so that no request makes way for one that started after
	// it. A request that makes way for an answer of a larger rank gets a rank behind it, so that the answer does not
	// make way for it later.
	entry queue.Entry
	spec  *Spec // as it arrived

	state    State // Queued … Output; a finalised request has no record
	phase    State // Think or Output: the state after Prefill
	thought  bool  // its think block has ended. Invariant: thought implies phase Output
	paused   bool
	pausedAt Instant // valid while paused

	extent
	place  place
	timing timing
	turns  turns

	guess      guess.Request
	guessing   Reason  // the newest decision about its guesses; reason.None = none was made
	guessSince Instant // the first one of the decisions in a row for that reason
}

// extent is the size of a request, in tokens.
type extent struct {
	prompt int
	// most tokens it may generate. Invariant: prompt + max ≤ Config.Cells; with Spec.Fill: max is 1, prompt ≤
	// Config.Cells
	max       int
	generated int // tokens fed back by EvToken
	// tokens of its history in its sequence. Invariant: 0 ≤ computed ≤ prompt + generated; 0 without a sequence
	computed int
	shared   int // of computed: tokens whose cells other sequences held at its start. Invariant: 0 ≤ shared ≤ computed
	hint     int // EvArrive.Shared: what shared will probably be when it starts; 0 afterwards
	// EvArrive.Cached and Restore, until it has started: what forecasts leave out of its prompt.
	spared  int
	restore time.Duration
	stops   []int // EvStarted.Stops that it has not reached
}

// place says which sequence a request has, and whether it had one.
type place struct {
	// Invariant: seq ≥ 0 exactly in Prefill, Think and Output.
	seq        int32
	startedAt  Instant // when it last got a sequence
	starting   bool    // its Plan.Start is to be answered
	deferred   Reason  // why it waits outside its queue (EvDefer); reason.None = it does not
	ran        bool    // EvStarted has answered a start
	yielded    bool    // made way for an interactive request once, and does not do so again
	awaiting   bool    // its row was computed: EvToken, EvFinish or EvCancel must follow in the same list of events
	preemptFor Reason  // scratch of makeRoom: why it was chosen to make way
}

// timing has the times of a request's newest token, for the next one's target.
type timing struct {
	closing  bool    // its thought has ended, and its answer has no token yet
	lastEmit Instant // time of the newest token; valid while emitted
	lastGap  int64   // ns between the newest two tokens; 0 after a pause or a preemption
	emitted  bool
}

// turns counts the steps that a request was in, for the policies.
type turns struct {
	lastStep uint64 // Scheduler.step of its newest slice: round-robin order of prompts
	nth      uint64 // the number of requests that began up to it, counted when it gets its first sequence
	group    uint64 // the newest group of prompts whose first tokens it waited for, counted from 1; 0 = none
	lastSkip uint64 // Scheduler.step of the newest step that a policy left it out of
	lastTurn uint64 // Scheduler.turn of its newest slice: round-robin order of answers, also within a step
	reason   Reason // its newest decision
	probe    int    // rows of the fork beside its next row; 0 = none
	// forkSkipped is the Scheduler.step of the first fork that was skipped since its newest one; 0 = none.
	forkSkipped uint64
}

const never = slo.Never

// history returns the number of tokens that must be in the KV pool before the next one can be sampled.
func (r *request) history() int { return r.prompt + r.generated }

// left returns the number of tokens of the history that still have to be computed, ≥ 1 while r runs.
func (r *request) left() int { return r.history() - r.computed }

// least returns the length of its smallest slice: one token, or all that is left of a prompt that cannot be cut.
func (r *request) least() int {
	if r.spec.Whole {
		return max(1, r.left())
	}
	return 1
}

// toStop returns the number of tokens up to the next position at which a slice of r must end; 0 = there is none.
func (r *request) toStop() int {
	for len(r.stops) > 0 {
		if n := r.stops[0] - r.computed; n > 0 {
			return n
		}
		r.stops = r.stops[1:]
	}
	return 0
}

// own returns the number of cells that a preemption of r frees.
func (r *request) own() int { return r.computed - r.shared }

// footprint returns the number of own cells that r will hold soon: its history and a little growth.
func (r *request) footprint(reserve int) int {
	return r.history() - max(r.shared, r.hint) + min(reserve, r.growth())
}

// growth returns the most cells that the rest of r's answer can need.
func (r *request) growth() int {
	if r.spec.Fill {
		return 0
	}
	return r.max - r.generated
}

func (r *request) decoding() bool { return r.state == Think || r.state == Output }

// claim describes a running request to the block manager, which decides by claims which request gives up its cells.
func (s *Scheduler) claim(r *request) blocks.Claim {
	c := blocks.Claim{Resting: r.paused, Background: r.entry.Class == Background, Tier: blocks.Prefix}
	switch {
	case !s.cfg.Prefix || r.generated == 0: // without Prefix a preempted request computes everything again
	case r.phase == Think:
		c.Tier = blocks.ThinkActive
	default:
		c.Tier = blocks.OutputCritical
	}
	return c
}

// before reports whether b gives up its cells before a does. Among claims that the block manager does not distinguish
// the rank decides, and among requests that rankByTarget put before the same one the earlier TTFT deadline,
// then the order in which they began.
func (s *Scheduler) before(a, b *request) bool {
	switch c := s.claim(a).Compare(s.claim(b)); {
	case c != 0:
		return c > 0
	case a.entry.Rank != b.entry.Rank:
		return a.entry.Rank < b.entry.Rank
	case a.entry.Due != b.entry.Due:
		return a.entry.Due < b.entry.Due
	}
	return a.turns.nth < b.turns.nth
}

// nextRank returns the rank behind all others. The gaps between ranks leave room for requests that fall back.
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
	r := new(request)
	r.entry.Slot = len(s.records)
	s.records = append(s.records, r)
	return r
}

// first returns the request of a class that is tried next, of which at least one must be queued.
func (s *Scheduler) first(class Class) *request { return s.records[s.queue.First(class).Slot] }

// requeue puts back a request that was preempted, paused or deferred, unless it still is paused or deferred.
func (s *Scheduler) requeue(r *request) {
	if !r.paused && r.place.deferred == reason.None {
		s.queue.Requeue(&r.entry)
	}
}

// lookup returns a live request, or nil. Tokens come in the order of the batch, so it tries the next row's request
// first: a map look-up for each of 256 streams would cost more than the rest of a step.
func (s *Scheduler) lookup(id ReqID) *request {
	for s.out.cursor < len(s.out.batch) {
		r := s.out.batch[s.out.cursor]
		if r == nil || s.plan.Batch[s.out.cursor].Row < 0 {
			s.out.cursor++
			continue
		}
		if r.id == id {
			s.out.cursor++
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

// leave takes r's sequence away, which frees gives cells, and adds the Release to the plan.
func (s *Scheduler) leave(r *request, why Reason, final bool, gives int) {
	rel := Release{Req: r.id, Seq: r.place.seq, Reason: why, Final: final}
	if s.cfg.Prefix && !final {
		if rel.Phase = Prefill; r.generated > 0 {
			rel.Phase = r.phase
		}
		// The caller turns its cells into a cached prefix first; only then its ledger says how many of them are free.
		s.plan.Again = true
	}
	s.plan.Release = append(s.plan.Release, rel)
	s.totals.count[why]++
	r.turns.reason = why
	if !final {
		r.log.add(s.now, why, 0)
	}
	if r.place.seq >= 0 {
		s.vacate(r, gives)
	}
}

// vacate takes r out of the running requests, which frees gives cells.
func (s *Scheduler) vacate(r *request, gives int) {
	s.seqs[r.place.seq] = false
	r.place.seq = -1
	s.pool.freed += gives
	r.computed, r.shared, r.turns.probe = 0, 0, 0
	r.guess.Leave()
	if r.place.starting {
		r.place.starting = false
		s.starting--
	}
	for i, o := range s.running {
		if o == r {
			s.running = append(s.running[:i], s.running[i+1:]...)
			break
		}
	}
	s.queue.Stop(&r.entry)
	for i, o := range s.out.batch {
		if o == r {
			s.out.batch[i] = nil
		}
	}
}

// givenUp returns the number of cells that the end of r frees, of which its last event names so many.
func (s *Scheduler) givenUp(r *request, cells int) int {
	switch {
	case cells < 0 || cells > s.cfg.Cells:
		panic(fmt.Sprintf("sched: the end of request %d gives up %d cells; it must be 0…%d", r.id, cells, s.cfg.Cells))
	case !s.cfg.Prefix || r.place.seq < 0:
		return r.own()
	}
	return cells
}

// finaliseUntold ends r for good by the scheduler's decision. The number of cells that it frees is an estimate, because
// other sequences may share them by now: no batch is decided before the next EvCells.
func (s *Scheduler) finaliseUntold(r *request, why Reason) {
	s.plan.Again = s.plan.Again || s.cfg.Prefix
	s.finalise(r, why, r.own())
}

// finalise ends r for good, which frees gives cells.
func (s *Scheduler) finalise(r *request, why Reason, gives int) {
	wasRunning := r.place.seq >= 0
	s.totals.ended.note(r, s.now, why)
	s.queue.Unqueue(&r.entry)
	s.leave(r, why, true, gives)
	if wasRunning {
		s.queue.Ended()
		s.turnedOver()
	}
	s.forget(r)
}

// forget drops r's record.
func (s *Scheduler) forget(r *request) {
	if r.paused {
		s.paused--
	}
	if r.place.deferred != reason.None {
		s.deferred--
	}
	delete(s.requests, r.id)
	s.queue.Remove(&r.entry)
	*r = request{entry: queue.Entry{Slot: r.entry.Slot}}
	s.free = append(s.free, r)
}

// preempt sends r back to its queue. Its history becomes the prompt of its next start.
func (s *Scheduler) preempt(r *request, why Reason) {
	s.totals.preemptions++
	s.leave(r, why, false, r.own())
	r.state = Queued
	r.timing.emitted, r.timing.lastGap = false, 0
	switch {
	case r.paused:
		// The request that takes its place must not lose it to r again.
		r.entry.Rank = s.nextRank()
	case s.cfg.Prefix && (why == reason.PreemptCells || why == reason.PreemptFull):
		// A request that makes way for a class or a share keeps its rank.
		s.victims = append(s.victims, r)
	}
	s.requeue(r)
}

// fallBack ranks the requests that were preempted for cells in this Step behind those that the block manager spared for
// their claims, so that an answer is not preempted later for a thought that was preempted for it. It runs after all
// preemptions of the Step, because a spared request that was preempted in the same Step must not lower another one's
// rank.
func (s *Scheduler) fallBack() {
	for _, r := range s.victims {
		rank := r.entry.Rank
		for _, o := range s.running {
			if !o.paused && !o.place.starting && o.entry.Rank >= rank && s.claim(r).Compare(s.claim(o)) < 0 {
				rank = o.entry.Rank + 1
			}
		}
		if rank == r.entry.Rank {
			continue
		}
		if r.entry.Rank = rank; r.entry.Queued {
			s.queue.Unqueue(&r.entry)
			s.requeue(r)
		}
	}
	s.victims = s.victims[:0]
}
