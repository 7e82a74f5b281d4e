package sim

import (
	"github.com/uma-serve/uma-serve/sim/kv"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// State is where a request is, as a report names it.
type State uint8

const (
	NotArrived State = iota // its arrival lies beyond the end
	Delayed                 // arrived, on its way through the enqueue delay; the original calls it not_arrived, and so do reports
	Queued
	Running
	Completed
	TimedOut
	Dropped  // can never be served: too long for the model or for the cache
	Rejected // refused by the admission policy
	Moved    // went on to another server with its prompt computed
)

var stateNames = [...]string{"not_arrived", "not_arrived", "queued", "running", "completed", "timed_out", "dropped", "rejected", "moved"}

func (s State) String() string { return stateNames[s] }

// request is one live request. Structs are reused; slot and gen tell the events of one life from those of the next.
//
// With n prompt and m output tokens: prefill while progress < n, decode after. The first output token comes with the
// last prompt token, so there are max(m-1, 0) decode steps and the request is complete at progress = n + max(m,1) - 1.
type request struct {
	spec workload.Request
	slot int32
	gen  uint32

	state     State
	progress  int // prompt tokens computed + decode tokens produced
	newTokens int // granted in this step
	computed  int // tokens with room in the cache
	highWater int // most progress it ever had: preemption resets progress, not this

	seq kv.Seq

	ttft      int64 // microseconds after arrival
	ttftSet   bool  // in this life since the last preemption
	hasTTFT   bool  // ever
	itl       []int64
	itlSum    int64
	delay     int64 // last admission - arrival
	admitted  bool  // ever
	enqueued  int64 // when it joined the queue
	firstStep int   // of its last admission
	lastStep  int   // in which it finished
	left      int64 // end of that step
	capped    bool  // ended by max_model_len
	e2e       int64

	lostKV bool // it was preempted: a moved request has to compute its prompt after all

	tokens   int   // batch formation uma: tokens sampled; a preemption keeps them
	limit    int   // … and the most it may
	stalls   int   // … and how many of spec.Stalls have begun
	lastEmit int64 // … and when the last one was; elsewhere ≠ 0 only until a moved request's next token

	stallMark int64 // Engine.advances + 1 at its last preemption
	idleMark  int64 // the same when it last could not be admitted to an idle server
}

// prefilling reports whether part of the prompt is still to be computed.
func (r *request) prefilling() bool { return r.progress < r.spec.Input }

// lastProgress is the progress at which the request is complete.
func (r *request) lastProgress() int { return r.spec.Input + max(r.spec.Output, 1) - 1 }

// forget puts a preempted request back to the start of its prompt.
func (r *request) forget() {
	r.progress, r.computed, r.newTokens = 0, 0, 0
	r.itl, r.itlSum = r.itl[:0], 0
	r.ttftSet = r.spec.Prefilled // its first token is out, whatever happens to its cache
	if r.spec.Prefilled {
		r.lastEmit = r.spec.FirstToken
	}
	r.lostKV = true
}

// arena hands out request structs and takes them back.
type arena struct {
	slots []*request
	free  []int32
}

func (a *arena) get() *request {
	if n := len(a.free); n > 0 {
		r := a.slots[a.free[n-1]]
		a.free = a.free[:n-1]
		return r
	}
	r := &request{slot: int32(len(a.slots))}
	a.slots = append(a.slots, r)
	return r
}

// put ends a request's life. Events that still name it are void from now on.
func (a *arena) put(r *request) {
	itl := r.itl[:0]
	seq := r.seq
	seq.Reset()
	*r = request{slot: r.slot, gen: r.gen + 1, itl: itl, seq: seq}
	a.free = append(a.free, r.slot)
}

// of returns the request an event names, nil when it is gone.
func (a *arena) of(e *event) *request {
	if r := a.slots[e.slot]; r.gen == e.gen {
		return r
	}
	return nil
}
