package sim

import (
	"math"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Engine is one simulated server, taken one event at a time. Many may share one clock: ask each for its next event
// with Next, execute the earliest with Advance.
//
// An Engine is not safe for concurrent use.
type Engine struct {
	cfg      Config
	model    latency.Model
	overhead int64 // model.Token()
	horizon  int64

	clock  int64 // microseconds; Invariant (INV-3): never decreases
	events heap
	live   arena
	batch  latency.Batch
	noise  noise

	formation formation

	stepping
	arrived int64 // requests whose arrival fired: counted here, not derived (INV-1)
	ended   int64 // those that ended, likewise

	device *device // that the engine shares with others; nil: none does
	place  int     // in its lists

	active   int        // requests between admission and their end
	deferred []*request // batch and background requests that wait for an idle server (Config.DeferBatch)

	bucket float64 // token-bucket admission: prompt tokens now available
	filled int64   // when bucket was last filled, microseconds

	m        *Metrics
	sink     Sink
	gone     workload.Request // the request that sink.Ended is told about
	advances int64
	stalls   int
	stuck    *Stuck
	stepLog  []StepRecord
	check    func() error // under -tags invariants
}

// stepping is the progress of an Engine's steps.
type stepping struct {
	// stepDue: a Step is in the heap, or comes when the device is this engine's.
	// Invariant (INV-8): after every event, a request waits only while a Step is in the heap.
	stepDue  bool
	busyTill int64 // nominal end of the last step
	stopped  int64 // no step begins before this time (Stop)
	unloaded int64 // microseconds that loading takes with the next request (Unload); 0 = it is loaded
	steps    int
}

// Sink learns what happens to requests; any field may be nil. The sink owns the Result.
type Sink struct {
	Ended func(r *workload.Request, how workload.Outcome, now int64) // a closed loop's next round hangs on it
	Done  func(Result)                                               // the request will not change any more
	// Prefilled is called when a request's prompt is computed and its first token is not its last. The step ends at
	// end; the client sees the token at first. Returning true takes the request away (prefill-decode disaggregation).
	// With batch formation uma it must: such a server computes no answers.
	Prefilled func(r *workload.Request, end, first int64) bool
	// Preempted is called when a request loses its place in the batch and waits again.
	Preempted func(r *workload.Request, now int64)
	// Planned is called with the events and the plan of each scheduler step (batch formation uma). Both are valid
	// during the call only.
	Planned func(now sched.Instant, in *sched.Events, plan *sched.Plan)
	// Engine, if there is one, carries out every batch, copy and removal of cells; the latency model still says how
	// long a batch takes. Row is called for each row of its logits, with the tokens that the sequence holds (batch
	// formation uma). Both arguments are valid during the call only.
	Engine runtime.Engine
	Row    func(r *workload.Request, history []runtime.Token, logits []float32)
}

// formation decides which requests get how many tokens in a step, and carries the step out.
type formation interface {
	// Waiting counts the requests that wait, and Waiter is the i-th. Running are those of the batch, in the order of
	// admission.
	Waiting() int
	Waiter(i int) *Request
	Running() []*Request

	// join takes a request that passed the guards, leave one that timed out.
	join(e *Engine, r *request, now int64)
	leave(e *Engine, r *request, now int64)
	// form grants tokens to the running requests, admits requests from the queue and preempts. False means that
	// there is nothing to compute: the server sleeps until something happens.
	form(e *Engine, now int64) bool
	// load says what the batch computes; its items only if they are asked for.
	load(e *Engine, b *latency.Batch, items bool)
	// compute gives the granted tokens, complete takes the finished requests out of the batch. Of the step's duration
	// took, decoded is the engine's.
	compute(e *Engine, now, decoded, took int64)
	complete(e *Engine, now, end int64)
	// waits says that a request may wait or run although no step is planned.
	waits() bool
	// pending says that a step is needed although no request runs or waits.
	pending() bool
	// used is the number of KV blocks in use, transfer the microseconds of copies that the step pays for.
	used() int
	transfer() int64
	// overlaps says that a request may start a step while the last one of an emptied batch still runs.
	overlaps() bool
	// totals adds the formation's part of the counters at the end.
	totals(t *EngineTotals)
	// checkBlocks returns the first broken invariant of the blocks and the queue.
	checkBlocks() error
}

// NewEngine makes an idle server. m may be shared by engines of one clock; sink may be zero.
func NewEngine(cfg Config, model latency.Model, m *Metrics, sink Sink) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, model: model, overhead: model.Token(), horizon: cfg.horizon(), m: m, sink: sink}
	e.noise = newNoise(&cfg)
	e.bucket = cfg.BucketCapacity
	if cfg.BatchFormation == "uma" {
		u, err := newUma(&e.cfg, model, &e.sink)
		if err != nil {
			return nil, err
		}
		e.formation = u
	} else {
		e.formation = newBatched(e)
	}
	e.check = newChecker(e)
	return e, nil
}

// Next returns the time of the earliest event, false when there is none. A timeout of a request that is gone, or that
// its client reads again, does not count and is dropped here.
func (e *Engine) Next() (int64, bool) {
	for len(e.events.ev) > 0 {
		top := &e.events.ev[0]
		if k := top.kind(); k != timeout && k != resumed || e.live.of(top) != nil {
			return top.at, true
		}
		e.events.pop()
	}
	return 0, false
}

// Stuck returns the livelock that was found, or nil.
func (e *Engine) Stuck() *Stuck { return e.stuck }

// Arrive lets a request arrive at its Arrival time, which must not lie before the clock.
func (e *Engine) Arrive(spec *workload.Request) {
	r := e.live.get()
	r.Spec = *spec
	e.events.push(spec.Arrival, arrival, r.Slot, r.gen)
}

// ArriveNow is Arrive for a request whose time has come: it executes the Arrival at once.
func (e *Engine) ArriveNow(spec *workload.Request) {
	r := e.live.get()
	r.Spec = *spec
	e.clock = max(e.clock, spec.Arrival)
	e.onArrival(r, spec.Arrival)
}

// Advance executes the earliest event. There must be one.
func (e *Engine) Advance() {
	ev := e.events.pop()
	r := e.live.of(&ev)
	if k := ev.kind(); (k == timeout || k == resumed) && r == nil {
		return // BLIS drops it without moving the clock
	}
	if ev.kind() == stepDue && ev.at < e.stopped {
		e.pushStep(e.stopped)
		return
	}
	if checked && ev.at < e.clock {
		panic("sim: INV-3: the clock would go back")
	}
	e.clock = ev.at
	switch ev.kind() {
	case arrival:
		e.onArrival(r, ev.at)
	case queued:
		e.onQueued(r, ev.at)
	case stepDue:
		e.onStep(ev.at)
	case timeout:
		e.onTimeout(r, ev.at)
	case resumed:
		e.onResumed(r, ev.at)
	}
	if len(e.deferred) > 0 && e.active == 0 {
		for _, r := range e.deferred {
			e.dispatch(r, ev.at)
		}
		e.deferred = e.deferred[:0]
	}
	if checked {
		if err := e.check(); err != nil {
			panic(err)
		}
	}
}

func (e *Engine) onArrival(r *request, now int64) {
	e.arrived++
	r.state = Delayed
	r.Identity = r.Spec.Identity()
	if !e.admit(r, now) {
		e.m.Rejected++
		r.state = Rejected
		e.active++
		e.refused(r, now)
		return
	}
	if e.cfg.DeferBatch && e.active > 0 && (r.Spec.Class == "batch" || r.Spec.Class == "background") {
		e.deferred = append(e.deferred, r)
		return
	}
	e.dispatch(r, now)
}

// dispatch sends an admitted request on its way to the queue.
func (e *Engine) dispatch(r *request, now int64) {
	e.active++
	at := now + e.model.Enqueue(r.Spec.Input)
	if at < now {
		at = math.MaxInt64
	}
	e.events.push(at, queued, r.Slot, r.gen)
}

// admit is the admission policy. A token bucket holds prompt tokens and refills with time.
func (e *Engine) admit(r *request, now int64) bool {
	if e.cfg.Admission != "token-bucket" {
		return true
	}
	e.bucket = min(e.cfg.BucketCapacity, e.bucket+float64(now-e.filled)*e.cfg.BucketRefill/1e6)
	e.filled = now
	if need := float64(r.Spec.Input); e.bucket >= need {
		e.bucket -= need
		return true
	}
	return false
}

// onQueued runs the guards, which see the client's budget and never the true output length (INV-9).
func (e *Engine) onQueued(r *request, now int64) {
	n, limit := r.Spec.Input, e.cfg.MaxModelLen
	if r.Spec.Budget == 0 && limit > 0 && n < limit {
		r.Spec.Budget = limit - n
	}
	size := e.cfg.BlockTokens
	if r.Spec.Budget < 0 ||
		limit > 0 && (n >= limit || r.Spec.Budget > 0 && n+r.Spec.Budget > limit) ||
		(n+size-1)/size > e.cfg.KVBlocks {
		e.m.Dropped++
		r.state = Dropped
		e.end(r, workload.Dropped, now)
		return
	}
	if !r.Spec.Prefilled {
		e.m.InputTokens += int64(n)
	}
	if d := r.Spec.Deadline; d > 0 && d <= now {
		e.m.TimedOut++
		r.state = TimedOut
		e.end(r, workload.TimedOut, now)
		return
	}
	r.state, r.enqueued = Queued, now
	if e.unloaded > 0 {
		e.stopped, e.unloaded = max(e.stopped, now+e.unloaded), 0
	}
	e.formation.join(e, r, now)
	if d := r.Spec.Deadline; d > 0 && d <= e.horizon {
		e.events.push(d, timeout, r.Slot, r.gen)
	}
	e.wake(now)
}

// wake makes an idle server with work start a step.
func (e *Engine) wake(now int64) {
	if e.stepDue || e.formation.Waiting() == 0 {
		return
	}
	if e.cfg.NoOverlap || !e.formation.overlaps() {
		now = max(now, e.busyTill)
	}
	e.pushStep(now)
}

func (e *Engine) pushStep(at int64) {
	e.events.push(at, stepDue, 0, math.MaxUint32)
	e.stepDue = true
}

// onResumed continues a request whose client reads again.
func (e *Engine) onResumed(r *request, now int64) {
	e.formation.(*uma).resume(r, now)
	e.advances++
	if !e.stepDue {
		e.pushStep(max(now, e.busyTill))
	}
}

func (e *Engine) onTimeout(r *request, now int64) {
	e.m.TimedOut++
	e.advances++
	e.formation.leave(e, r, now)
	r.state = TimedOut
	e.end(r, workload.TimedOut, now)
	if len(e.formation.Running()) == 0 {
		e.wake(now)
	}
}

// refused ends a request that is not served.
func (e *Engine) refused(r *request, now int64) { e.end(r, workload.Dropped, now) }

// end passes on the result of a request that has ended, and reuses its struct.
func (e *Engine) end(r *request, how workload.Outcome, now int64) {
	e.active--
	e.ended++
	if r.state != Moved {
		e.m.observe(r)
	}
	if e.sink.Done != nil {
		e.sink.Done(e.result(r))
	}
	if e.sink.Ended == nil {
		e.live.put(r)
		return
	}
	e.gone = r.Spec
	e.live.put(r)
	e.sink.Ended(&e.gone, how, now)
}

// Finish passes on the results of the requests that have not ended. The engine must not be advanced after it.
func (e *Engine) Finish() {
	for _, r := range e.formation.Running() {
		e.m.StillRunning++
		e.finish(e.live.entry(r))
	}
	for i := range e.formation.Waiting() {
		e.m.StillQueued++
		e.finish(e.live.entry(e.formation.Waiter(i)))
	}
	for _, r := range e.deferred {
		e.finish(r)
	}
	for _, ev := range e.events.ev {
		if r := e.live.of(&ev); r != nil && (r.state == Delayed || r.state == NotArrived) {
			e.finish(r)
		}
	}
	t := EngineTotals{Clock: e.clock, Steps: e.steps, Arrived: e.arrived, KVUsed: e.formation.used()}
	e.formation.totals(&t)
	e.m.Engines = append(e.m.Engines, t)
}

func (e *Engine) finish(r *request) {
	e.m.observe(r)
	if e.sink.Done != nil {
		e.sink.Done(e.result(r))
	}
}
