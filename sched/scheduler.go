package sched

import (
	"fmt"
	"time"
)

// Scheduler decides what each decode step computes. It is a value machine: Step is a function of what New was
// given and of the (now, events) pairs before it. It is owned by one goroutine.
type Scheduler struct {
	cfg     Config // defaults filled in
	policy  policy
	builder builder // of the newest Step; here so that it need not be allocated

	now  Instant
	step uint64 // counts Steps
	turn uint64 // counts slices
	plan Plan

	// requests holds every live request; running those with a sequence, in the order they were let in.
	requests map[ReqID]*request
	running  []*request
	free     []*request // records to reuse
	seqs     []bool     // sequence id → taken
	due      []*request // scratch: those that ask for a fork in this step
	rank     uint64     // the newest rank given
	paused   int        // live requests that are paused

	flowOf  map[flowKey]*flow
	flows   [NumClasses]flowHeap
	byClass [NumClasses]classState

	// batch[i] is the request of plan.Batch[i], nil once it has ended. Both are kept until the outcome arrived.
	batch     []*request
	cursor    int // next row that lookup expects a token for
	owedStep  bool
	owedToken int // rows of a good step whose requests were not heard of yet

	// live + pool + free == cfg.Cells, where free is computed from these. Invariant: live is the sum of running[i].own().
	live int
	pool int // EvPool's
	// lost is how many cells the pool seems to lack: learned from StepKVFull, halved now and then.
	lost     int
	good     int // StepOK since lost was last halved
	kvTokens int // tokens of the batch for which no cell was free in the step before; 0 = it was not so

	starting int  // running requests whose Plan.Start is to be answered
	held     int  // requests that EvHold keeps out of their queue
	asked    bool // the plan before asked to reclaim cells, or the only running request fails

	cost     costModel
	overhead average // ns from a Decode's end to the next one's begin
	began    Instant // when the newest batch was handed out
	promise  promise // of this Step's fill
	rate     prefillRate
	dated    int // live requests with a deadline

	users     map[uint32]*user // those with live requests
	freeUsers []*user          // records to reuse
	byOwner   bool             // the policy tells owners apart
	waitNo    uint64           // the newest request.waitNo
	refused   []refusal        // scratch
	rejected  int              // requests rejected since a place in the queue came free
	draining  bool

	tick        average // of every step
	finishes    rate    // of running requests
	preemptions uint64
	guardSkips  uint64
	ignored     uint64
	count       [numReasons]uint64
	ended       ended
}

// classState are one class's counters.
type classState struct {
	queued   int     // in the flows' queues
	fresh    int     // live requests that never started
	running  int     // with a sequence
	members  int     // live requests
	vnow     int64   // see virtualNow
	servedAt Instant // when the class last got a sequence, or began to wait
}

// New returns a scheduler without requests. The error is Validate's.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Scheduler{
		cfg:      cfg,
		requests: make(map[ReqID]*request),
		running:  make([]*request, 0, cfg.MaxRunning),
		seqs:     make([]bool, cfg.MaxRunning),
		due:      make([]*request, 0, cfg.MaxRunning),
		flowOf:   make(map[flowKey]*flow),
		users:    make(map[uint32]*user),
		batch:    make([]*request, 0, 2*cfg.MaxRunning),
		cost:     newCostModel(&cfg.Cost),
	}
	s.plan.Batch = make([]Slice, 0, 2*cfg.MaxRunning) // each can have a fork
	s.plan.Release = make([]Release, 0, cfg.MaxRunning)
	s.policy = newPolicy(s)
	_, a := s.policy.lane(Interactive, 1)
	_, b := s.policy.lane(Interactive, 2)
	s.byOwner = a != b
	return s, nil
}

// Config is what the scheduler works with, defaults filled in.
func (s *Scheduler) Config() Config { return s.cfg }

// Step takes what happened since the Step before and says what to do next. The package comment lists what the
// caller owes in return. now must not go back (an earlier one is read as the same). Step panics when the
// caller broke the contract; the message names the request.
func (s *Scheduler) Step(now Instant, in []Event) Plan {
	s.now = max(s.now, now)
	s.step++
	s.plan.Release, s.plan.Reject, s.plan.Start = s.plan.Release[:0], s.plan.Reject[:0], s.plan.Start[:0]
	s.plan.Again = false
	for i := range in {
		s.apply(&in[i])
	}
	s.settle()
	s.relieve()
	s.admit()
	s.refuse()
	if s.plan.Again {
		s.plan.Reason = ReasonAgain
		s.count[ReasonAgain]++
	} else {
		s.fill()
	}
	if invariantsEnabled {
		if err := s.check(); err != nil {
			panic("sched: invariant broken after Step: " + err.Error())
		}
	}
	return s.plan
}

// settle holds the caller to its word and clears the plan before.
func (s *Scheduler) settle() {
	if s.owedStep {
		panic("sched: no EvStep for the batch of the plan before")
	}
	if s.owedToken > 0 {
		for _, r := range s.batch {
			if r != nil && r.awaiting {
				panic(fmt.Sprintf("sched: no EvToken, EvFinish or EvCancel for the row of request %d", r.id))
			}
		}
	}
	if s.starting > 0 {
		for _, r := range s.running {
			if r.starting {
				panic(fmt.Sprintf("sched: no EvStarted, EvHold or EvCancel for the start of request %d", r.id))
			}
		}
	}
	if s.live+s.pool > s.cfg.Cells {
		panic(fmt.Sprintf("sched: %d cells of EvPool and %d of running requests, the pool has %d", s.pool, s.live, s.cfg.Cells))
	}
	s.lost = min(s.lost, s.cfg.Cells-s.pool-s.live)
	s.owedToken = 0
	clear(s.batch)
	s.batch = s.batch[:0]
	s.cursor = 0
	s.plan = Plan{Release: s.plan.Release, Reject: s.plan.Reject, Start: s.plan.Start, Batch: s.plan.Batch[:0]}
	s.promise = promise{}
}

// fill lets the policy build the batch and says how the step came out.
func (s *Scheduler) fill() {
	b := &s.builder
	*b = builder{s: s, left: s.cfg.MaxBatch, cells: s.capacity() - s.live}
	for _, r := range s.running {
		if !r.paused {
			b.runnable++
		}
	}
	b.unserved = b.runnable
	b.chooseForks()
	s.plan.Reason = ReasonIdle
	s.plan.Budget = s.cfg.MaxBatch
	if b.runnable > 0 {
		s.policy.fill(b)
	}
	if s.owedStep = len(s.plan.Batch) > 0; s.owedStep {
		s.began = s.now
		s.plan.Predicted = time.Duration(s.cost.predict(b.load) * 1e6)
	}
	s.count[s.plan.Reason]++
	if s.plan.PrefillHeld {
		s.guardSkips++
	}
	if !s.owedStep {
		s.plan.WakeAt = s.wakeAt()
	}
}

// wakeAt is when waiting alone changes something: a paused request's grace, or that of a user's share, ends while another
// waits. A grace that has ended was reckoned with in this step: what still waits then waits for an event.
func (s *Scheduler) wakeAt() Instant {
	if s.byClass[Interactive].queued+s.byClass[Background].queued == 0 {
		return 0
	}
	at := never
	for _, r := range s.running {
		if end := r.pausedAt.Add(s.cfg.PauseGrace); r.paused && end > s.now {
			at = min(at, end)
		}
	}
	if at = min(at, s.shareDue()); at == never {
		return 0
	}
	return at
}

// promise is what fill did about the time between tokens.
type promise struct {
	guard      GuardState
	infeasible bool
	target     time.Duration
	thinkHeld  int
}

// observeGap learns how long the caller takes between two Decodes: it is part of the time between tokens.
func (s *Scheduler) observeGap(took time.Duration) {
	gap := max(0, float64(s.now.Sub(s.began)-took))
	// A restore, or a machine that slept, is not what the next step will take.
	s.overhead.add(min(gap, mul(4, s.overhead.value)+float64(time.Millisecond)), 0.1)
}

// Cost is what the cost model has learned, for Config.Cost of a later run.
func (s *Scheduler) Cost() CostState { return s.cost.state() }

// PrefillFits is the largest chunk of a prompt from position start on that in 95 of 100 cases fits into a step of this
// length beside so many decode rows that attend to so many cells.
func (s *Scheduler) PrefillFits(limit time.Duration, decode int, attended float64, start int) int {
	return s.cost.fits(float64(limit)/1e6, load{decode: float64(decode), attended: attended}, start, s.cfg.MaxBatch-decode)
}

// Stats are the gauges after the newest Step.
func (s *Scheduler) Stats() Stats {
	st := Stats{
		QueuedInteractive: s.byClass[Interactive].queued,
		QueuedBackground:  s.byClass[Background].queued,
		Paused:            s.paused,
		LiveCells:         s.live,
		PoolCells:         s.pool,
		FreeCells:         s.cfg.Cells - s.pool - s.live,
		LostCells:         min(s.lost, s.cfg.Cells-s.pool-s.live),
		TickEWMA:          s.tick.duration(),
		Preemptions:       s.preemptions,
		GuardSkips:        s.guardSkips,
		Ignored:           s.ignored,
	}
	for class := range NumClasses {
		c := &s.byClass[class]
		st.ByState[class][Queued] = c.members - c.running
		st.Parked += c.members - c.running - c.fresh
	}
	st.Held = s.held
	for _, r := range s.running {
		st.ByState[r.flow.class][r.state]++
		if r.decoding() {
			st.Decoding++
		} else {
			st.Prefilling++
		}
	}
	p := &s.promise
	st.Guard, st.TargetInfeasible, st.ITLTarget, st.ThinkHeld, st.ThinkHeldTotal = p.guard, p.infeasible, p.target, p.thinkHeld, s.count[ReasonThinkHeld]
	st.Cost, st.CostError, st.CostRatio, st.Predicted = s.cost.cost(), s.cost.err, s.cost.ratio, s.plan.Predicted
	st.TTFTAtRisk = s.atRisk()
	st.BudgetTarget, st.SoloTarget = s.policy.targets()
	return st
}

// Count is how often a decision was made for this reason since New.
func (s *Scheduler) Count(why Reason) uint64 {
	if why >= numReasons {
		return 0
	}
	return s.count[why]
}

// Why tells where a live request is and the reason of the newest decision about it. ok is false for one that
// has ended or never was.
func (s *Scheduler) Why(id ReqID) (state State, why Reason, ok bool) {
	r := s.requests[id]
	if r == nil {
		return 0, ReasonNone, false
	}
	if r.state != Queued {
		return r.state, r.reason, true
	}
	switch {
	case r.paused:
		return Queued, ReasonWaitPaused, true
	case r.held != ReasonNone:
		return Queued, r.held, true
	case r.queued && s.plan.Waiting[r.flow.class] != ReasonNone && s.first(r.flow.class) == r:
		return Queued, s.plan.Waiting[r.flow.class], true
	}
	return Queued, ReasonWaitTurn, true
}

// average is an exponentially weighted moving average; 0 before the first sample.
type average struct {
	value float64
	any   bool
}

func (a *average) add(x, weight float64) {
	if !a.any {
		a.value, a.any = x, true
		return
	}
	a.value += mul(weight, x-a.value)
}

func (a *average) duration() time.Duration { return time.Duration(a.value) }

// rate measures how far apart things happen.
type rate struct {
	gap  average // ns
	last Instant
	any  bool
}

func (r *rate) add(now Instant) {
	if r.any {
		r.gap.add(float64(now-r.last), 0.2)
	}
	r.last, r.any = now, true
}
