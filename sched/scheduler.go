package sched

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/forecast"
	"github.com/uma-serve/uma-serve/sched/guess"
	"github.com/uma-serve/uma-serve/sched/queue"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Scheduler decides what each decode step computes. Step is a function of New's arguments and of the (now, events)
// pairs before it. A Scheduler belongs to one goroutine.
type Scheduler struct {
	cfg     Config // defaults filled in
	policy  policy
	queue   *queue.Queue
	guesses guess.Chooser
	cost    cost.Threads
	// overhead is the time from a Decode's end to the next one's begin, in ns.
	overhead cost.Mean
	batcher  batcher // of the newest Step; here so that Step does not allocate one

	now  Instant
	step uint64 // counts Steps
	turn uint64 // counts slices
	plan Plan

	// requests holds every live request; running those with a sequence, in the order they were let in.
	requests map[ReqID]*request
	running  []*request
	records  []*request // all there are, by queue.Entry.Slot
	free     []*request // records to reuse
	seqs     []bool     // sequence id → taken
	due      []*request // scratch: the requests that ask for a fork in this step
	victims  []*request // scratch: the requests that were preempted for cells in this step
	rank     uint64     // the newest rank given
	paused   int        // live requests that are paused
	starting int        // running requests whose Plan.Start is to be answered
	deferred int        // requests that EvDefer keeps out of their queue
	draining bool

	out    handedOut
	pool   pool
	clock  clockwork
	totals counts
}

// handedOut is the newest batch, until its outcome arrives.
type handedOut struct {
	// batch[i] is the request of plan.Batch[i], nil once it has ended.
	batch     []*request
	cursor    int // next row that lookup expects a token for
	owedStep  bool
	owedToken int // rows of a successful step that no event has answered yet
}

// pool counts the cells that requests can have.
type pool struct {
	// cells is the number of cells that requests could be given when this Step began: EvCells, or without Config.Prefix
	// the pool less the tokens that running requests have computed. freed is the number given up within this Step.
	cells, freed int
	// lost is the number of cells of the ledger that the engine seems to lack: learned from StepKVFull, halved after
	// every 64 steps that succeeded.
	lost     int
	good     int  // StepOK outcomes since lost was last halved
	kvTokens int  // tokens of the previous batch, if its outcome was StepKVFull; else 0
	asked    bool // the previous plan asked to reclaim cells for the only running request
}

// clockwork has the limits of a step's duration, and the paces that forecasts use.
type clockwork struct {
	began      Instant // when the newest batch was handed out
	guard      guard   // of this Step
	rate       cost.PromptRate
	turnover   cost.Gaps      // between ends of running requests while others wait for a sequence or cells
	limit      time.Duration  // of a batch, for the answers of other engines; 0 = none
	waited     time.Duration  // for the device, before this Step
	lateCredit int            // see lateEvery
	tick       cost.Mean      // of every step
	jobs       []forecast.Job // scratch
	risk       bool           // of this Step: see endangered
	byTarget   bool           // the policy orders by targets
	yields     bool           // under the policy, background answers yield to the ITL targets of interactive ones
}

// counts are totals since New, and the requests that ended last.
type counts struct {
	begun       uint64 // requests that had a sequence, in all
	preemptions uint64
	guardSkips  uint64
	ignored     uint64
	count       [reason.Count]uint64
	ended       ended
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
		victims:  make([]*request, 0, cfg.MaxRunning),
		out:      handedOut{batch: make([]*request, 0, 2*cfg.MaxRunning)},
		pool:     pool{cells: cfg.Cells},
		cost:     cost.NewThreads(&cfg.Cost),
	}
	s.guesses = guess.New(cfg.MaxRunning, guess.Config{Rereads: cfg.Rereads, DraftBatch: cfg.DraftBatch,
		DraftCost: cfg.DraftCost, DraftBlock: cfg.DraftBlock, States: cfg.DraftStates, All: cfg.AllGuesses})
	s.plan.Batch = make([]Slice, 0, 2*cfg.MaxRunning) // each can have a fork
	s.plan.Release = make([]Release, 0, cfg.MaxRunning)
	s.policy = newPolicy(s)
	_, a := s.policy.lane(Interactive, 1)
	_, b := s.policy.lane(Interactive, 2)
	s.clock.yields = cfg.Policy == "meridian"
	s.clock.byTarget = cfg.Policy != "stock" && cfg.Policy != "meridian_static" // which are first come, first served
	s.queue = queue.New(queue.Config{MaxRunning: cfg.MaxRunning, MaxQueue: cfg.MaxQueue,
		MaxClass:   [NumClasses]int{cfg.Limits[Interactive].MaxQueue, cfg.Limits[Background].MaxQueue},
		ShareGrace: cfg.ShareGrace, ByOwner: a != b, ByDeadline: s.clock.byTarget})
	return s, nil
}

// Config returns the configuration with defaults filled in.
func (s *Scheduler) Config() Config { return s.cfg }

// Step takes what happened since the previous Step and decides what to do next. The package comment lists the caller's
// obligations. An earlier now than before is read as the same. Step panics when the caller breaks the contract; the
// message names the request.
func (s *Scheduler) Step(now Instant, in *Events) Plan {
	s.now = max(s.now, now)
	s.step++
	s.queue.Begin(s.now)
	s.plan.Release, s.plan.Reject, s.plan.Start = s.plan.Release[:0], s.plan.Reject[:0], s.plan.Start[:0]
	s.plan.Again = false
	if !s.cfg.Prefix {
		s.pool.cells += s.pool.freed
	}
	s.pool.freed, s.clock.waited = 0, 0
	for i := range in.Limits { // the outcome before it is measured without the wait
		s.clock.waited += in.Limits[i].Waited
	}
	for _, at := range in.order {
		s.apply(in, at)
	}
	s.reconcile()
	// The order counts: running requests have their cells before others start, and rejectExcess comes after admit,
	// because a request that starts at once needs no place in the queue.
	s.clock.risk = s.endangered()
	s.preemptForCells()
	s.admit()
	s.fallBack()
	for _, x := range s.queue.Excess() {
		s.rejectExcess(&x)
	}
	if s.plan.Again {
		s.plan.Reason = reason.Again
		s.totals.count[reason.Again]++
	} else {
		s.fill()
	}
	if invariants.Enabled {
		if err := s.check(); err != nil {
			panic("sched: invariant broken after Step: " + err.Error())
		}
	}
	return s.plan
}

// reconcile checks that the caller has answered the previous plan, and clears it.
func (s *Scheduler) reconcile() {
	if s.out.owedStep {
		panic("sched: no EvStep for the batch of the previous plan")
	}
	if s.out.owedToken > 0 {
		for _, r := range s.out.batch {
			if r != nil && r.place.awaiting {
				panic(fmt.Sprintf("sched: no EvToken, EvFinish or EvCancel for the row of request %d", r.id))
			}
		}
	}
	if s.starting > 0 {
		for _, r := range s.running {
			if r.place.starting {
				panic(fmt.Sprintf("sched: no EvStarted, EvDefer or EvCancel for the start of request %d", r.id))
			}
		}
	}
	if !s.cfg.Prefix { // nothing but running requests holds cells
		s.pool.cells, s.pool.freed = s.cfg.Cells-s.owned(), 0
	}
	s.pool.lost = min(s.pool.lost, s.pool.cells+s.pool.freed)
	s.out.owedToken = 0
	clear(s.out.batch)
	s.out.batch = s.out.batch[:0]
	s.out.cursor = 0
	s.plan = Plan{
		Release: s.plan.Release, Reject: s.plan.Reject, Start: s.plan.Start, Batch: s.plan.Batch[:0],
		Again: s.plan.Again,
	}
	s.clock.guard = guard{}
}

// fill lets the policy build the batch, and sets the plan's sums.
func (s *Scheduler) fill() {
	b := &s.batcher
	*b = batcher{s: s, left: s.cfg.MaxBatch, cells: s.room(), outputs: s.cfg.EveryRows}
	for _, r := range s.running {
		if !r.paused {
			b.runnable++
		}
	}
	b.unserved = b.runnable
	b.load.More = passes(s.running)
	b.chooseForks()
	s.plan.Reason = reason.Idle
	s.plan.Budget = s.cfg.MaxBatch
	if b.runnable > 0 {
		s.policy.fill(b)
		s.speculate(b)
		s.plan.Budget = max(s.plan.Budget, s.plan.Tokens) // a prompt that cannot be cut may take more than was meant
		b.load.More = passes(s.out.batch)
	}
	if s.out.owedStep = len(s.plan.Batch) > 0; s.out.owedStep {
		s.clock.began = s.now
		s.plan.Predicted = time.Duration(s.cost.Predict(b.load) * 1e6)
		s.plan.Drafting = time.Duration(s.guesses.Draft.Predict(s.guesses.Draft.Load) * 1e6)
		if b := &s.plan.Bound; *b != (Bound{}) {
			b.Decide, b.Limit = b.Decide-s.plan.Drafting, b.Limit-s.plan.Drafting
			if b.Decide < s.plan.Predicted/2 || float64(b.Limit)/1e6 < s.cost.Upper(s.batcher.load) {
				*b = Bound{} // too early to tell, or planned to be late
			}
		}
	}
	s.totals.count[s.plan.Reason]++
	if s.plan.PrefillHeld {
		s.totals.guardSkips++
	}
	if !s.out.owedStep {
		s.plan.WakeAt = s.wakeAt()
	}
}

// wakeAt returns when time alone changes a decision: PauseGrace of a paused request or ShareGrace of a user ends while
// another request waits. This Step has already acted on the graces that have ended. 0 = only an event changes one.
func (s *Scheduler) wakeAt() Instant {
	if s.queue.Len() == 0 {
		return 0
	}
	at := never
	for _, r := range s.running {
		if end := r.pausedAt.Add(s.cfg.PauseGrace); r.paused && end > s.now {
			at = min(at, end)
		}
	}
	if at = min(at, s.queue.ShareDue()); at == never {
		return 0
	}
	return at
}

// guard records how fill enforced the ITL target in this Step.
type guard struct {
	state      GuardState
	infeasible bool
	target     time.Duration
	thinkHeld  int // rows of thinking requests that were left out
}

// observeGap learns how long the caller takes between two Decodes, which is part of the ITL. Waits for the device are
// not part of it: EvLimit and the time since the newest token have them.
func (s *Scheduler) observeGap(took time.Duration) {
	gap := max(0, float64(s.now.Sub(s.clock.began)-took-s.clock.waited))
	// The limit keeps a restore between two steps, or a machine that slept, from raising the mean.
	s.overhead.Add(min(gap, mul(4, s.overhead.Value)+float64(time.Millisecond)), overheadWeight)
}

// Cost returns the state of the cost model for Config.Cost of a later run. It is that of the number of threads that the
// first EvThreads named, because the next start begins with as many, whatever is in use now.
func (s *Scheduler) Cost() CostState { return s.cost.First() }

// Stats returns the gauges after the newest Step.
func (s *Scheduler) Stats() Stats {
	st := Stats{
		QueuedInteractive: s.queue.Counts(Interactive).Queued,
		QueuedBackground:  s.queue.Counts(Background).Queued,
		Paused:            s.paused,
		FreeCells:         s.pool.cells + s.pool.freed,
		LostCells:         min(s.pool.lost, s.pool.cells+s.pool.freed),
		TickEWMA:          time.Duration(s.clock.tick.Value),
		Preemptions:       s.totals.preemptions,
		GuardSkips:        s.totals.guardSkips,
		Ignored:           s.totals.ignored,
	}
	for class := range NumClasses {
		c := s.queue.Counts(class)
		st.ByState[class][Queued] = c.Members - c.Running
		st.Parked += c.Members - c.Running - c.Fresh
	}
	if st.Parked > 0 {
		for _, r := range s.requests {
			if r.state == Queued && r.generated > 0 {
				st.ParkedIn[r.phase]++
			}
		}
	}
	st.Deferred = s.deferred
	for _, r := range s.running {
		st.ByState[r.entry.Class][r.state]++
		if r.decoding() {
			st.Decoding++
		} else {
			st.Prefilling++
		}
	}
	g := &s.clock.guard
	st.Guard, st.TargetInfeasible, st.ITLTarget = g.state, g.infeasible, g.target
	st.ThinkHeld, st.ThinkHeldTotal = g.thinkHeld, s.totals.count[reason.ThinkHeld]
	st.Cost, st.CostError, st.CostRatio = s.cost.Cost(), s.cost.RelativeError(), s.cost.Margin()
	st.Predicted = s.plan.Predicted
	st.TTFTAtRisk = s.atRisk()
	st.BudgetTarget, st.SoloTarget = s.policy.targets()
	return st
}

// Count returns how often a decision was made for this reason since New.
func (s *Scheduler) Count(why Reason) uint64 {
	if why >= reason.Count {
		return 0
	}
	return s.totals.count[why]
}

// Why returns the state of a live request and the reason of the newest decision about it. ok is false when no such
// request is live.
func (s *Scheduler) Why(id ReqID) (state State, why Reason, ok bool) {
	r := s.requests[id]
	if r == nil {
		return 0, reason.None, false
	}
	if r.state != Queued {
		return r.state, r.turns.reason, true
	}
	switch {
	case r.paused:
		return Queued, reason.WaitPaused, true
	case r.place.deferred != reason.None:
		return Queued, r.place.deferred, true
	case r.entry.Queued && s.plan.Waiting[r.entry.Class] != reason.None && s.first(r.entry.Class) == r:
		return Queued, s.plan.Waiting[r.entry.Class], true
	}
	return Queued, reason.WaitTurn, true
}

// mul returns a product that is rounded before it is added to anything, as package cost's are: a trace replays to the
// same plans on an architecture that would fuse the two operations.
func mul(a, b float64) float64 { return float64(a * b) }
